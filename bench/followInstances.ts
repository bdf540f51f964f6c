/** JSON values with the spelling of their file, and whether a grammar has one with its properties in any order. */
import type { Matcher, State } from '../grammar/matcher/states.js';
import type { Work } from '../grammar/work.js';

/** A JSON value: scalars and names as they are spelled. */
export type Instance =
  | { readonly kind: 'scalar'; readonly text: string }
  | { readonly kind: 'array'; readonly items: readonly Instance[] }
  | { readonly kind: 'object'; readonly members: readonly (readonly [name: string, value: Instance])[] };

/** The values of `tests[*].data` of a file of MaskBench. */
export function instancesOf(source: string): readonly Instance[] {
  const root = instanceOf(source);
  const tests = memberOf(root, '"tests"');
  if (tests?.kind !== 'array') return [];
  return tests.items.map((test) => memberOf(test, '"data"') ?? { kind: 'scalar', text: 'null' });
}

const memberOf = (value: Instance, name: string): Instance | undefined =>
  value.kind === 'object' ? value.members.find(([each]) => each === name)?.[1] : undefined;

export function instanceOf(source: string): Instance {
  const tokens = source.match(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/gu) ?? [];
  let at = 0;
  const value = (): Instance => {
    const token = tokens[at++] ?? '';
    if (token === '[') {
      const items: Instance[] = [];
      while (tokens[at] !== ']') {
        items.push(value());
        if (tokens[at] === ',') at++;
      }
      at++;
      return { kind: 'array', items };
    }
    if (token !== '{') return { kind: 'scalar', text: token };
    const members: (readonly [string, Instance])[] = [];
    while (tokens[at] !== '}') {
      const name = tokens[at] ?? '';
      at += 2;
      members.push([name, value()]);
      if (tokens[at] === ',') at++;
    }
    at++;
    return { kind: 'object', members };
  };
  return value();
}

export const textOf = (value: Instance): string => {
  if (value.kind === 'scalar') return value.text;
  if (value.kind === 'array') return `[${value.items.map(textOf).join()}]`;
  return `{${value.members.map(([name, each]) => `${name}:${textOf(each)}`).join()}}`;
};

/** States tried for one instance; behind them it counts as refused. */
const MAX_TRIES = 20_000;
const STEPS = 20_000_000;

/** Follows texts through a grammar. */
export class Follower {
  readonly #matcher: Matcher;
  readonly #work: Work;
  #tries = 0;

  constructor(matcher: Matcher, work: Work) {
    this.#matcher = matcher;
    this.#work = work;
  }

  #text(text: string, from: State): State | undefined {
    let state: State | undefined = from;
    for (const byte of Buffer.from(text)) {
      this.#work.begin(STEPS);
      state = this.#matcher.next(state, byte);
      if (state === undefined) return undefined;
    }
    return state;
  }

  #isEnd(state: State | undefined): boolean {
    this.#work.begin(STEPS);
    return state !== undefined && this.#matcher.reach(state).isEnd;
  }

  /** Whether the grammar has the value as it is spelled. */
  hasAsSpelled(value: Instance): boolean {
    return this.#isEnd(this.#text(textOf(value), this.#matcher.start));
  }

  /** Whether it has the value with its properties in any order. */
  hasInAnyOrder(value: Instance): boolean {
    this.#tries = 0;
    for (const state of this.#after(value, this.#matcher.start)) if (this.#isEnd(state)) return true;
    return false;
  }

  *#after(value: Instance, from: State): Generator<State> {
    if (this.#tries++ > MAX_TRIES) return;
    if (value.kind === 'object') yield* this.#members(value.members, '{', from);
    else if (value.kind === 'array') yield* this.#items(value.items, 0, from);
    else {
      const state = this.#text(value.text, from);
      if (state !== undefined) yield state;
    }
  }

  *#items(items: readonly Instance[], at: number, from: State): Generator<State> {
    const state = this.#text(at === items.length ? (at === 0 ? '[]' : ']') : at === 0 ? '[' : ',', from);
    const item = items[at];
    if (state === undefined) return;
    if (item === undefined) yield state;
    else for (const behind of this.#after(item, state)) yield* this.#items(items, at + 1, behind);
  }

  *#members(members: readonly (readonly [string, Instance])[], mark: string, from: State): Generator<State> {
    if (members.length === 0) {
      const end = this.#text(mark === '{' ? '{}' : '}', from);
      if (end !== undefined) yield end;
      return;
    }
    // First those behind which all others may still come: the order of the grammar is found without going back.
    const options = members.flatMap((member) => {
      const state = this.#text(`${mark}${member[0]}:`, from);
      const others = members.filter((each) => each !== member);
      return state === undefined ? [] : [{ member, state, others }];
    });
    const later: (() => Generator<State>)[] = [];
    for (const { member, state, others } of options) {
      const rivals = options.filter((each) => each.member !== member).map((each) => each.member[0]);
      for (const behind of this.#after(member[1], state)) {
        const next = (): Generator<State> => this.#members(others, ',', behind);
        if (rivals.every((name) => this.#text(`,${name}:`, behind) !== undefined)) yield* next();
        else later.push(next);
      }
    }
    for (const next of later) yield* next();
  }
}
