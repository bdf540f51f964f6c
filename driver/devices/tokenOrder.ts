/** The order in which a call has the tokens of a message. */
import type { StepMessage } from '../../engine/device.js';
import { type ListedBranch, NO_BRANCHES } from './branches.js';

/** Tokens, those among them that the device keeps, and in which rows. */
export function fed(tokens: Int32Array) {
  return {
    tokens: tokens.map((token) => Math.max(0, token)),
    isFed: tokens.map((token) => (token < 0 ? 1 : 0)),
    feed: tokens.map((token) => (token < 0 ? -1 - token : 0)),
  };
}

/** Parts in this order, each with its branches behind it: kernels find what neighbours have in common. */
export function runOrder(
  parts: number,
  order: Int32Array | undefined,
  branches: readonly ListedBranch[],
): ArrayLike<number> | undefined {
  if (branches.length === 0) return order;
  const runs = Array.from({ length: parts }, (_, part) => [part]);
  branches.forEach(({ part }, b) => runs[part]!.push(parts + b));
  return order === undefined ? runs.flat() : [...order].flatMap((part) => runs[part]!);
}

/** New tokens and rows of a call. `moved`: where each token of the message went; absent: none did. */
export interface Ordered {
  readonly tokens: Int32Array;
  readonly row: Int32Array;
  readonly moved?: Int32Array | undefined;
}

/** The new tokens of a message by runs in this order, where each of them goes, and its rows as places among them. */
export function inOrder(
  { count, tokens, row, branches = NO_BRANCHES }: StepMessage,
  order: ArrayLike<number> | undefined,
): Ordered {
  if (order === undefined) return { tokens, row };
  const counts = [...count, ...branches.count];
  const begins = new Int32Array(counts.length);
  for (let i = 1; i < counts.length; i++) begins[i] = begins[i - 1]! + counts[i - 1]!;
  const [moved, ordered] = [new Int32Array(tokens.length), new Int32Array(tokens.length)];
  let to = 0;
  for (const run of Array.from(order))
    for (let from = begins[run]!, left = counts[run]!; left > 0; left--, from++, to++) {
      moved[from] = to;
      ordered[to] = tokens[from]!;
    }
  return { tokens: ordered, row: row.map((token) => moved[token]!), moved };
}
