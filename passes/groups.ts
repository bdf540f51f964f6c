/** What fuseGroups decides: which nodes share a kernel, and where each value is found. */
import type { Node, Value } from '../ir/graph/graph.js';
import type { Dim, ExtentName } from '../ir/types.js';

/**
 * A group becomes one kernel: an anchor, and the elementwise ops before and after it.
 * - `gemm`: one or more `linear` nodes that read the same left operand (q, k and v; gate and up).
 * - `attention`, `logprob`: a recognized op. `logprob` holds every score (SCORE_OPS) of the same operands.
 * - `sample`: every op that chooses from the same logits (SAMPLE_OPS).
 * - `route`, `sortByExpert`: every op that chooses experts from the same logits (ROUTE_OPS), or puts pairs of rows and
 *   the same experts in order (GROUP_OPS).
 * - `loop`: no anchor; elementwise ops, gathers and row reductions over one domain.
 * - `write`: `write_rows` of one or more states through the same slots, whose rows are in memory or cheap to compute.
 *   They have a kernel of their own, because the rows may be made of rows that are overwritten.
 */
export interface Group {
  readonly kind: 'gemm' | 'attention' | 'logprob' | 'sample' | 'route' | 'sortByExpert' | 'loop' | 'write';
  readonly rows: ExtentName;
  /** Columns of the domain of a loop or a write. For other kinds the anchor determines them. */
  readonly columns: Dim | undefined;
  readonly anchors: Node[];
  /** Elementwise nodes and reductions that the group computes, in order. */
  readonly members: Node[];
  /** Values that other groups, or the caller, read from memory. */
  readonly stored: Set<Value>;
}

/**
 * Where a value is found.
 * - `group`: computed in that group, and stored only if listed in `stored`
 * - `inline`: cheap with one element for each row, or a literal; recomputed by every reader
 * - `memory`: a parameter, state or weight
 */
export type Home =
  | { readonly kind: 'group'; readonly group: Group }
  | { readonly kind: 'inline' }
  | { readonly kind: 'memory' };
