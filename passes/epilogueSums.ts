/**
 * Which sums over heads a contraction's epilogue takes itself. Such a sum is one of the contraction's own columns, so
 * what depends on it (a head scaled by its 1/rms, then rotated) may join the same kernel.
 */
import type { Node, NodeOf, Value } from '../ir/graph/graph.js';
import { groupProblem } from '../ir/groupSums.js';
import { OPS } from '../ir/ops/index.js';
import { anchorsOf, type Group, type Home } from './groups.js';

/** A sum, mean or maximum of rows. */
export type SumNode = NodeOf<'sum' | 'mean' | 'reduce_max'>;

/** What fusion knows of values so far. */
export interface Placed {
  readonly defs: ReadonlyMap<Value, Node>;
  /** The value behind reshapes and gathers, and where it is found. */
  viewed(v: Value): Value;
  home(v: Value): Home;
  isGathered(v: Value): boolean;
}

const isSum = (node: Node): node is SumNode => OPS[node.op].fuse === 'sum';
const isRotation = (node: Node): boolean => OPS[node.op].fuse === 'rotation';

export class EpilogueSums {
  private readonly placed: Placed;

  constructor(placed: Placed) {
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
