/**
 * Where each value is found while groups are made: in a group, in memory, or inline. PlacedValues knows what is behind
 * a value's reshapes and gathers and when it is ready, and sees to it that what others read is stored.
 */
import { definitions, loadTimeValues, uses, type Graph, type Node, type Value } from '../ir/graph/graph.js';
import { versionsOf, type Version } from '../ir/graph/versions.js';
import { OPS } from '../ir/ops/index.js';
import { isSymbol, type Dim, type ExtentName } from '../ir/types.js';
import { CompileError } from './compileError.js';
import type { Placed } from './epilogueSums.js';
import type { Group, GroupKind, GroupOf, Home } from './groups.js';
import { isWidening } from './widening.js';

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

export class PlacedValues implements Placed {
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
    if (node?.op === 'reshape') return this.isGathered(node.operands.x);
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
    return Math.max(this.contentAt(v), ...this.indicesOf(v).map((index) => this.readyAt(index)));
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
