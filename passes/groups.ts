/** What fuseGroups decides: which nodes share a kernel, and where each value is found. */
import type { Node, NodeOf, Value } from '../ir/graph/graph.js';
import type { RouteOp, SortOp } from '../ir/ops/experts.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import type { SampleOp } from '../ir/ops/sampling.js';
import type { Dim, ExtentName } from '../ir/types.js';

/**
 * A group becomes one kernel: an anchor, and the elementwise ops before and after it.
 * - `gemm`: one or more `linear` nodes that read the same left operand (q, k and v; gate and up).
 * - `attention`, `logprob`: a recognized op. `logprob` holds every score (SCORE_OPS) of the same operands.
 * - `sample`: every op that chooses from the same logits (SAMPLE_OPS).
 * - `route`, `sortByExpert`: every op that chooses experts from the same logits (ROUTE_OPS), or puts pairs of rows and
 *   the same experts in order (SORT_OPS).
 * - `loop`: no anchor; elementwise ops, gathers and row reductions over one domain.
 * - `write`: `write_rows` of one or more states through the same slots, whose rows are in memory or cheap to compute.
 *   They have a kernel of their own, because the rows may be made of rows that are overwritten.
 */
export interface GroupOf<K extends GroupKind> {
  readonly kind: K;
  readonly rows: ExtentName;
  /** Columns of the domain of a loop or a write. For other kinds the anchor determines them. */
  readonly columns: Dim | undefined;
  readonly anchors: NodeOf<AnchorOps[K]>[];
  /** Elementwise nodes and reductions that the group computes, in order. */
  readonly members: Node[];
  /** Values that other groups, or the caller, read from memory. */
  readonly stored: Set<Value>;
}
export type Group = { readonly [K in GroupKind]: GroupOf<K> }[GroupKind];

/** The ops of each kind's anchors. */
interface AnchorOps {
  readonly gemm: 'linear' | 'expert_linear';
  readonly attention: 'attention';
  readonly logprob: ScoreOp;
  readonly sample: SampleOp;
  readonly route: RouteOp;
  readonly sortByExpert: SortOp;
  readonly loop: never;
  readonly write: 'write_rows';
}
export type GroupKind = keyof AnchorOps;

/** The anchors, whatever the kind. */
export const anchorsOf = ({ anchors }: Group): readonly Node[] => anchors;

/** Nodes whose ops make an anchor of this kind. */
export type AnchorOf<K extends GroupKind> = NodeOf<AnchorOps[K]>;

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
