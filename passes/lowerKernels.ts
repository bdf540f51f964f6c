import { definitions, type Graph, type Node, type Value } from '../ir/graph/graph.js';
import {
  LOGPROB_BLOCK,
  partWidth,
  ROW_SUM_BLOCK,
  type AttentionKernel,
  type BufferDecl,
  type ConstantVector,
  type Draw,
  type GemmKernel,
  type Kernel,
  type KernelModule,
  type LogProbKernel,
  type LogProbReduceKernel,
  type LoopKernel,
  type Output,
  type Pairing,
  type Segment,
  type WeightDecl,
} from '../ir/kernel.js';
import type { Scalar } from '../ir/scalar.js';
import { operands as operandsOf } from '../ir/scalar.js';
import { attentionOperands } from '../ir/ops/attention.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { OPS } from '../ir/ops/index.js';
import { isFormatIn, type FormatName, type Layout } from '../ir/storage.js';
import type { StateDecl } from '../ir/function.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { stateDecl } from '../ir/graph/versions.js';
import { isFloat, isSymbol, printType } from '../ir/types.js';
import { CompileError } from './compileError.js';
import { columnsOf, type FusedGraph, type Group } from './fuseGroups.js';
import { groupPath, Names } from './kernelNames.js';
import { lowerInterface } from './lowerInterface.js';
import { lowerMask } from './lowerMask.js';
import { ScalarLowering } from './lowerScalars.js';
import { matchWeight, pairingWidth } from './lowerWeights.js';

/** How contraction weights are stored for the target's micro-kernels. */
export interface WeightStorage {
  readonly layout: Exclude<Layout, 'rows'>;
  /** `stored`: as the checkpoint stores them; f32 where the matrices of one kernel are stored differently. */
  readonly format: FormatName | 'stored';
  /**
   * Widest pairing block, in columns. Default 16, a CPU vector; tensor cores need 8, the column group of a fragment.
   */
  readonly pairingWidth?: number;
}

export interface LoweredModule extends KernelModule {
  readonly constants: readonly ConstantVector[];
  readonly states: readonly StateDecl[];
}

/**
 * Turns each group into a kernel and each stored value into a buffer. fuseGroups has made all decisions. No buffer
 * takes a name of `states`, which are those of other functions.
 */
export function lowerKernels(fused: FusedGraph, storage: WeightStorage, states: readonly string[] = []): LoweredModule {
  return new Lowering(fused, storage, states).run();
}

const NO_ACCUMULATORS: ReadonlyMap<Value, 0 | 1> = new Map();

class Lowering {
  private readonly graph: Graph;
  private readonly fused: FusedGraph;
  private readonly storage: WeightStorage;
  private readonly defs: ReadonlyMap<Value, Node>;
  private readonly scalars: ScalarLowering;
  /** The values that the caller reads, behind views. */
  private readonly returned: ReadonlySet<Value>;
  private readonly names = new Names();
  private readonly buffers = new Map<string, BufferDecl>();
  private readonly valueBuffers = new Map<Value, string>();
  private readonly rowSums = new Map<Node, string>();
  private readonly weights = new Map<string, WeightDecl>();
  private readonly constants: ConstantVector[] = [];

  constructor(fused: FusedGraph, storage: WeightStorage, states: readonly string[]) {
    this.graph = fused.graph;
    this.fused = fused;
    this.storage = storage;
    this.defs = definitions(fused.graph);
    this.scalars = new ScalarLowering(
      fused.graph,
      fused,
      (v) => this.buffer(v),
      (node) => this.rowSumBuffer(node),
    );
    for (const name of states) this.names.reserve(name);
    for (const state of fused.graph.states) this.declareState(state);
    this.returned = new Set(fused.graph.results.map((v) => this.scalars.view(v).base));
  }

  run(): LoweredModule {
    for (const param of this.graph.params) this.declare(param, 'input');
    const kernels = this.fused.groups.flatMap((group) =>
      this.lowerGroup(group).map((kernel) => this.noteVersions(kernel, group)),
    );
    return {
      interface: lowerInterface(this.graph, (v) => this.buffer(this.scalars.view(v).base)),
      buffers: [...this.buffers.values()],
      weights: [...this.weights.values()],
      kernels,
      constants: this.constants,
      states: this.graph.states.map(stateDecl),
    };
  }

