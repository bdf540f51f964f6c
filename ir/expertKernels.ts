/** Kernels that send rows to experts. */
import type { KernelBase } from './kernelBase.js';

/** Rows in order of experts: those of expert e are starts[e] … starts[e + 1] − 1. `starts` is i32[count + 1]. */
export interface ExpertRows {
  readonly count: number;
  readonly starts: string;
}

/**
 * Chooses experts for each row: the `chosen` largest of its logits, in descending order, of equal ones the first. The
 * weight of a chosen expert is its part of softmax(logits), divided by the sum over those that are chosen if
 * `normalized`. Whatever the logits are, a row's experts are different numbers below `count`.
 */
export interface RouteKernel extends KernelBase {
  readonly anchor: 'route';
  readonly count: number;
  readonly chosen: number;
  readonly normalized: boolean;
  /** f32[rows, count] */
  readonly logits: string;
  /** i32[rows, chosen] */
  readonly experts: string;
  /** f32[rows] for each chosen expert of a row. */
  readonly weights: readonly string[];
}

/**
 * Puts pairs of a row and a chosen expert in order of experts, those of one expert in order of rows (ir/experts.ts).
 */
export interface SortByExpertKernel extends KernelBase {
  readonly anchor: 'sortByExpert';
  readonly count: number;
  readonly chosen: number;
  /** i32[rows, chosen], as a route kernel leaves them. */
  readonly experts: string;
  /** i32[rows × chosen]: the row of each pair. */
  readonly order: string;
  /** i32[rows] for each chosen expert of a row: where the pair is. */
  readonly places: readonly string[];
  /** i32[count + 1]: where the pairs of each expert begin, and their number. */
  readonly starts: string;
}
