/** Finds weights of experts that are chosen in turn, each by a softmax of its own (`inTurn` of ir/experts.ts). */
import type { Value } from '../ir/graph/graph.js';
import type { Matcher } from './match.js';

export interface RoutingInTurn {
  /** f32[rows, experts] */
  readonly logits: Value;
  readonly chosen: number;
  readonly inTurn: number;
}

/** One expert of each row: its weight and 0 elsewhere is `mask`, 1 at the largest of `open`, times a softmax. */
interface Turn {
  readonly mask: Value;
  readonly open: Value;
  readonly logits: Value;
  readonly within: number;
}

/** The rule of `weights` [rows, experts], a sum over turns; undefined if it is another. */
export function routingInTurn(m: Matcher, weights: Value): RoutingInTurn | undefined {
  const turns = termsOf(m, weights).map((term) => turnOf(m, term));
  const [first] = turns;
  if (first === undefined || first.logits.type.shape.length !== 2) return undefined;
  const { logits, within } = first;
  const isNext = (turn: Turn | undefined, at: number): boolean =>
    turn !== undefined &&
    turn.logits === logits &&
    turn.within === within &&
    isOpen(
      m,
      turn.open,
      logits,
      turns.slice(0, at).map((before) => before!.mask),
    );
  return turns.every(isNext) ? { logits, chosen: turns.length, inTurn: within } : undefined;
}

/** The terms of a sum that was added up from the left. */
function termsOf(m: Matcher, sum: Value): readonly Value[] {
  const { a, b } = m.node(sum, 'add')?.operands ?? {};
  return a === undefined || b === undefined ? [sum] : [...termsOf(m, a), b];
}

function turnOf(m: Matcher, term: Value): Turn | undefined {
  for (const [share, mask] of m.pairs(term, 'mul')) {
    const top = m.node(mask, 'top_mask');
    const choice = m.node(m.softmax(share), 'select')?.operands;
    if (top?.attributes.k !== 1 || choice === undefined || m.literal(choice.a) !== -Infinity) continue;
    const { x: open } = top.operands;
    const far = m.node(choice.condition, 'lt')?.operands;
    const within = m.literal(far?.a);
    const logits = distanceFrom(m, far?.b, open);
    if (choice.b === open && within !== undefined && within > 0 && within < Infinity && logits !== undefined)
      return { mask, open, logits, within };
  }
  return undefined;
}

/** The logits z where `v` is (m − z) / max(|z|, m), and m is the largest of `open`. */
function distanceFrom(m: Matcher, v: Value | undefined, open: Value): Value | undefined {
  const distance = m.node(v, 'div')?.operands;
  const { a: top, b: logits } = m.node(distance?.a, 'sub')?.operands ?? {};
  if (m.through(top, 'reduce_max') !== open || logits === undefined) return undefined;
  const isSize = (size: Value): boolean =>
    m.pairs(size, 'max').some(([own, negative]) => own === logits && m.through(negative, 'neg') === logits);
  return m.pairs(distance?.b, 'max').some(([size, most]) => most === top && isSize(size)) ? logits : undefined;
}

/** Whether `open` are the logits of experts that no mask before marks, and −∞ elsewhere. */
function isOpen(m: Matcher, open: Value, logits: Value, before: readonly Value[]): boolean {
  if (before.length === 0) return open === logits;
  const choice = m.node(open, 'select')?.operands;
  if (choice?.a !== logits || m.literal(choice.b) !== -Infinity) return false;
  return m
    .pairs(choice.condition, 'eq')
    .some(([taken, none]) => m.literal(none) === 0 && isSumOf(termsOf(m, taken), before));
}

const isSumOf = (terms: readonly Value[], wanted: readonly Value[]): boolean =>
  terms.length === wanted.length && terms.every((term, i) => term === wanted[i]);
