/** What the kernels of one function are lowered with: graph, groups, and the names, buffers and weights so far. */
import { definitions, type Node, type Value } from '../ir/graph/graph.js';
import type { Kernel, Totals } from '../ir/kernel.js';
import { CompileError } from './compileError.js';
import type { FusedGraph } from './fuseGroups.js';
import { Names } from './kernelNames.js';
import { Buffers } from './lowerBuffers.js';
import { ScalarLowering } from './lowerScalars.js';
import { matchWeight, Weights, type WeightMatch, type WeightStorage } from './lowerWeights.js';

/** What a kernel of any anchor has. */
export type KernelHead = Pick<Kernel, 'name' | 'path' | 'ops'>;

/** Which product of its segment an anchor's result is. */
export type Accumulators = ReadonlyMap<Value, 0 | 1>;

export const NO_ACCUMULATORS: Accumulators = new Map();

/** The context that groups are lowered in, one after another. Buffers and weights are declared as kernels name them. */
export class Lowering {
  readonly fused: FusedGraph;
  readonly defs: ReadonlyMap<Value, Node>;
  readonly names = new Names();
  readonly weights: Weights;
  readonly buffers: Buffers;
  readonly scalars: ScalarLowering;
  private readonly starts = new Map<Value, string>();
  private readonly totals = new Map<Value, Totals>();

  /** `states`: names that no buffer takes. */
  constructor(fused: FusedGraph, storage: WeightStorage, states: readonly string[]) {
    this.fused = fused;
    this.defs = definitions(fused.graph);
    for (const name of states) this.names.reserve(name);
    this.weights = new Weights(storage, this.defs);
    this.buffers = new Buffers(fused, this.defs, this.names, this.weights);
    this.scalars = new ScalarLowering(
      fused.graph,
      fused,
      (v) => this.buffers.of(v),
      (node) => this.buffers.ofRowSum(node),
    );
  }

  /** Where the head leaves the totals of the rows of `logits`, which it stores. */
  totalsOf(logits: Value): Totals {
    const known = this.totals.get(logits);
    if (known !== undefined) return known;
    const [rows] = this.defs.get(logits)!.operands[0]!.type.shape;
    const declare = (name: string): string =>
      this.buffers.declare(`${logits.name}_${name}`, { dtype: 'f32', rows: rows!, columns: 1, space: 'arena' });
    const totals = { top: declare('top'), sum: declare('sum') };
    this.totals.set(logits, totals);
    return totals;
  }

  /** Where the rows of each of `count` experts begin, in the order of the pairs of `experts`. */
  startsOf(experts: Value, count: number): string {
    const known = this.starts.get(experts);
    if (known !== undefined) return known;
    const shape = { rows: count + 1, columns: 1 } as const;
    const starts = this.buffers.declare(`${experts.name}_starts`, { dtype: 'i32', ...shape, space: 'arena' });
    this.starts.set(experts, starts);
    return starts;
  }

  /** The stored value behind the views of `v`. */
  base(v: Value): Value {
    return this.scalars.view(v).base;
  }

  /** The buffer of the stored value behind the views of `v`. */
  bufferBehind(v: Value): string {
    return this.buffers.of(this.base(v));
  }

  /** The tensor of the checkpoint behind the right operand of a contraction. */
  weightOf(contraction: Node): WeightMatch {
    return matchWeight(this.defs, contraction.operands[1]!);
  }

  /** The tensors of the checkpoint behind the right operand of a contraction: one, or one for each expert. */
  weightsOf(contraction: Node): readonly WeightMatch[] {
    const stacked = contraction.op === 'expert_linear' ? this.defs.get(contraction.operands[1]!) : undefined;
    return stacked?.op === 'concat'
      ? stacked.operands.map((v) => matchWeight(this.defs, v))
      : [this.weightOf(contraction)];
  }
}

/** The extent of the last axis, which is fixed: columns, the width of a head, k of a left operand. */
export function lastExtent(v: Value): number {
  const last = v.type.shape.at(-1);
  if (typeof last !== 'number') throw new CompileError(`%${v.name}: the last extent must be fixed`);
  return last;
}