  private lowerGroup(group: Group): readonly Kernel[] {
    const path = groupPath(group);
    const base = { name: this.names.unique(path), path, ops: [...group.anchors, ...group.members].map((n) => n.op) };
    switch (group.kind) {
      case 'gemm':
        return [this.lowerGemm(group, base)];
      case 'attention':
        return [this.lowerAttention(group, base)];
      case 'logprob':
        return this.lowerLogProb(group, base);
      case 'loop':
        return [this.lowerLoop(group, base)];
      case 'write':
        return [this.lowerWrite(group, base)];
      default:
        return group.kind satisfies never;
    }
  }

  private lowerGemm(group: Group, base: KernelHead): GemmKernel {
    const left = group.anchors[0]!.operands[0]!;
    const format = this.formatOf(group.anchors);
    const segments = this.splitSegments(group).map((anchors, i) =>
      this.lowerSegment(group, anchors, this.names.unique(`${base.name}_w${i}`), format),
    );
    return {
      ...base,
      anchor: 'gemm',
      rows: group.rows,
      k: lastExtent(left),
      a: this.buffer(this.scalars.view(left).base),
      segments,
    };
  }

  /** The format of all weights of one kernel: register tiles of a kernel read one format. */
  private formatOf(anchors: readonly Node[]): FormatName {
    const { format, layout } = this.storage;
    if (format !== 'stored') return format;
    const [first = 'f32', ...rest] = new Set(anchors.map((node) => matchWeight(this.defs, node.operands[1]!).format));
    return rest.length === 0 && isFormatIn(layout, first) ? first : 'f32';
  }

  /** Linear nodes whose results are combined in one expression share a segment. Each of the others has its own. */
  private splitSegments(group: Group): readonly (readonly Node[])[] {
    const sets: Set<Node>[] = group.anchors.map((anchor) => new Set([anchor]));
    for (const member of group.members) {
      const touched = sets.filter((set) => [...set].some((anchor) => this.dependsOn(member, anchor, group)));
      for (const other of touched.slice(1)) {
        other.forEach((anchor) => touched[0]!.add(anchor));
        sets.splice(sets.indexOf(other), 1);
      }
    }
    return sets.map((set) => group.anchors.filter((anchor) => set.has(anchor)));
  }

  private dependsOn(node: Node, anchor: Node, group: Group): boolean {
    return node.operands.some((v) => {
      const { base, via } = this.scalars.view(v);
      if (base === anchor.result) return via === undefined;
      const inner = this.defs.get(base);
      return inner !== undefined && group.members.includes(inner) && this.dependsOn(inner, anchor, group);
    });
  }

  private lowerSegment(group: Group, anchors: readonly Node[], weight: string, format: FormatName): Segment {
    if (anchors.length > 2)
      throw new CompileError(
        `${groupPath(group)}: ${anchors.length} contractions meet in one expression; at most two can share a kernel`,
      );
    const accumulators = new Map(anchors.map((anchor, i) => [anchor.result, i === 0 ? 0 : 1] as const));
    const belongs = (v: Value): boolean =>
      accumulators.has(v) ||
      anchors.some((anchor) => {
        const node = this.defs.get(v);
        return node !== undefined && group.members.includes(node) && this.dependsOn(node, anchor, group);
      });
    const outputs = this.outputs(group, accumulators, belongs);
    const columns = lastExtent(anchors[0]!.result);
    const pairing = this.pairing(group, anchors, outputs);
    const matches = anchors.map((anchor) => matchWeight(this.defs, anchor.operands[1]!));
    if (new Set(matches.map((match) => match.columnScale)).size > 1)
      throw new CompileError(`${groupPath(group)}: paired matrices have different folded norms`);
    const scale = matches[0]!.columnScale;
    this.weights.set(weight, {
      name: weight,
      layout: this.storage.layout,
      format,
      k: lastExtent(anchors[0]!.operands[0]!),
      pairing,
      sources: matches.map((match) => ({ tensor: match.tensor, rows: match.rows })),
      ...(scale === undefined ? {} : { columnScale: scale }),
    });
    return { weight, columns, pairing, outputs };
  }

