/** What may still come of a rule, interned: expressions over lexemes, special tokens and rules. */
import { type Expression, type Grammar, GrammarError, type Regular } from '../grammar.js';
import { LIMITS } from '../limits.js';
import { type Automaton } from '../regular/automaton.js';
import { NOTHING } from '../regular/nodes.js';
import type { Work } from '../work.js';

export type Atom =
  | { readonly kind: 'lexeme'; readonly state: number }
  | { readonly kind: 'token'; readonly id: number }
  | { readonly kind: 'rule'; readonly rule: number };

type Rest =
  | { readonly kind: 'never' | 'done' }
  | Atom
  | { readonly kind: 'then'; readonly first: number; readonly rest: number }
  | { readonly kind: 'either'; readonly of: readonly number[] }
  | { readonly kind: 'repeat'; readonly of: number; readonly min: number; readonly max: number };

/** What may come first, and what comes behind it. */
export interface Step {
  readonly atom: Atom;
  readonly rest: number;
}

const NEVER = 0;
const DONE = 1;

export class Rests {
  readonly start: number;
  /** What each rule is. */
  readonly rules: readonly number[];
  readonly isNullable: boolean[] = [];
  readonly #automaton: Automaton;
  readonly #source: Grammar;
  readonly #vocabSize: number;
  readonly #lexemes = new Map<Regular, number>();
  readonly #rests: Rest[] = [];
  readonly #ids = new Map<string, number>();
  readonly #steps = new Map<number, readonly Step[]>();
  /** Rules that can end, and rules that can end without anything. */
  readonly #productive: ReadonlySet<number>;
  readonly #nullable: ReadonlySet<number>;

  /** Throws GrammarError where no text can be written, or bounds are exceeded. */
  constructor(grammar: Grammar, automaton: Automaton, vocabSize: number) {
    this.#automaton = automaton;
    this.#source = grammar;
    this.#add({ kind: 'never' }, false);
    this.#add({ kind: 'done' }, true);
    this.#vocabSize = vocabSize;
    const { rules } = grammar;
    const { work } = automaton;
    this.#productive = fixpoint(rules, work, {
      regular: (regular) => this.#stateOf(regular) !== NOTHING,
      token: (id) => this.#isToken(id),
    });
    this.#nullable = fixpoint(rules, work, {
      regular: (regular) => automaton.isNullable[this.#stateOf(regular)]!,
      token: () => false,
    });
    this.rules = rules.map((rule, index) => (this.#productive.has(index) ? this.#of(rule, 0) : NEVER));
    this.start = this.#of(grammar.start, 0);
    if (this.start === NEVER) throw new GrammarError('no text can be written that is as asked for');
  }

  /** What may come first in a rest. */
  steps(id: number): readonly Step[] {
    const known = this.#steps.get(id);
    if (known !== undefined) return known;
    const found = this.#find(id);
    this.#automaton.work.spend(8 * found.length + 8);
    this.#steps.set(id, found);
    return found;
  }

  isDone(id: number): boolean {
    return id === DONE;
  }

  #find(id: number): readonly Step[] {
    const rest = this.#rests[id]!;
    switch (rest.kind) {
      case 'never':
      case 'done':
        return [];
      case 'lexeme':
      case 'token':
      case 'rule':
        return [{ atom: rest, rest: DONE }];
      case 'then':
        return this.#findThen(id);
      case 'either':
        return rest.of.flatMap((part) => this.steps(part));
      case 'repeat': {
        const others = this.#repeat(rest.of, Math.max(0, rest.min - 1), rest.max - 1);
        return this.steps(rest.of).map((step) => ({ ...step, rest: this.#then(step.rest, others) }));
      }
      default:
        return rest satisfies never;
    }
  }

  #findThen(id: number): readonly Step[] {
    const all: Step[] = [];
    let at = id;
    for (let node = this.#rests[at]!; node.kind === 'then'; node = this.#rests[at]!) {
      for (const { atom, rest } of this.steps(node.first)) all.push({ atom, rest: this.#then(rest, node.rest) });
      if (!this.isNullable[node.first]!) return all;
      at = node.rest;
    }
    return all.concat(this.steps(at));
  }

  #of(expression: Expression, depth: number): number {
    if (depth > LIMITS.depth) throw new GrammarError('a grammar is nested too deep');
    this.#automaton.work.spend(16);
    const regular = this.#regularOf(expression, depth);
    if (regular !== undefined) return this.#lexeme(regular);
    switch (expression.kind) {
      case 'regular':
        return this.#lexeme(expression.regular);
      case 'token': {
        if (!this.#isToken(expression.id)) return NEVER;
        return this.#keep(`t${expression.id}`, { kind: 'token', id: expression.id }, false);
      }
      case 'sequence':
        return joined(expression.of).reduceRight((rest, part) => this.#then(this.#of(part, depth + 1), rest), DONE);
      case 'choice':
        return this.#either(joinedChoice(expression.of).map((part) => this.#of(part, depth + 1)));
      case 'repeat':
        return this.#repeat(this.#of(expression.of, depth + 1), expression.min, expression.max);
      case 'rule': {
        const { rule } = expression;
        if (!this.#productive.has(rule)) return NEVER;
        return this.#keep(`r${rule}`, { kind: 'rule', rule }, this.#nullable.has(rule));
      }
      default:
        return expression satisfies never;
    }
  }

  /** The regular expression that an expression is by itself. */
  #regularOf(expression: Expression, depth: number): Regular | undefined {
    if (depth > LIMITS.depth) return undefined;
    if (expression.kind === 'regular') return expression.regular;
    if (expression.kind === 'rule') {
      const rule = this.#source.rules[expression.rule];
      return rule?.kind === 'regular' ? rule.regular : undefined;
    }
    if (expression.kind !== 'repeat') return undefined;
    const of = this.#regularOf(expression.of, depth + 1);
    return of === undefined ? undefined : { kind: 'repeat', of, min: expression.min, max: expression.max };
  }

  #lexeme(regular: Regular): number {
    const state = this.#stateOf(regular);
    if (state === NOTHING) return NEVER;
    return this.#keep(`l${state}`, { kind: 'lexeme', state }, this.#automaton.isNullable[state]!);
  }

  #stateOf(regular: Regular): number {
    let state = this.#lexemes.get(regular);
    if (state === undefined) {
      state = this.#automaton.of(regular);
      this.#lexemes.set(regular, (state = this.#automaton.isAlive(state) ? state : NOTHING));
    }
    return state;
  }

  #isToken(id: number): boolean {
    return Number.isInteger(id) && id >= 0 && id < this.#vocabSize;
  }

  #then(first: number, rest: number): number {
    if (first === NEVER || rest === NEVER) return NEVER;
    if (first === DONE) return rest;
    if (rest === DONE) return first;
    const parts: number[] = [];
    let last = first;
    for (let node = this.#rests[last]!; node.kind === 'then'; node = this.#rests[last]!) {
      parts.push(node.first);
      last = node.rest;
    }
    let all = this.#pair(last, rest);
    for (let at = parts.length - 1; at >= 0; at--) all = this.#pair(parts[at]!, all);
    return all;
  }

  #pair(first: number, rest: number): number {
    const isNullable = this.isNullable[first]! && this.isNullable[rest]!;
    return this.#keep(`.${first},${rest}`, { kind: 'then', first, rest }, isNullable);
  }

  #either(of: readonly number[]): number {
    const parts = new Set<number>();
    for (const id of of) {
      const rest = this.#rests[id]!;
      if (rest.kind === 'either') rest.of.forEach((part) => parts.add(part));
      else if (id !== NEVER) parts.add(id);
    }
    const sorted = [...parts].sort((one, other) => one - other);
    if (sorted.length < 2) return sorted[0] ?? NEVER;
    const isNullable = sorted.some((part) => this.isNullable[part]!);
    return this.#keep(`|${sorted.join()}`, { kind: 'either', of: sorted }, isNullable);
  }

  #repeat(of: number, min: number, max: number): number {
    if (max < min) return NEVER;
    if (max === 0 || of === DONE) return DONE;
    if (of === NEVER) return min === 0 ? DONE : NEVER;
    if (min === 1 && max === 1) return of;
    const least = this.isNullable[of]! ? 0 : min;
    return this.#keep(`*${of},${least},${max}`, { kind: 'repeat', of, min: least, max }, least === 0);
  }

  #keep(key: string, rest: Rest, isNullable: boolean): number {
    const known = this.#ids.get(key);
    if (known !== undefined) return known;
    const id = this.#add(rest, isNullable);
    this.#ids.set(key, id);
    return id;
  }

  #add(rest: Rest, isNullable: boolean): number {
    this.#automaton.work.add(1);
    this.#rests.push(rest);
    this.isNullable.push(isNullable);
    return this.#rests.length - 1;
  }
}

