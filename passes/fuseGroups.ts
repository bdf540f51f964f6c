/**
 * Decides which ops share a kernel: places every node of a graph into a group, by its kind. groupRules.ts says which
 * groups a node may join.
 */
import { CompileError } from '../errors.js';
import { type Graph, loadTimeValues, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { Version } from '../ir/graph/versions.js';
import { ROW_SUM_BLOCK } from '../ir/kernel.js';
import { OPS } from '../ir/ops/index.js';
import { operandEntries } from '../ir/ops/opDef.js';
import { isCodeFormat } from '../ir/storage.js';
import { type Dim, isFloat, printType } from '../ir/types.js';
import { type EpilogueSums, GroupRules, isApart, rotatesAlike, sharesPass, type SumNode } from './groupRules.js';
import {
  type AnchorOf,
  columnsOf,
  type Group,
  type GroupKind,
  type GroupOf,
  type Home,
  isWidening,
  readsState,
} from './placedValues.js';

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

/** The experts whose matrices a product takes. */
const expertsOf = (node: AnchorOf<'gemm'>): Value | undefined =>
  node.op === 'expert_linear' ? node.operands.experts : undefined;

/** Whether the states that `node` keeps are those along which the group's `scan` goes. */
const isOfScan = (anchors: GroupOf<'scan'>['anchors'], node: NodeOf<'scan_state'>): boolean =>
  anchors.length === 1 &&
  anchors.every(({ op, operands, attributes }) => {
    const own = Object.entries(node.operands).filter(([name]) => name !== 'to' && name !== 'also');
    return (
      op === 'scan' &&
      attributes.rule === node.attributes.rule &&
      attributes.epsilon === node.attributes.epsilon &&
      attributes.takesTurns === node.attributes.takesTurns &&
      own.every(([name, v]) => (operands as Readonly<Record<string, unknown>>)[name] === v)
    );
  });

class Fuser extends GroupRules {
  place(node: Node): void {
    if (isWidening(node, this.defs)) return this.placeView(node);
    switch (node.op) {
      case 'linear':
      case 'expert_linear':
      case 'head_linear':
        return this.placeContraction(node);
      case 'attention':
        return this.placeAttention(node);
      case 'logprob':
      case 'is_argmax':
      case 'draw':
      case 'draw_logprob':
      case 'head_logits':
        return this.placeScore(node);
      case 'sample':
      case 'sample_logprob':
      case 'top_tokens':
      case 'top_logprobs':
        return this.placeBeside('sample', node, node.operands.z);
      case 'top_experts':
      case 'expert_weight':
        return this.placeBeside('route', node, node.operands.logits);
      case 'expert_rows':
      case 'expert_owners':
      case 'expert_place':
        return this.placeBeside('sortByExpert', node, node.operands.experts);
      case 'token_before':
        return this.placeBeside('links', node, node.operands.subtreeEnd ?? node.operands.position!);
      case 'subtree_end':
        return this.placeBeside('links', node, node.operands.position);
      case 'scan':
      case 'scan_state':
        return this.placeScan(node);
      case 'sum':
      case 'mean':
      case 'reduce_max':
        return this.placeSum(node);
      case 'reshape':
        return this.placeView(node);
      case 'gather_rows':
        return readsState(node, this.versions) ? this.join(node, columnsOf(node.result)) : this.placeGather(node);
      case 'write_rows':
        return this.placeWrite(node);
      case 'iota':
        this.homes.set(node.result, { kind: 'inline' });
        return;
      case 'vector':
        this.homes.set(node.result, { kind: 'memory' });
        return;
      default:
        return this.placeOther(node);
    }
  }

  /** Elementwise ops and rotations join groups. Other ops have no kernel. */
  private placeOther(node: Node): void {
    const { fuse } = OPS[node.op];
    switch (fuse) {
      case 'elementwise':
      case 'rotation':
        return this.placeElementwise(node);
      case 'contraction':
        throw new CompileError(
          `no kernel for '${node.op}' (%${node.result.name}) outside attention: recognizeAttention did not match it`,
        );
      case 'reduction':
        throw new CompileError(
          `no kernel for '${node.op}' (%${node.result.name}): only sums, means and maxima of rows can be fused; ` +
            'see docs/addAnOp.md',
        );
      default:
        throw new CompileError(
          `no kernel for '${node.op}' (%${node.result.name}) outside the patterns that passes recognize`,
        );
    }
  }

  private placeContraction(node: AnchorOf<'gemm'>): void {
    const left = this.materialized(node.operands.x);
    const { type } = node.operands.x;
    const [rows] = type.shape;
    if (
      type.shape.length !== (node.op === 'head_linear' ? 3 : 2) ||
      columnsOf(node.operands.x) !== columnsOf(left) ||
      rows !== left.type.shape[0] ||
      !(isFloat(type.dtype) || isCodeFormat(type.dtype))
    ) {
      throw new CompileError(
        `%${node.result.name}: no kernel for linear of ${printType(type)}; ` +
          'the left operand must be f32, bf16, f16, e4m3 or i8[rows, K]',
      );
    }
    const experts = expertsOf(node);
    if (experts !== undefined) this.store(experts);
    // What a draft head reads has kernels of its own, and those of the model are as without it.
    const isFeature = ({ path }: Node): boolean => /^features(\.|$)/.test(path);
    const isAlike = (anchor: AnchorOf<'gemm'>): boolean =>
      expertsOf(anchor) === experts &&
      anchor.op !== 'head_linear' &&
      node.op !== 'head_linear' &&
      anchor.attributes.rounding === node.attributes.rounding &&
      isFeature(anchor) === isFeature(node);
    const extent = this.rows(node.result);
    const sibling = this.led('gemm', left).find((g) => g.anchors.slice(0, 1).every(isAlike) && g.rows === extent);
    this.anchor(sibling ?? this.open('gemm', extent, undefined, left), node);
  }

  private placeAttention(node: AnchorOf<'attention'>): void {
    for (const v of node.inputs) if (!this.versions.has(v)) this.materialized(v);
    this.anchor(this.open('attention', this.rows(node.result)), node);
  }

  private placeScan(node: AnchorOf<'scan'>): void {
    for (const v of node.inputs) if (!this.versions.has(v)) this.materialized(v);
    const { k } = node.operands;
    const shared = node.op === 'scan' ? undefined : this.led('scan', k).find(({ anchors }) => isOfScan(anchors, node));
    if (node.op === 'scan_state' && shared === undefined)
      throw new CompileError(`%${node.result.name}: states are kept by the kernel that reads them, and none does`);
    this.anchor(shared ?? this.open('scan', this.rows(k), undefined, k), node);
  }

  private placeScore(node: AnchorOf<'logprob'>): void {
    const shared = this.groups.find(
      (g): g is GroupOf<'logprob'> => g.kind === 'logprob' && g.anchors.every((anchor) => sharesPass(anchor, node)),
    );
    for (const [name, v] of operandEntries<Value>(node.operands))
      if (!this.versions.has(v) && !(name === 'scale' && this.groupOf(v) === undefined)) this.materialized(v);
    this.anchor(shared ?? this.open('logprob', this.rows(node.operands.x)), node);
  }

  /** Ops of one kind that read the same value share a kernel. */
  private placeBeside<K extends 'sample' | 'route' | 'sortByExpert' | 'links'>(
    kind: K,
    node: AnchorOf<K>,
    from: Value,
  ): void {
    const [shared] = this.led(kind, from);
    for (const v of node.inputs) if (this.groupOf(v) === undefined || this.groupOf(v) !== shared) this.materialized(v);
    this.anchor(shared ?? this.open(kind, this.rows(from), undefined, from), node);
  }

  private anchor<K extends GroupKind>(group: GroupOf<K>, node: AnchorOf<K>): void;
  private anchor(group: Group, node: Node): void {
    const anchors: Node[] = group.anchors;
    anchors.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }

  /**
   * A sum over rows [rows, K], or over segments of rows [rows, n, K / n], which are heads. The group that computes the
   * operand writes partial sums if a segment is a whole number of them; otherwise readers add up the operand itself.
   */
  private placeSum(node: SumNode): void {
    const read = node.operands.x;
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

  /** A reshape, or a widening cast. */
  private placeView(node: Node): void {
    this.homes.set(node.result, this.home(this.viewed(node.result)));
  }

  private placeGather({ operands: { x, index }, result }: NodeOf<'gather_rows'>): void {
    const base = this.home(this.viewed(result));
    this.homes.set(result, base.kind === 'group' ? base : { kind: 'memory' });
    // A sum is in memory as its parts, and readers add up those of their own rows.
    if (!this.isSummed(this.viewed(x))) this.store(this.viewed(x));
    this.store(index);
  }

  private isSummed(v: Value): boolean {
    const node = this.defs.get(v);
    return node !== undefined && this.home(v).kind === 'inline' && this.summing.has(node);
  }

  private placeWrite(node: AnchorOf<'write'>): void {
    const { x: old, rows, slot } = node.operands;
    if (!this.versions.has(old))
      throw new CompileError(`no kernel for '${node.op}' (%${node.result.name}): %${old.name} is no state`);
    const group = this.writeBeside(node) ?? this.open('write', this.rows(slot), columnsOf(rows));
    for (const v of [rows, slot]) {
      const home = this.home(this.viewed(v));
      if (home.kind === 'group') home.group.stored.add(this.viewed(v));
    }
    this.anchor(group, node);
  }

  private placeElementwise(node: Node): void {
    const columns = columnsOf(node.result);
    const operands = node.inputs.map((v) => this.viewed(v));
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
    const inside = node.inputs
      .map((v) => this.home(this.viewed(v)))
      .flatMap((h) => (h.kind === 'group' ? [h.group] : []));
    const latest = inside.reduce<Group | undefined>(
      (a, b) => (a === undefined || this.indexOf(b) > this.indexOf(a) ? b : a),
      undefined,
    );
    const isLoop = (g: Group): boolean => g.kind === 'loop' && g.columns === columns && g.rows === rows;
    // What is gathered can only be read by a loop: one is enough.
    const isGathered = node.inputs.some((v) => this.isGathered(v) && this.groupOf(v) === latest);
    const candidates =
      latest === undefined
        ? this.groups.filter(isLoop)
        : latest.rows === rows && !isGathered
          ? [latest]
          : this.groups.slice(this.indexOf(latest)).filter(isLoop);
    const readsStates = node.inputs.some((v) => this.versions.has(v));
    const isOpen = (g: Group): boolean =>
      (g.kind !== 'gemm' || !this.isApart(node)) && (!readsStates || this.isOfStage(g, node.path));
    const group =
      candidates.find(
        (g) =>
          this.isRounding(g, node) ||
          (isOpen(g) &&
            this.mayJoin(g, rows, columns, node.inputs) &&
            rotatesAlike(g, node) &&
            this.sums.allow(node, g)),
      ) ?? this.open('loop', rows, columns);
    for (const v of node.inputs) {
      const [base, home] = [this.viewed(v), this.home(this.viewed(v))];
      if (home.kind === 'group' && (home.group !== group || this.isGathered(v))) home.group.stored.add(base);
    }
    group.members.push(node);
    this.homes.set(node.result, { kind: 'group', group });
  }
}
