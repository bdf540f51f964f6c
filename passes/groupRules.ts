/** Which groups a node may join while ops are given to kernels. */
import { isOp, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import { groupProblem } from '../ir/groupSums.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { OPS } from '../ir/ops/index.js';
import type { Dim, ExtentName } from '../ir/types.js';
import { halfOf } from './placeStages.js';
import { anchorsOf, columnsOf, type Group, type GroupOf, PlacedValues } from './placedValues.js';

/** Whether loop `group`, with `node` added, still rotates heads of at most one width. */
export function rotatesAlike(group: Group, node: Node): boolean {
  const width = (n: Node): unknown => n.result.type.shape.at(-1);
  const rotations = [...group.members, node].filter((n) => OPS[n.op].fuse === 'rotation');
  return group.kind !== 'loop' || new Set(rotations.map(width)).size <= 1;
}

/** Whether one pass over the columns computes both scores: they have the same logits, and the same target or draw. */
export function sharesPass(a: NodeOf<ScoreOp>, b: NodeOf<ScoreOp>): boolean {
  const [one, other] = [a.operands, b.operands];
  const isSame = one.x === other.x && one.w === other.w && one.scale === other.scale && one.bias === other.bias;
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
  protected writeBeside({
    operands: { x: old, rows, slot },
    path,
  }: NodeOf<'write_rows'>): GroupOf<'write'> | undefined {
    const state = this.versions.get(old)?.state;
    const isAlike = (group: GroupOf<'write'>): boolean =>
      group.columns === columnsOf(rows) &&
      this.sharesStage(group, path) &&
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

  /**
   * Whether `group` may use states of the half layer that `path` belongs to: a kernel with states of two would keep a
   * pipeline from being cut between them.
   */
  protected sharesStage(group: Group, path: string): boolean {
    return [...anchorsOf(group), ...group.members].every(
      (node) => !node.inputs.some((v) => this.versions.has(v)) || halfOf(node.path) === halfOf(path),
    );
  }

  /**
   * Whether all of `group` belongs to the half layer of `path`. Rows of states are ready before anything runs, but a
   * kernel of another layer that reads them may be on another device of a pipeline, and would store them for this one.
   */
  protected isOfStage(group: Group, path: string): boolean {
    return [...anchorsOf(group), ...group.members].every((node) => halfOf(node.path) === halfOf(path));
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

// Which sums over heads a contraction's epilogue takes itself. Such a sum is one of the contraction's own columns, so
// what depends on it (a head scaled by its 1/rms, then rotated) may join the same kernel.

/** A sum, mean or maximum of rows. */
export type SumNode = NodeOf<'sum' | 'mean' | 'reduce_max'>;

/** What fusion knows of values so far. */
type FusionFacts = Pick<PlacedValues, 'defs' | 'viewed' | 'home' | 'isGathered'>;

const isSum = (node: Node): node is SumNode => OPS[node.op].fuse === 'sum';
const isRotation = (node: Node): boolean => OPS[node.op].fuse === 'rotation';

export class EpilogueSums {
  private readonly placed: FusionFacts;

  constructor(placed: FusionFacts) {
    this.placed = placed;
  }

  /** Whether `sum`, a node of `group`, adds up heads that the group's epilogue has in one place. */
  has(sum: SumNode, group: Group): boolean {
    const read = sum.operands.x;
    const [, heads, width] = read.type.shape;
    if (group.kind !== 'gemm' || !group.members.includes(sum) || read.type.shape.length !== 3) return false;
    if (typeof heads !== 'number' || typeof width !== 'number') return false;
    if (groupProblem(width, heads * width) !== undefined) return false;
    const parts = [...this.partsOf(read, group)];
    return (
      !parts.some((node) => isRotation(node) || (isSum(node) && group.members.includes(node))) &&
      parts.filter((node) => anchorsOf(group).includes(node)).length === 1
    );
  }

  /**
   * Whether `node` may be computed behind the sums that it depends on: its epilogue then belongs to one product, and
   * has heads of one width.
   */
  allow(node: Node, group: Group): boolean {
    const parts = new Set([node]);
    for (const v of node.inputs) this.partsOf(v, group, parts);
    const own = [...parts];
    const sums = own.filter(isSum).filter((sum) => this.has(sum, group));
    if (sums.length === 0) return true;
    const widths = [
      ...sums.map(({ operands }) => operands.x.type.shape.at(-1)),
      ...own.filter(isRotation).map(({ result }) => result.type.shape.at(-1)),
    ];
    return new Set(widths).size === 1 && own.filter((part) => anchorsOf(group).includes(part)).length === 1;
  }

  /** Whether the epilogue of `group` can compute `v` from such sums and from what `isReady` before it starts. */
  computes(v: Value, group: Group, isReady: (operand: Value) => boolean): boolean {
    const base = this.placed.viewed(v);
    const node = this.placed.defs.get(base);
    if (this.placed.isGathered(v) || node === undefined || this.placed.home(base).kind !== 'inline') return false;
    if (isSum(node)) return this.has(node, group);
    return node.inputs.every((operand) => isReady(operand) || this.computes(operand, group, isReady));
  }

  /** The sums that every reader takes in its own epilogue, so that they are not stored. */
  unread(groups: readonly Group[]): ReadonlySet<Node> {
    const sums = new Set(groups.flatMap((group) => group.members.filter(isSum).filter((sum) => this.has(sum, group))));
    for (const group of groups)
      for (const { inputs } of [...group.anchors, ...group.members])
        for (const v of inputs)
          for (const sum of this.sumsBehind(v))
            if (this.placed.isGathered(v) || !this.has(sum, group)) sums.delete(sum);
    return sums;
  }

  /** Sums that readers of `v` compute it from. */
  private sumsBehind(v: Value): readonly SumNode[] {
    const base = this.placed.viewed(v);
    const node = this.placed.defs.get(base);
    if (node === undefined || this.placed.home(base).kind !== 'inline') return [];
    return isSum(node) ? [node] : node.inputs.flatMap((operand) => this.sumsBehind(operand));
  }

  /** What the group computes `v` from: its products, its members, and values that readers recompute. */
  private partsOf(v: Value, group: Group, found = new Set<Node>()): ReadonlySet<Node> {
    const base = this.placed.viewed(v);
    const node = this.placed.defs.get(base);
    if (node === undefined || found.has(node) || this.placed.isGathered(v)) return found;
    const home = this.placed.home(base);
    if (home.kind === 'memory' || (home.kind === 'group' && home.group !== group)) return found;
    found.add(node);
    if (!anchorsOf(group).includes(node)) for (const operand of node.inputs) this.partsOf(operand, group, found);
    return found;
  }
}
