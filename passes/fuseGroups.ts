/**
 * Decides which ops share a kernel: places every node of a graph into a group, by its kind. groupRules.ts says which
 * groups a node may join.
 */
import { loadTimeValues, type Graph, type Node, type Value } from '../ir/graph/graph.js';
import type { Version } from '../ir/graph/versions.js';
import { isScoreOp } from '../ir/ops/fused.js';
import { isGroupOp, isRouteOp } from '../ir/ops/experts.js';
import { isSampleOp } from '../ir/ops/sampling.js';
import { OPS } from '../ir/ops/index.js';
import { ROW_SUM_BLOCK } from '../ir/kernel.js';
import { isCodeFormat } from '../ir/storage.js';
import { isFloat, printType, type Dim } from '../ir/types.js';
import { CompileError } from './compileError.js';
import type { EpilogueSums } from './epilogueSums.js';
import { GroupRules, isApart, rotatesAlike, sharesPass } from './groupRules.js';
import type { Group, Home } from './groups.js';
import { columnsOf, readsState } from './placedValues.js';
import { isWidening } from './widening.js';

/** A graph whose nodes have kernels, and where each value is found. */
export interface FusedGraph {
  readonly graph: Graph;
  readonly groups: readonly Group[];
  readonly homes: ReadonlyMap<Value, Home>;
  readonly versions: ReadonlyMap<Value, Version>;
  readonly sums: EpilogueSums;
  /** Sums over heads that stay in their kernel's epilogue. */
  readonly unread: ReadonlySet<Node>;
}

/**
 * Assigns every node to a group. An elementwise node joins the latest group among its operands if everything else that
 * it reads is ready before that group starts; otherwise it opens a loop. A reduction becomes partial row sums, written
 * by the group that computes the reduced value. What follows from the sum (1/rms) is recomputed by readers, once for
 * each row.
 */
export function fuseGroups(graph: Graph): FusedGraph {
  const fuser = new Fuser(graph);
  const loaded = loadTimeValues(graph);
  for (const node of graph.nodes) if (!loaded.has(node.result)) fuser.place(node);
  for (const result of graph.results) fuser.output(result);
  const { groups, homes, versions, sums } = fuser;
  return { graph, groups, homes, versions, sums, unread: sums.unread(groups) };
}

class Fuser extends GroupRules {
  place(node: Node): void {
    const kind = isWidening(node, this.defs) ? 'view' : OPS[node.op].fuse;
    switch (kind) {
      case 'contraction':
        return this.placeContraction(node);
      case 'opaque':
        return this.placeOpaque(node);
      case 'sum':
        return this.placeSum(node);
      case 'view':
        return this.placeView(node);
      case 'gather':
        return readsState(node, this.versions) ? this.join(node, columnsOf(node.result)) : this.placeView(node);
      case 'write':
        return this.placeWrite(node);
      case 'index':
        this.homes.set(node.result, { kind: 'inline' });
        return;
      case 'literal':
        this.homes.set(node.result, { kind: 'memory' });
        return;
      case 'elementwise':
      case 'rotation':
        return this.placeElementwise(node);
      case 'reduction':
        throw new CompileError(
          `no kernel for '${node.op}' (%${node.result.name}): only sums, means and maxima of rows can be fused; ` +
            'see docs/addAnOp.md',
        );
      case 'movement':
        throw new CompileError(
          `no kernel for '${node.op}' (%${node.result.name}) outside the patterns that passes recognize`,
        );
      default:
        return kind satisfies never;
    }
  }

  private placeContraction(node: Node): void {
    if (node.op !== 'linear' && node.op !== 'expert_linear')
      throw new CompileError(
        `no kernel for '${node.op}' (%${node.result.name}) outside attention: recognizeAttention did not match it`,
      );
    const left = this.materialized(node.operands[0]!);
    const { type } = node.operands[0]!;
    const [rows, k] = type.shape;
    if (
      type.shape.length !== 2 ||
      k !== columnsOf(left) ||
      rows !== left.type.shape[0] ||
      !(isFloat(type.dtype) || isCodeFormat(type.dtype))
    ) {
      throw new CompileError(
        `%${node.result.name}: no kernel for linear of ${printType(type)}; ` +
          'the left operand must be f32, bf16, f16, e4m3 or i8[rows, K]',
      );
    }
    const [, , experts] = node.operands;
    if (experts !== undefined) this.store(experts);
    const sibling = this.led(left).find(
      (g) =>
        g.kind === 'gemm' &&
        g.anchors[0]!.operands[2] === experts &&
        g.anchors[0]!.attributes['rounding'] === node.attributes['rounding'] &&
        g.rows === this.rows(node.result),
    );
    const group = sibling ?? this.open('gemm', this.rows(node.result), undefined, left);
    group.anchors.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }

  private placeOpaque(node: Node): void {
    if (isSampleOp(node.op)) return this.placeBeside('sample', node);
    if (isRouteOp(node.op)) return this.placeBeside('route', node);
    if (isGroupOp(node.op)) return this.placeBeside('sortByExpert', node);
    const isScore = isScoreOp(node.op);
    const shared = isScore
      ? this.groups.find((g) => g.kind === 'logprob' && g.anchors.every((anchor) => sharesPass(anchor, node)))
      : undefined;
    node.operands.forEach((v, i) => {
      if (this.versions.has(v) || (isScore && i === 2 && this.groupOf(v) === undefined)) return;
      this.materialized(v);
    });
    const rows = this.rows(isScore ? node.operands[0]! : node.result);
    const group = shared ?? this.open(isScore ? 'logprob' : 'attention', rows, undefined);
    group.anchors.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }

