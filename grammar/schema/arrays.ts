/** Texts of arrays. */
import { type Expression, GrammarError } from '../grammar.js';
import type { Normalizer } from './normalize.js';
import { literal } from './regular.js';
import { comma, either, EMPTY_EXPRESSION, inOrder, lexeme, NO_EXPRESSION, repeated, type Rules } from './rules.js';
import { type ArrayShape, FALSE, type NodeId } from './shapes.js';

/** Values that may be told apart for `uniqueItems`: rules for every set of them. */
const MAX_UNIQUE = 10;
const MAX_STATES = 20_000;

export interface Values {
  readonly normalizer: Normalizer;
  readonly rules: Rules;
  /** The text of a value that fits a node. */
  valueOf(node: NodeId): Expression;
  /** The texts of all values that fit a node, where they are few scalars. */
  scalarsOf(node: NodeId, most: number): readonly string[] | undefined;
}

/** Undefined where no array fits. */
export function arrayExpression(shape: ArrayShape, values: Values): Expression | undefined {
  const { normalizer } = values;
  const isPossible = (node: NodeId): boolean => node !== FALSE && !normalizer.isImpossible(node);
  const first = shape.prefix.findIndex((node) => !isPossible(node));
  const prefix = first < 0 ? shape.prefix : shape.prefix.slice(0, first);
  const hasItems = first < 0 && isPossible(shape.items);
  const max = hasItems ? shape.max : Math.min(shape.max, prefix.length);
  if (shape.min > max) return undefined;
  const known = { ...shape, prefix, items: hasItems ? shape.items : FALSE, max };
  const body = bodyOf(known, values);
  return body === undefined ? undefined : inOrder(lexeme(literal('[')), body, lexeme(literal(']')));
}

function bodyOf(shape: ArrayShape, values: Values): Expression | undefined {
  if (shape.isUnique && shape.max > 1) return uniqueItems(shape, values);
  if (shape.contains.length > 0) return containing(shape, values);
  const { prefix, items, min, max } = shape;
  const behind = (count: number): Expression => {
    const [least, most] = [Math.max(0, min - count), max - count];
    if (most <= 0 || items === FALSE) return EMPTY_EXPRESSION;
    const item = values.valueOf(items);
    if (count > 0) return repeated(inOrder(comma, item), least, most);
    const some = inOrder(item, repeated(inOrder(comma, item), Math.max(0, least - 1), most - 1));
    return least === 0 ? either(some, EMPTY_EXPRESSION) : some;
  };
  let body = behind(prefix.length);
  for (let i = Math.min(prefix.length, max) - 1; i >= 0; i--) {
    values.rules.spend();
    const node = prefix[i];
    const rest = i === max - 1 ? EMPTY_EXPRESSION : body;
    const item = inOrder(...(i > 0 ? [comma] : []), node === undefined ? NO_EXPRESSION : values.valueOf(node));
    const some = inOrder(item, rest);
    body = i < min ? some : either(some, EMPTY_EXPRESSION);
    if (i % 50 === 49) body = values.rules.add(body);
  }
  return body;
}

/** States are how many items there are, and how many of them fit what has to be contained. */
function containing(shape: ArrayShape, values: Values): Expression | undefined {
  const [wanted, ...others] = shape.contains;
  if (wanted === undefined || others.length > 0)
    throw new GrammarError('Several "contains" for the same array are not supported.');
  const { normalizer, rules } = values;
  const { prefix, items, min, max } = shape;
  const hasMost = wanted.max < Infinity;
  const longest = Math.max(prefix.length, min, max < Infinity ? max : 0, 1);
  const mostSeen = hasMost ? wanted.max : wanted.min;
  if (longest * (mostSeen + 1) > MAX_STATES) throw new GrammarError('The numbers of "contains" are too large.');
  const known = new Map<string, Expression>();
  const possible = (node: NodeId): NodeId | undefined => (normalizer.isImpossible(node) ? undefined : node);
  const at = (count: number, seen: number): Expression => {
    const key = `${count} ${seen}`;
    const made = known.get(key);
    if (made !== undefined) return made;
    const rule = rules.reserve();
    const expression: Expression = { kind: 'rule', rule };
    known.set(key, expression);
    const options: Expression[] = [];
    if (count >= min && seen >= wanted.min) options.push(EMPTY_EXPRESSION);
    const next = max < Infinity ? count + 1 : Math.min(count + 1, longest);
    const item = (node: NodeId | undefined, seenThen: number): void => {
      if (node === undefined || count >= max) return;
      options.push(inOrder(...(count > 0 ? [comma] : []), values.valueOf(node), at(next, seenThen)));
    };
    const node = prefix[count] ?? items;
    const other = hasMost ? normalizer.and(node, normalizer.nodes.not(wanted.node)) : node;
    item(possible(other), seen);
    if (seen < mostSeen) item(possible(normalizer.and(node, wanted.node)), seen + 1);
    rules.set(rule, either(...options));
    return expression;
  };
  return withoutDeadEnds(at(0, 0), known, rules);
}

/** Rules from which no text ends become choices of nothing, and what leads to them goes. Undefined where all does. */
function withoutDeadEnds(
  start: Expression,
  known: ReadonlyMap<string, Expression>,
  rules: Rules,
): Expression | undefined {
  const dead = new Set<number>();
  const alive = new Set<number>();
  const places = [...known.values()].flatMap((expression) => (expression.kind === 'rule' ? [expression.rule] : []));
  const own = new Set(places);
  const ends = (expression: Expression): boolean => {
    if (expression.kind === 'rule') return alive.has(expression.rule) || !own.has(expression.rule);
    if (expression.kind === 'choice') return expression.of.some(ends);
    return expression.kind !== 'sequence' || expression.of.every(ends);
  };
  for (let size = -1; size !== alive.size;) {
    size = alive.size;
    for (const rule of [...places].reverse()) if (!alive.has(rule) && ends(rules.at(rule))) alive.add(rule);
  }
  for (const rule of places) {
    const expression = rules.at(rule);
    if (!alive.has(rule)) dead.add(rule);
    else if (expression.kind === 'choice') rules.set(rule, either(...expression.of.filter(ends)));
  }
  return start.kind === 'rule' && dead.has(start.rule) ? undefined : start;
}

/** Where items are of few values, each set of those that are left has a rule. */
function uniqueItems(shape: ArrayShape, values: Values): Expression | undefined {
  const few = values.scalarsOf(shape.items, MAX_UNIQUE);
  if (few === undefined || shape.prefix.length > 0 || shape.contains.length > 0)
    throw new GrammarError(`"uniqueItems" is supported where items are of at most ${MAX_UNIQUE} values.`);
  const { min, max } = shape;
  if (min > few.length) return undefined;
  const known = new Map<number, Expression>();
  const without = (taken: number, count: number): Expression => {
    const made = known.get(taken);
    if (made !== undefined) return made;
    const options: Expression[] = count >= min ? [EMPTY_EXPRESSION] : [];
    if (count < max)
      few.forEach((text, i) => {
        if ((taken & (1 << i)) !== 0) return;
        const item = inOrder(...(count > 0 ? [comma] : []), lexeme(literal(text)));
        options.push(inOrder(item, without(taken | (1 << i), count + 1)));
      });
    const expression = values.rules.add(either(...options));
    known.set(taken, expression);
    return expression;
  };
  return without(0, 0);
}