/** Neighbouring literals as one. */
const joined = (parts: readonly Expression[]): Expression[] => {
  const all: Expression[] = [];
  let texts: Uint8Array[] = [];
  const flush = (): void => {
    if (texts.length > 0) all.push({ kind: 'regular', regular: { kind: 'literal', bytes: Buffer.concat(texts) } });
    texts = [];
  };
  for (const part of parts) {
    if (part.kind === 'regular' && part.regular.kind === 'literal') texts.push(part.regular.bytes);
    else {
      flush();
      all.push(part);
    }
  }
  flush();
  return all;
};

/** All regular options as one. */
const joinedChoice = (options: readonly Expression[]): Expression[] => {
  const of = options.flatMap((option) => (option.kind === 'regular' ? [option.regular] : []));
  if (of.length < 2) return [...options];
  const others = options.filter(({ kind }) => kind !== 'regular');
  return [{ kind: 'regular', regular: { kind: 'choice', of } }, ...others];
};

interface Leaves {
  readonly regular: (regular: Regular) => boolean;
  readonly token: (id: number) => boolean;
}

/** Rules that can be made of such leaves, of each other, and of nothing where something may be repeated never. */
const fixpoint = (rules: readonly Expression[], work: Work, leaves: Leaves): ReadonlySet<number> => {
  const done = new Set<number>();
  const holds = (expression: Expression, depth: number): boolean => {
    if (depth > LIMITS.depth) throw new GrammarError('a grammar is nested too deep');
    work.spend(4);
    switch (expression.kind) {
      case 'regular':
        return leaves.regular(expression.regular);
      case 'token':
        return leaves.token(expression.id);
      case 'rule':
        return done.has(expression.rule);
      case 'sequence':
        return expression.of.every((part) => holds(part, depth + 1));
      case 'choice':
        return expression.of.some((part) => holds(part, depth + 1));
      case 'repeat':
        return expression.min === 0 || holds(expression.of, depth + 1);
      default:
        return expression satisfies never;
    }
  };
  for (let before = -1; before < done.size;) {
    before = done.size;
    for (let at = rules.length - 1; at >= 0; at--) if (!done.has(at) && holds(rules[at]!, 0)) done.add(at);
  }
  return done;
};
