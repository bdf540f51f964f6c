/** What walks over a question set would compute, without a model: exact for one device, and for equally fast ones. */
import type { OrderedPaths } from './pathOrder.js';
import { cutSubtrees } from './subtrees.js';
import { Walk, type WalkedBatch, type WalkLimits } from './walk.js';

export interface WalkPlan {
  /** Tokens of each device, the shared beginnings that it computes for itself included. */
  readonly tokens: readonly number[];
  readonly calls: number;
}

/** Each subtree goes to the device that has computed the least so far. */
export function planWalks(paths: OrderedPaths, limits: WalkLimits, lanes = 1): WalkPlan {
  const walks = Array.from({ length: lanes }, () => new Walk(limits));
  const tokens = walks.map(() => 0);
  let calls = 0;
  const count = (lane: number, walked: Iterable<WalkedBatch>): void => {
    for (const { batch } of walked) {
      tokens[lane]! += batch.tokens.length;
      calls++;
    }
  };
  const taken = walks.map(() => 0);
  for (const subtree of cutSubtrees(paths, lanes)) {
    const lane = taken.indexOf(Math.min(...taken));
    taken[lane]! += subtree.tokens;
    for (const path of subtree.paths) count(lane, walks[lane]!.take(path));
  }
  walks.forEach((walk, lane) => {
    const last = walk.end();
    if (last !== undefined) count(lane, [last]);
  });
  return { tokens, calls };
}