  private pairing(group: Group, anchors: readonly Node[], outputs: readonly Output[]): Pairing {
    const rotated = new Set(
      group.members
        .filter((n) => n.op === 'rotate_half' && this.dependsOn(n, anchors[0]!, group))
        .map((n) => lastExtent(n.result)),
    );
    if (anchors.length === 2 && rotated.size === 0)
      return { kind: 'interleave', width: pairingWidth(Infinity, this.storage.pairingWidth) };
    const isRotated = outputs.some((o) => mentionsRotation(o.value));
    if (!isRotated) return { kind: 'none' };
    const [headDim] = rotated;
    if (headDim === undefined)
      throw new CompileError(`${groupPath(group)}: a rotation of another kernel's result is not supported`);
    if (rotated.size > 1 || anchors.length > 1)
      throw new CompileError(
        `${groupPath(group)}: %${anchors[0]!.result.name} is rotated in ` +
          `heads of ${[...rotated].join(' and of ')}` +
          `${anchors.length > 1 ? ` and is combined with %${anchors[1]!.result.name}` : ''}; ` +
          'one kernel rotates one matrix, in heads of one width',
      );
    return { kind: 'rotate', headDim, width: pairingWidth(headDim / 2, this.storage.pairingWidth) };
  }

  private outputs(
    group: Group,
    accumulators: ReadonlyMap<Value, 0 | 1>,
    belongs: (v: Value) => boolean,
  ): readonly Output[] {
    const outputs: Output[] = [];
    for (const v of group.stored) {
      if (belongs(v))
        outputs.push({ kind: 'store', buffer: this.buffer(v), value: this.scalars.lower(v, group, accumulators) });
    }
    for (const node of group.members) {
      if (OPS[node.op].fuse !== 'sum') continue;
      const { base } = this.scalars.view(node.operands[0]!);
      if (belongs(base))
        outputs.push({
          kind: 'rowSum',
          buffer: this.rowSumBuffer(node),
          value: this.scalars.lower(node.operands[0]!, group, accumulators),
        });
    }
    return outputs;
  }

  private lowerAttention(group: Group, base: KernelHead): AttentionKernel {
    const node = group.anchors[0]!;
    const { q, k, v, mask, queryRow } = attentionOperands(
      node.operands.map((operand) => this.scalars.view(operand).base),
      String(node.attributes['mask']),
    );
    const [, heads, headDim] = node.operands[0]!.type.shape;
    const kvHeads = node.operands[1]!.type.shape[1];
    const scale = node.attributes['scale'];
    const width = node.operands[2]!.type.shape[2];
    if (width !== headDim)
      throw new CompileError(
        `${base.path}: attention needs values as wide as its keys: ${String(headDim)}, not ${String(width)}`,
      );
    if (
      typeof heads !== 'number' ||
      typeof headDim !== 'number' ||
      typeof kvHeads !== 'number' ||
      typeof scale !== 'number'
    )
      throw new CompileError(`${base.path}: attention needs fixed head counts`);
    const [result] = [...group.stored];
    if (result === undefined || group.stored.size !== 1)
      throw new CompileError(`${base.path}: attention must have exactly one stored result`);
    return {
      ...base,
      anchor: 'attention',
      rows: group.rows,
      heads,
      kvHeads,
      headDim,
      scale,
      q: this.buffer(q),
      k: this.buffer(k),
      v: this.buffer(v),
      out: this.buffer(result),
      mask: lowerMask(
        node,
        mask.map((operand) => this.buffer(operand)),
      ),
      ...(queryRow === undefined ? {} : { queryRow: this.buffer(queryRow) }),
    };
  }

