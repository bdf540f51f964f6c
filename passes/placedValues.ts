/**
 * Where each value is found while groups are made: in a group, in memory, or inline. PlacedValues knows what is behind
 * a value's reshapes and gathers and when it is ready, and sees to it that what others read is stored.
 */
import { CompileError } from '../errors.js';
import {
  definitions,
  type Graph,
  loadTimeValues,
  type Node,
  type NodeOf,
  uses,
  type Value,
} from '../ir/graph/graph.js';
import { type Version, versionsOf } from '../ir/graph/versions.js';
import type { RouteOp, SortOp } from '../ir/ops/experts.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import type { LinkOp, ScanOp } from '../ir/ops/recurrent.js';
import { OPS } from '../ir/ops/index.js';
import type { SampleOp } from '../ir/ops/sampling.js';
import { type Dim, type ExtentName, isSymbol } from '../ir/types.js';

/**
 * A group becomes one kernel: an anchor, and the elementwise ops before and after it.
 * - `gemm`: one or more `linear` nodes that read the same left operand (q, k and v; gate and up), or a `head_linear`.
 * - `attention`, `logprob`: a recognized op. `logprob` holds every score (SCORE_OPS) of the same operands.
 * - `sample`: every op that chooses from the same logits (SAMPLE_OPS).
 * - `route`, `sortByExpert`: every op that chooses experts from the same logits (ROUTE_OPS), or puts pairs of rows and
 *   the same experts in order (SORT_OPS).
 * - `links`: every op that finds tokens before others by the same inputs (LINK_OPS).
 * - `scan`: what is read of states along paths, and the states that are kept (SCAN_OPS).
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
  readonly gemm: 'linear' | 'expert_linear' | 'head_linear';
  readonly attention: 'attention';
  readonly logprob: ScoreOp;
  readonly sample: SampleOp;
  readonly route: RouteOp;
  readonly sortByExpert: SortOp;
  readonly links: LinkOp;
  readonly scan: ScanOp;
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

/** Whether `node` reads rows of a state: at its own place in the order of groups, before a write replaces them. */
export const readsState = (node: Node, versions: ReadonlyMap<Value, Version>): boolean =>
  node.op === 'gather_rows' && versions.has(node.operands.x);

/** Columns of a value seen as [rows, columns]; undefined if it has no symbolic rows. */
export function columnsOf(v: Value): Dim | undefined {
  const [first, ...rest] = v.type.shape;
  if (first === undefined || !isSymbol(first)) return undefined;
  const [columns] = rest;
  if (rest.length === 1 && columns !== undefined && isSymbol(columns)) return columns;
  return rest.reduce<number | undefined>((n, dim) => (n === undefined || isSymbol(dim) ? undefined : n * dim), 1);
}

export class PlacedValues {
  readonly groups: Group[] = [];
  readonly homes = new Map<Value, Home>();
  readonly versions: ReadonlyMap<Value, Version>;
  readonly defs: ReadonlyMap<Value, Node>;
  protected readonly readers: ReadonlyMap<Value, readonly Node[]>;
  protected readonly results: ReadonlySet<Value>;
  private readonly indices = new Map<Group, number>();
  private readonly leaders = new Map<Value, readonly Group[]>();
  /** The group that takes a sum. */
  protected readonly summing = new Map<Node, Group>();
  /** Inline values that a loop of their own also stores. */
  private readonly copies = new Map<Value, Group>();

  constructor(graph: Graph) {
    this.results = new Set(graph.results);
    this.defs = definitions(graph);
    this.readers = uses(graph);
    this.versions = versionsOf(graph);
    for (const v of [...graph.params, ...graph.states, ...loadTimeValues(graph)]) this.homes.set(v, { kind: 'memory' });
  }

  /** The value behind views: reshapes that keep row-major order, widening casts, gathers except those of a state. */
  viewed(v: Value): Value {
    const node = this.defs.get(v);
    if (node === undefined) return v;
    const isGather = node.op === 'gather_rows' && !readsState(node, this.versions);
    return node.op === 'reshape' || isGather || isWidening(node, this.defs) ? this.viewed(node.operands.x) : v;
  }

  isGathered(v: Value): boolean {
    const node = this.defs.get(v);
    if (node !== undefined && (node.op === 'reshape' || isWidening(node, this.defs)))
      return this.isGathered(node.operands.x);
    return node?.op === 'gather_rows' && !readsState(node, this.versions);
  }

  home(v: Value): Home {
    const home = this.homes.get(v);
    if (home === undefined) throw new CompileError(`%${v.name} is used before it is defined`);
    return home;
  }

  protected groupOf(v: Value): Group | undefined {
    const home = this.home(this.viewed(v));
    return home.kind === 'group' ? home.group : undefined;
  }

  protected rows(v: Value): ExtentName {
    const first = v.type.shape[0];
    if (first === undefined || !isSymbol(first))
      throw new CompileError(`%${v.name} has no symbolic rows: [${v.type.shape.join(', ')}]`);
    return first;
  }

  /** `leader`: the value by which `led` finds the group. */
  protected open<K extends GroupKind>(kind: K, rows: ExtentName, columns?: Dim, leader?: Value): GroupOf<K>;
  protected open(kind: GroupKind, rows: ExtentName, columns?: Dim, leader?: Value): Group {
    const group: Group = { kind, rows, columns, anchors: [], members: [], stored: new Set() };
    this.indices.set(group, this.groups.length);
    this.groups.push(group);
    if (leader !== undefined) this.leaders.set(leader, [...(this.leaders.get(leader) ?? []), group]);
    return group;
  }

