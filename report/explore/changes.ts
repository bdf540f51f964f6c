/** What a pass changed: the ops of two programs matched with each other, in one list. */
import type { Sign } from '../document/explore.js';
import type { Mention, Program, ProgramOp } from './program.js';

/** An op of the program after a pass, or one that the pass took out; it mentions positions in the same list. */
export interface Entry extends Omit<ProgramOp, 'mentions' | 'reads'> {
  readonly sign: Sign;
  readonly before?: string;
  readonly mentions: readonly Mention[];
  readonly reads: readonly Mention[];
}

/** A program that no pass was given: nothing of it has changed. */
export const unchanged = ({ ops }: Program): readonly Entry[] => ops.map((op) => ({ ...op, sign: '' }));

/** For each op of `next`, the position of the op of `last` that it was. */
function match(last: Program, next: Program): ReadonlyMap<number, number> {
  const found = new Map<number, number>();
  const byId = new Map(last.ops.map((op, at) => [op.id, at]));
  next.ops.forEach((op, at) => {
    const was = byId.get(op.id);
    if (was !== undefined && last.ops[was]!.op === op.op) found.set(at, was);
  });
  // What is left may have another name: it is the same if it has the same form and mentions the same things.
  const taken = new Set(found.values());
  const keyOf = ({ form, path, mentions }: ProgramOp, positionOf: (at: number) => number | undefined): string =>
    JSON.stringify([form, path, mentions.map(({ name, from }) => (from === undefined ? name : positionOf(from)))]);
  const free = new Map<string, number[]>();
  last.ops.forEach((op, at) => {
    if (taken.has(at)) return;
    const key = keyOf(op, (from) => from);
    const list = free.get(key);
    if (list === undefined) free.set(key, [at]);
    else list.push(at);
  });
  if (free.size === 0) return found;
  next.ops.forEach((op, at) => {
    if (found.has(at)) return;
    const was = free.get(keyOf(op, (from) => found.get(from) ?? -1 - from))?.shift();
    if (was !== undefined) found.set(at, was);
  });
  return found;
}

/** The ops of `next` with signs, and between them those of `last` that are gone, each behind what it stood behind. */
export function changes(last: Program, next: Program): readonly Entry[] {
  const was = match(last, next);
  const is = new Map([...was].map(([now, then]) => [then, now]));
  /** Positions in `last` of what is gone, by the position in `next` behind which it stands. */
  const gone = new Map<number, number[]>();
  let behind = -1;
  last.ops.forEach((_, at) => {
    const now = is.get(at);
    if (now !== undefined) behind = now;
    else gone.set(behind, [...(gone.get(behind) ?? []), at]);
  });
  const order: { readonly from: 'last' | 'next'; readonly at: number }[] = [];
  for (let now = -1; now < next.ops.length; now++) {
    if (now >= 0) order.push({ from: 'next', at: now });
    for (const at of gone.get(now) ?? []) order.push({ from: 'last', at });
  }
  const place = new Map(order.map(({ from, at }, i) => [`${from} ${at}`, i]));
  const placeOf = (from: 'last' | 'next', at: number): number =>
    place.get(from === 'last' && is.has(at) ? `next ${is.get(at)!}` : `${from} ${at}`)!;
  return order.map(({ from, at }): Entry => {
    const op = (from === 'next' ? next : last).ops[at]!;
    const moved = ({ name, from: made }: Mention): Mention => ({
      name,
      from: made === undefined ? undefined : placeOf(from, made),
    });
    const then = from === 'next' ? was.get(at) : undefined;
    const before = then === undefined ? undefined : last.ops[then]!;
    const isChanged = before !== undefined && before.id === op.id && before.text !== op.text;
    return {
      ...op,
      sign: from === 'last' ? '-' : before === undefined ? '+' : isChanged ? '~' : '',
      ...(isChanged ? { before: before.text } : {}),
      mentions: op.mentions.map(moved),
      reads: op.reads.map(moved),
    };
  });
}