  private lowerLogProb(group: Group, base: KernelHead): readonly [LogProbKernel, LogProbReduceKernel] {
    const node = group.anchors[0]!;
    const [x, w, scale] = [node.operands[0]!, node.operands[1]!, node.operands[2]!];
    const target = group.anchors.find(({ op }) => op === 'logprob' || op === 'is_argmax')?.operands[3];
    if (target === undefined)
      throw new CompileError(`${base.path}: the most likely token comes with the log-probability of a target`);
    const match = matchWeight(this.defs, w);
    const weight = this.names.unique(`${base.name}_w0`);
    this.weights.set(weight, {
      name: weight,
      layout: this.storage.layout,
      format: this.formatOf([node]),
      k: lastExtent(x),
      pairing: { kind: 'none' },
      sources: [{ tensor: match.tensor, rows: match.rows }],
      ...(match.columnScale === undefined ? {} : { columnScale: match.columnScale }),
    });
    const drawn = group.anchors.find((n) => n.op === 'draw' || n.op === 'draw_logprob');
    const parts = this.names.unique(`${base.name}_parts`);
    this.buffers.set(parts, {
      name: parts,
      dtype: 'f32',
      rows: group.rows,
      columns: partWidth({ draw: drawn }) * Math.ceil(match.rows / LOGPROB_BLOCK),
      space: 'arena',
    });
    const result = (op: ScoreOp): string => {
      const anchor = group.anchors.find((n) => n.op === op);
      if (anchor !== undefined) return this.buffer(anchor.result);
      const name = this.names.unique(`${base.name}_${op}`);
      this.buffers.set(name, {
        name,
        dtype: op === 'logprob' || op === 'draw_logprob' ? 'f32' : 'i32',
        rows: group.rows,
        columns: 1,
        space: 'arena',
      });
      return name;
    };
    const shared = { vocab: match.rows, target: this.buffer(target), parts, rows: group.rows } as const;
    return [
      {
        ...base,
        anchor: 'logprob',
        ...shared,
        k: lastExtent(x),
        a: this.buffer(this.scalars.view(x).base),
        weight,
        rowScale: this.scalars.lower(scale, undefined, NO_ACCUMULATORS),
        ...(drawn === undefined ? {} : { draw: this.drawOf(drawn) }),
      },
      {
        name: this.names.unique(`${base.name}_reduce`),
        path: `${base.path}.reduce`,
        ops: ['logprob'],
        anchor: 'logprobReduce',
        ...shared,
        logProb: result('logprob'),
        isArgmax: result('is_argmax'),
        ...(drawn === undefined ? {} : { draw: { token: result('draw'), logProb: result('draw_logprob') } }),
      },
    ];
  }

  private drawOf({ operands }: Node): Draw {
    const [inverseTemperature, low, high] = operands.slice(3).map((v) => this.buffer(this.scalars.view(v).base));
    return { inverseTemperature: inverseTemperature!, low: low!, high: high! };
  }

  private lowerLoop(group: Group, base: KernelHead): LoopKernel {
    if (group.columns === undefined) throw new CompileError(`${base.path}: a loop needs columns`);
    const outputs = this.outputs(group, NO_ACCUMULATORS, () => true);
    const rotation = group.members.find((n) => OPS[n.op].fuse === 'rotation');
    const heads =
      rotation !== undefined && outputs.some(({ value }) => mentionsRotation(value))
        ? { headDim: lastExtent(rotation.result) }
        : {};
    return { ...base, anchor: 'loop', rows: group.rows, columns: group.columns, ...heads, outputs };
  }

  /** Rows go to where the slots say, in the memory that all versions of the state share. */
  private lowerWrite(group: Group, base: KernelHead): LoopKernel {
    if (group.columns === undefined) throw new CompileError(`${base.path}: a write needs columns`);
    const outputs = group.anchors.map(({ operands }): Output => {
      const [old, rows, slot] = operands as [Value, Value, Value];
      const { base: index, via } = this.scalars.view(slot);
      if (via !== undefined) throw new CompileError(`%${slot.name}: slots that are a gather are not supported`);
      const value = this.scalars.lower(rows, group, NO_ACCUMULATORS);
      return { kind: 'store', buffer: this.buffer(old), via: this.buffer(index), value };
    });
    return { ...base, anchor: 'loop', rows: group.rows, columns: group.columns, outputs };
  }

  /** The kernel with the version of each state that the group's nodes mean it to find in memory. */
  private noteVersions(kernel: Kernel, { anchors, members }: Group): Kernel {
    const touched = new Set([...kernelReads(kernel), ...kernelWrites(kernel)]);
    const meant = [...anchors, ...members].flatMap(({ operands }) =>
      operands.flatMap((operand) => {
        const version = this.fused.versions.get(operand);
        return version !== undefined && touched.has(version.state.name) ? [[version.state.name, version.writes]] : [];
      }),
    );
    return meant.length === 0 ? kernel : { ...kernel, versions: Object.fromEntries(meant) as Record<string, number> };
  }