  /** Ops of one kind that read the same value share a kernel. */
  private placeBeside(kind: 'sample' | 'route' | 'sortByExpert', node: Node): void {
    const [z] = node.operands;
    const shared = this.led(z!).find((g) => g.kind === kind);
    for (const v of node.operands)
      if (this.groupOf(v) === undefined || this.groupOf(v) !== shared) this.materialized(v);
    const group = shared ?? this.open(kind, this.rows(z!), undefined, z);
    group.anchors.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }

  /**
   * A sum over rows [rows, K], or over segments of rows [rows, n, K / n], which are heads. The group that computes the
   * operand writes partial sums if a segment is a whole number of them; otherwise readers add up the operand itself.
   */
  private placeSum(node: Node): void {
    const read = node.operands[0]!;
    const operand = this.viewed(read);
    const { shape } = read.type;
    const width = shape.at(-1);
    const columns = columnsOf(read);
    if (
      (shape.length !== 2 && shape.length !== 3) ||
      typeof width !== 'number' ||
      typeof columns !== 'number' ||
      // Rows that are gathered may be those of a table.
      (!this.isGathered(read) && columns !== columnsOf(operand))
    ) {
      throw new CompileError(
        `%${node.result.name}: no kernel for '${node.op}' over the last axis of [${shape.join(', ')}]; ` +
          'whole rows of a value [rows, K], or segments of them as [rows, n, K / n], can be summed',
      );
    }
    if (node.op === 'reduce_max' && shape.length === 2 && width % ROW_SUM_BLOCK !== 0)
      throw new CompileError(
        `no kernel for 'reduce_max' (%${node.result.name}): ${width} columns are no multiple of ${ROW_SUM_BLOCK}`,
      );
    this.homes.set(node.result, { kind: 'inline' });
    if (shape.length === 3 && width % ROW_SUM_BLOCK !== 0) return this.store(operand);
    const home = this.home(operand);
    const isOwn =
      home.kind === 'group' && (home.group.kind === 'loop' || (home.group.kind === 'gemm' && !isApart(node)));
    const group = isOwn && !this.isGathered(read) ? home.group : this.open('loop', this.rows(read), columns);
    if (home.kind === 'group' && home.group !== group) home.group.stored.add(operand);
    group.members.push(node);
    this.summing.set(node, group);
  }

  private placeView(node: Node): void {
    const base = this.home(this.viewed(node.result));
    const isGather = OPS[node.op].fuse === 'gather';
    this.homes.set(node.result, base.kind === 'group' || !isGather ? base : { kind: 'memory' });
    if (!isGather) return;
    this.store(this.viewed(node.operands[0]!));
    this.store(node.operands[1]!);
  }

  private placeWrite(node: Node): void {
    const [old, rows, slot] = node.operands as [Value, Value, Value];
    if (!this.versions.has(old))
      throw new CompileError(`no kernel for '${node.op}' (%${node.result.name}): %${old.name} is no state`);
    const group = this.writeBeside(node) ?? this.open('write', this.rows(slot), columnsOf(rows));
    for (const v of [rows, slot]) {
      const home = this.home(this.viewed(v));
      if (home.kind === 'group') home.group.stored.add(this.viewed(v));
    }
    group.anchors.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }

  private placeElementwise(node: Node): void {
    const columns = columnsOf(node.result);
    const operands = node.operands.map((v) => this.viewed(v));
    const isPerRow = columns === undefined || columns === 1;
    // One element for each segment, computed only from sums over segments and literals: 1/rms of a head.
    const isPerSegment = node.result.type.shape.at(-1) === 1 && operands.every((v) => this.home(v).kind === 'inline');
    if (isPerSegment || (isPerRow && operands.every((v) => this.home(v).kind !== 'group'))) {
      this.homes.set(node.result, { kind: 'inline' });
      return;
    }
    this.join(node, columns);
  }

  /** Computes `node` in the group that its operands lead to, or in a loop of its own. */
  private join(node: Node, columns: Dim | undefined): void {
    if (columns === undefined)
      throw new CompileError(
        `%${node.result.name}: no kernel computes ${printType(node.result.type)}; ` +
          'the first extent must be a named one, the others fixed or one named',
      );
    const rows = this.rows(node.result);
    const inside = node.operands
      .map((v) => this.home(this.viewed(v)))
      .flatMap((h) => (h.kind === 'group' ? [h.group] : []));
    const latest = inside.reduce<Group | undefined>(
      (a, b) => (a === undefined || this.indexOf(b) > this.indexOf(a) ? b : a),
      undefined,
    );
    const isLoop = (g: Group): boolean => g.kind === 'loop' && g.columns === columns && g.rows === rows;
    // What is gathered from rows of another extent can only be read by a loop: one is enough.
    const candidates =
      latest === undefined
        ? this.groups.filter(isLoop)
        : latest.rows === rows
          ? [latest]
          : this.groups.slice(this.indexOf(latest)).filter(isLoop);
    const isOpen = (g: Group): boolean => g.kind !== 'gemm' || !this.isApart(node);
    const group =
      candidates.find(
        (g) =>
          this.isRounding(g, node) ||
          (isOpen(g) &&
            this.mayJoin(g, rows, columns, node.operands) &&
            rotatesAlike(g, node) &&
            this.sums.allow(node, g)),
      ) ?? this.open('loop', rows, columns);
    for (const v of node.operands) {
      const [base, home] = [this.viewed(v), this.home(this.viewed(v))];
      if (home.kind === 'group' && (home.group !== group || this.isGathered(v))) home.group.stored.add(base);
    }
    group.members.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }
}