  /** Groups of a kind whose anchors share `leader`, in order: the rows of products, or what is chosen from. */
  protected led<K extends GroupKind>(kind: K, leader: Value): readonly GroupOf<K>[] {
    const isOfKind = (group: Group): group is GroupOf<K> & Group => group.kind === kind;
    return this.leaders.get(leader)?.filter(isOfKind) ?? [];
  }

  /** The place of a group in the order in which groups run. */
  protected indexOf(group: Group): number {
    return this.indices.get(group) ?? -1;
  }

  /** Makes sure that `v` is in memory once its group has run. */
  store(v: Value): void {
    const base = this.viewed(v);
    const home = this.home(base);
    if (home.kind === 'memory') return;
    if (home.kind === 'inline') this.copy(base);
    else home.group.stored.add(base);
  }

  /** Stores `v`, which may be behind reshapes and gathers, and returns it without the views. */
  protected materialized(v: Value): Value {
    if (this.isGathered(v))
      throw new CompileError(`%${v.name} is a gather that a contraction reads: pruneDeadRows should have moved it`);
    this.store(v);
    return this.viewed(v);
  }

  /** Makes sure that the caller can read `v`. */
  output(v: Value): void {
    if (this.isGathered(v))
      throw new CompileError(
        `%${v.name} is returned, but no kernel writes this gather; return a value computed from it`,
      );
    if (this.home(this.viewed(v)).kind === 'memory')
      throw new CompileError(
        `%${v.name} is returned, but no kernel computes it: it is a parameter, or depends on weights alone`,
      );
    this.store(v);
  }

  /** A loop that stores an inline value. Other readers still recompute it. */
  private copy(v: Value): void {
    if (this.copies.has(v)) return;
    const node = this.defs.get(v);
    const columns = columnsOf(v);
    const isPerHead = v.type.shape.length === 3 && v.type.shape[2] === 1;
    if (node === undefined || OPS[node.op].fuse !== 'elementwise' || !(columns === 1 || isPerHead)) {
      throw new CompileError(
        `%${v.name}${node === undefined ? '' : ` = ${node.op}(…)`} is needed in memory, ` +
          'but no kernel writes it: its readers recompute it',
      );
    }
    const group = this.open('loop', this.rows(v), columns);
    group.members.push(node);
    group.stored.add(v);
    this.copies.set(v, group);
  }

  /** Index of the last group that must run before `v` can be read; −1 if there is none. */
  protected readyAt(v: Value): number {
    return Math.max(this.contentAt(v), ...this.indicesOf(v).map((index) => this.storedAt(index)));
  }

  /** Index of the last group that must run before `v` can be read from memory. */
  private storedAt(v: Value): number {
    const copy = this.copies.get(this.viewed(v));
    return copy === undefined ? this.readyAt(v) : this.indexOf(copy);
  }

  /** The indices by which `v` is gathered. */
  private indicesOf(v: Value): readonly Value[] {
    const node = this.defs.get(v);
    if (node?.op === 'reshape') return this.indicesOf(node.operands.x);
    if (node?.op !== 'gather_rows' || readsState(node, this.versions)) return [];
    return [node.operands.index, ...this.indicesOf(node.operands.x)];
  }

  private contentAt(v: Value): number {
    const base = this.viewed(v);
    const home = this.home(base);
    if (home.kind === 'group') return this.indexOf(home.group);
    const copy = this.isGathered(v) ? this.copies.get(base) : undefined;
    if (copy !== undefined) return this.indexOf(copy);
    const node = this.defs.get(base);
    if (home.kind === 'memory' || node === undefined) return -1;
    const summing = this.summing.get(node);
    if (summing !== undefined) return this.indexOf(summing);
    return Math.max(-1, ...node.inputs.map((operand) => this.readyAt(operand)));
  }
}

// Values of 16 bits that readers widen.

/**
 * Whether `node` widens a value that was rounded to 16 bits, or the rows of a table that pairs' experts have. Readers
 * widen what they load, so 16 bits are stored, and nothing of such a table. Values of other origin (other tables) are
 * no part of it: their own readers widen them.
 */
export function isWidening(node: Node, defs: ReadonlyMap<Value, Node>): node is NodeOf<'cast'> {
  if (node.op !== 'cast' || node.result.type.dtype !== 'f32') return false;
  const { x } = node.operands;
  if (x.type.dtype !== 'bf16' && x.type.dtype !== 'f16') return false;
  const own = defs.get(x);
  if (own?.op === 'gather_rows') return defs.get(own.operands.index)?.op === 'expert_owners';
  return own?.op === 'cast';
}

// Values that are no data of their own: reshapes of stored values, what widens them, and gathers of their rows.

/** A stored value as it is read: `via` lists the rows that a gather reads of it. */
export interface View {
  readonly base: Value;
  readonly via: Value | undefined;
}

/**
 * The stored value behind reshapes, widening casts and at most one gather of rows. Rows that are read of a state are
 * stored.
 */
export function viewOf(v: Value, defs: ReadonlyMap<Value, Node>, { versions }: Pick<PlacedValues, 'versions'>): View {
  const node = defs.get(v);
  if (node !== undefined && (node.op === 'reshape' || isWidening(node, defs)))
    return viewOf(node.operands.x, defs, { versions });
  if (node?.op === 'gather_rows' && !readsState(node, versions)) {
    const inner = viewOf(node.operands.x, defs, { versions });
    if (inner.via !== undefined) throw new CompileError(`%${v.name}: a gather of a gather is not supported`);
    return { base: inner.base, via: node.operands.index };
  }
  return { base: v, via: undefined };
}
