/**
 * Gives contractions room for adapters. Before each gemm kernel comes a shrink kernel, which multiplies the same rows
 * by the first factors of their adapters; the gemm kernel adds the second factors' products to its own (ir/kernel.ts).
 * Both factors are weights with slots, which are written while the model runs.
 *
 * Graphs know nothing of adapters: what a matrix is in the checkpoint is known from what its weight is packed from.
 * Matrices of experts, of heads of attention, heads of a vocabulary and tables of embeddings get none.
 */
import { CompileError } from '../errors.js';
import type { InputDecl } from '../ir/function.js';
import { ADAPTER_INPUTS, ADAPTER_RANK, type AdapterSlots } from '../ir/adapterRows.js';
import type { BufferDecl, GemmKernel, Kernel, Segment, ShrinkKernel, WeightDecl } from '../ir/kernel.js';
import type { FormatName } from '../ir/storage.js';
import { type BufferDType, type ExtentName, roundUp } from '../ir/types.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import type { LoweredModule } from './lowerKernels.js';
import type { WeightStorage } from './lowerWeights.js';

export function attachAdapters(
  module: LoweredModule,
  asked: AdapterSlots | undefined,
  storage: WeightStorage,
): LoweredModule {
  if (asked === undefined || isOwnFunction(module)) return module;
  const attaching = new Attaching(module, { ...asked, rank: roundUp(asked.rank, ADAPTER_RANK) }, storage);
  const kernels = module.kernels.flatMap((kernel) => attaching.attach(kernel));
  if (attaching.inputs.size === 0) return module;
  return {
    ...module,
    kernels,
    buffers: [...module.buffers, ...attaching.buffers],
    weights: [...module.weights, ...attaching.weights],
    interface: { ...module.interface, inputs: [...module.interface.inputs, ...attaching.inputs.values()] },
  };
}

/** Functions that compute nothing of the model itself: they draft, or copy rows. */
const isOwnFunction = ({ interface: { name } }: LoweredModule): boolean => name === 'draft' || name === 'copy';

/** What a module gains. */
class Attaching {
  readonly inputs = new Map<ExtentName, InputDecl>();
  readonly buffers: BufferDecl[] = [];
  readonly weights: WeightDecl[] = [];
  private readonly module: LoweredModule;
  private readonly asked: AdapterSlots;
  private readonly storage: WeightStorage;
  private readonly declared: ReadonlyMap<string, WeightDecl>;
  private readonly types: ReadonlyMap<string, BufferDType>;

  constructor(module: LoweredModule, asked: AdapterSlots, storage: WeightStorage) {
    this.module = module;
    this.asked = asked;
    this.storage = storage;
    this.declared = new Map(module.weights.map((weight) => [weight.name, weight]));
    this.types = new Map(module.buffers.map(({ name, dtype }) => [name, dtype]));
  }

  /** The kernel, behind the one that shrinks its rows where it has matrices of the checkpoint. */
  attach(kernel: Kernel): readonly Kernel[] {
    if (kernel.anchor !== 'gemm' || kernel.experts !== undefined || kernel.heads !== undefined) return [kernel];
    const input = ADAPTER_INPUTS[kernel.rows];
    const weights = kernel.segments.map(({ weight }) => this.declared.get(weight)!);
    if (input === undefined || weights.some(({ layout }) => layout === 'rows')) return [kernel];
    const type = this.types.get(kernel.a);
    if (kernel.rounding !== undefined || (type !== 'f32' && type !== 'bf16' && type !== 'f16'))
      throw new CompileError(`${kernel.path}: adapters are not supported beside products of 8 bits`);
    // One product by the first factors of all of them, whose columns have the norm in front.
    if (new Set(weights.map(({ columnScale, columnOffset = 0 }) => `${columnScale} ${columnOffset}`)).size > 1)
      throw new CompileError(`${kernel.path}: adapters are not supported where matrices have different folded norms`);
    const { slots, rank } = this.asked;
    const sources = weights.flatMap((weight) => weight.sources);
    const rows = { slot: this.slotsOf(kernel.rows, input), slots, rank };
    const shrink = this.shrink(kernel, rows, sources, at(weights, 0), type);
    let part = 0;
    const segments = kernel.segments.map((segment, i): Segment => {
      const own = { weight: this.second(segment, at(weights, i), type), part };
      part += at(weights, i).sources.length;
      return { ...segment, adapter: own };
    });
    const first = { weight: shrink.weight, scale: shrink.scale };
    return [shrink, { ...kernel, adapter: { ...rows, shrunk: shrink.out, first }, segments }];
  }