  /** All versions of a state are one buffer, which has the name of the state. */
  private declareState(state: Value): void {
    const { name } = state;
    this.names.reserve(name);
    this.buffers.set(name, { ...stateDecl(state), space: 'state' });
    for (const [value, version] of this.fused.versions) if (version.state === state) this.valueBuffers.set(value, name);
  }

  /** The buffer of a stored value, parameter, checkpoint table or literal vector. It is declared at first use. */
  private buffer(v: Value): string {
    const known = this.valueBuffers.get(v);
    if (known !== undefined) return known;
    if (v.kind === 'weight') return this.declareTable(v);
    const node = this.defs.get(v);
    if (node?.op === 'vector') return this.declareConstant(v, node);
    return this.declare(v, this.returned.has(v) ? 'output' : 'arena');
  }

  private declare(v: Value, space: BufferDecl['space']): string {
    const name = this.names.unique(v.name);
    const [rows] = v.type.shape;
    const columns = columnsOf(v);
    if (rows === undefined || columns === undefined)
      throw new CompileError(
        `%${v.name}: no buffer can hold ${printType(v.type)}; ` +
          'the first extent must be a named one, the others fixed or one named',
      );
    this.valueBuffers.set(v, name);
    this.buffers.set(name, { name, dtype: v.type.dtype, rows, columns, space });
    return name;
  }

  private declareTable(v: Value): string {
    const [rows, columns] = v.type.shape;
    if (typeof rows !== 'number' || (columns !== undefined && typeof columns !== 'number'))
      throw new CompileError(`@${v.name}: a table needs fixed extents`);
    const name = this.names.unique(`${v.name}_table`);
    this.valueBuffers.set(v, name);
    this.buffers.set(name, { name, dtype: v.type.dtype, rows, columns: columns ?? 1, space: 'weight' });
    const { dtype } = v.type;
    if (!isFloat(dtype)) throw new CompileError(`@${v.name}: ${dtype} tables are not supported`);
    this.weights.set(name, {
      name,
      layout: 'rows',
      format: dtype,
      sources: [{ tensor: v.name, rows }],
      k: columns ?? 1,
      pairing: { kind: 'none' },
    });
    return name;
  }

  private declareConstant(v: Value, node: Node): string {
    const values = (node.attributes['values'] as readonly unknown[]).map(Number);
    const name = this.names.unique(String(node.attributes['label']));
    this.valueBuffers.set(v, name);
    this.buffers.set(name, { name, dtype: 'f32', rows: values.length, columns: 1, space: 'weight' });
    this.weights.set(name, {
      name,
      layout: 'rows',
      format: 'f32',
      sources: [{ tensor: `constant.${name}`, rows: values.length }],
      k: 1,
      pairing: { kind: 'none' },
    });
    this.constants.push({ name: `constant.${name}`, values });
    return name;
  }

  private rowSumBuffer(node: Node): string {
    const known = this.rowSums.get(node);
    if (known !== undefined) return known;
    const operand = node.operands[0]!;
    const [rows] = operand.type.shape;
    const columns = columnsOf(operand);
    if (rows === undefined || !isSymbol(rows) || typeof columns !== 'number')
      throw new CompileError(`%${node.result.name}: row sums need symbolic rows`);
    const name = this.names.unique(`${node.result.name}_parts`);
    this.rowSums.set(node, name);
    this.buffers.set(name, {
      name,
      dtype: 'f32',
      rows,
      columns: Math.ceil(columns / ROW_SUM_BLOCK),
      space: 'arena',
    });
    return name;
  }
}

type KernelHead = Pick<Kernel, 'name' | 'path' | 'ops'>;

function lastExtent(v: Value): number {
  const last = v.type.shape.at(-1);
  if (typeof last !== 'number') throw new CompileError(`%${v.name}: the last extent must be fixed`);
  return last;
}

const mentionsRotation = (s: Scalar): boolean => s.op === 'rotateHalf' || operandsOf(s).some(mentionsRotation);
