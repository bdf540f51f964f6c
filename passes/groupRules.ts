/** Which groups a node may join while ops are given to kernels. */
import { isOp, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { OPS } from '../ir/ops/index.js';
import type { Dim, ExtentName } from '../ir/types.js';
import { EpilogueSums } from './epilogueSums.js';
import type { Group, GroupOf } from './groups.js';
import { columnsOf, PlacedValues } from './placedValues.js';

/** Whether loop `group`, with `node` added, still rotates heads of at most one width. */
export function rotatesAlike(group: Group, node: Node): boolean {
  const width = (n: Node): unknown => n.result.type.shape.at(-1);
  const rotations = [...group.members, node].filter((n) => OPS[n.op].fuse === 'rotation');
  return group.kind !== 'loop' || new Set(rotations.map(width)).size <= 1;
}

/** Whether one pass over the columns computes both scores: they have the same logits, and the same target or draw. */
export function sharesPass(a: NodeOf<ScoreOp>, b: NodeOf<ScoreOp>): boolean {
  const [one, other] = [a.operands, b.operands];
  const isSame = one.x === other.x && one.w === other.w && one.scale === other.scale;
  if (!isSame || a.attributes.cap !== b.attributes.cap) return false;
  return a.inputs.length !== b.inputs.length || a.inputs.every((v, i) => v === b.inputs[i]);
}

/** Whether `node` is a sum, or a maximum, that the kernel of its operand does not take. */
export const isApart = (node: Node): boolean =>
  node.op === 'reduce_max' || (isOp(node, 'sum', 'mean') && node.attributes.apart === true);

/** What is known of placed values, and the rules by which others join their groups. */
export class GroupRules extends PlacedValues {
  readonly sums = new EpilogueSums(this);

  /**
   * A group that writes rows of another state through the same slots, where this write may run as well: its rows are
   * ready by then, and nobody reads the old version from there on.
   */
  protected writeBeside({ operands: { x: old, rows, slot } }: NodeOf<'write_rows'>): GroupOf<'write'> | undefined {
    const state = this.versions.get(old)?.state;
    const isAlike = (group: GroupOf<'write'>): boolean =>
      group.columns === columnsOf(rows) &&
      group.anchors.every(({ operands: own }) => own.slot === slot && this.versions.get(own.x)?.state !== state);
    const touches = ({ anchors, members }: Group): boolean =>
      [...anchors, ...members].some(({ inputs }) => inputs.some((v) => this.versions.get(v)?.state === state));
    const ready = Math.max(this.readyAt(rows), this.readyAt(slot));
    let found: GroupOf<'write'> | undefined;
    for (const group of this.groups.slice(ready + 1).reverse()) {
      if (touches(group)) break;
      if (group.kind === 'write' && isAlike(group)) found = group;
    }
    return found;
  }

  /** Whether only sums read `node` that a loop takes, which computes it as well. */
  protected isApart({ result }: Node): boolean {
    const readers = this.readers.get(result) ?? [];
    const leads = (node: Node): boolean => isApart(node) || (OPS[node.op].fuse === 'elementwise' && this.isApart(node));
    return readers.length > 0 && readers.every(leads) && !this.results.has(result);
  }

  /** Whether everything in `operands` is ready before `group` starts, or is computed in it. */
  protected mayJoin(group: Group, rows: ExtentName, columns: Dim | undefined, operands: readonly Value[]): boolean {
    if (group.rows !== rows || (group.kind !== 'gemm' && group.kind !== 'loop')) return false;
    if (group.kind === 'loop' && group.columns !== columns) return false;
    if (group.kind === 'gemm' && operands.some((v) => this.groupOf(v) === group && columnsOf(v) !== columns))
      return false;
    const at = this.indexOf(group);
    const isReady = (v: Value): boolean =>
      this.readyAt(v) < at ||
      (this.home(this.viewed(v)).kind === 'group' && this.groupOf(v) === group && !this.isGathered(v));
    return operands.every((v) => isReady(v) || this.sums.computes(v, group, isReady));
  }

  /**
   * Whether `node` only rounds the result of attention `group` and nothing else reads that result. The kernel then
   * stores it rounded.
   */
  protected isRounding(group: Group, node: Node): boolean {
    if (
      group.kind !== 'attention' ||
      node.op !== 'cast' ||
      (node.result.type.dtype !== 'bf16' && node.result.type.dtype !== 'f16')
    )
      return false;
    const isOnlyReader = (v: Value): boolean => {
      const [reader, ...others] = this.readers.get(v) ?? [];
      if (reader === undefined || others.length > 0 || this.results.has(v)) return false;
      return reader === node || (reader.op === 'reshape' && isOnlyReader(reader.result));
    };
    const [attention] = group.anchors;
    return attention !== undefined && isOnlyReader(attention.result);
  }
}