  private shrink(
    kernel: GemmKernel,
    rows: Pick<ShrinkKernel, 'slot' | 'slots' | 'rank'>,
    sources: readonly WeightDecl['sources'][number][],
    beside: WeightDecl,
    type: FormatName,
  ): ShrinkKernel {
    const { k, a, name, path } = kernel;
    const { slots, rank } = rows;
    const count = { count: slots } as const;
    const parts = sources.length;
    const [out, weight, scale] = ['shrunk', 'lora_a', 'lora_s'].map((each) => this.name(`${name}_${each}`)) as [
      string,
      string,
      string,
    ];
    this.buffers.push({ name: out, dtype: type, rows: kernel.rows, columns: parts * rank, space: 'arena' });
    const { columnScale, columnOffset } = beside;
    this.weights.push({
      name: weight,
      ...this.stored(type),
      sources: sources.map(({ tensor }) => ({ tensor, rows: rank })),
      slots: { ...count, holds: 'a' },
      k,
      pairing: { kind: 'none' },
      ...defined({ columnScale, columnOffset }),
    });
    this.weights.push({
      name: scale,
      layout: 'rows',
      format: 'f32',
      sources: sources.map(({ tensor }) => ({ tensor, rows: 1 })),
      slots: { ...count, holds: 'scale' },
      k: 1,
      pairing: { kind: 'none' },
    });
    return {
      name: this.name(`${name}_shrink`),
      path: `${path}.shrink`,
      ops: ['shrink'],
      rows: kernel.rows,
      anchor: 'shrink',
      ...{ k, a, ...rows, parts, weight, scale, out },
    };
  }

  /** The weight of second factors beside a segment's. */
  private second({ pairing }: Segment, { name, sources }: WeightDecl, type: FormatName): string {
    const weight = this.name(`${name}_lora_b`);
    this.weights.push({
      name: weight,
      ...this.stored(type),
      sources,
      slots: { count: this.asked.slots, holds: 'b' },
      k: this.asked.rank,
      pairing,
    });
    return weight;
  }

  /** Panels of the type of the rows where kernels read panels, and what tensor cores read elsewhere. */
  private stored(format: FormatName): Pick<WeightDecl, 'layout' | 'format'> {
    return { layout: this.storage.layout === 'kmajor' ? 'kmajor' : 'panels', format };
  }

  private slotsOf(rows: ExtentName, input: string): string {
    const known = this.inputs.get(rows);
    if (known !== undefined) return known.buffer;
    const buffer = this.name(input.toLowerCase());
    const role = { kind: 'adapter', slots: this.asked.slots } as const;
    this.inputs.set(rows, { name: input, buffer, dtype: 'i32', shape: [rows], role });
    this.buffers.push({ name: buffer, dtype: 'i32', rows, columns: 1, space: 'input' });
    return buffer;
  }

  /** `wanted`, which nothing of the module may be called. */
  private name(wanted: string): string {
    const { buffers, weights, kernels } = this.module;
    if ([buffers, weights, kernels].some((list) => list.some(({ name }) => name === wanted)))
      throw new CompileError(`${wanted} is the name of something else`);
    return wanted;
  }
}
