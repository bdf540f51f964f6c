/** Random weights and activations, generated on the device by the runtime's own code. */
import { extentIn } from '../../ir/extents.js';
import type { BufferDecl, Kernel, WeightDecl } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { type Bucket, rowStride } from '../../ir/plan.js';
import { type FormatName, isBlockFormat, isCodeFormat } from '../../ir/storage.js';
import { type Dim, DTYPE_BYTES, roundUp } from '../../ir/types.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaUnit } from '../../runtime/cuda/compiler.js';
import type { CudaMemory, CudaModule } from '../../runtime/cuda/native.js';
import type { CudaDevice } from '../../runtime/cuda/native.js';
import {
  type DeviceJob,
  groupJob,
  JOB_BYTES,
  matrixColumns,
  microscaledJob,
  packJob,
} from '../../runtime/cuda/packJob.js';
import { PACK_ENTRIES, PACK_SOURCE } from '../../runtime/cuda/packKernels.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { biasFor, bucketTrees, integersFor, type BufferRoles } from '../randomInputs.js';
import { COMPARE_SOURCE, COMPARE_SYMBOL } from './compare.js';

type Fill =
  | { readonly kind: 'random'; readonly seed: number; readonly scale: number }
  | { readonly kind: 'constant'; readonly value: number };

/** Fills device memory, one request at a time. */
export class DeviceFill {
  private readonly addon: CudaAddon;
  private readonly device: CudaDevice;
  private readonly pack: CudaModule;

  constructor(addon: CudaAddon, device: CudaDevice, pack: CudaModule) {
    this.addon = addon;
    this.device = device;
    this.pack = pack;
  }

  /** A packed weight, or the first rows of a table. */
  async weight(memory: CudaMemory, decl: WeightDecl, seed: number, scale: number, tableRows?: number): Promise<void> {
    // Scales are filled as what they are, and not found in a matrix.
    const { scalesOf: _, ...weight } = decl;
    // Padding rows of a pairing belong to no source.
    memory.fill(0);
    // The matrices of an expert lie together, as if they were all.
    const experts = weight.experts ?? 1;
    const own = { sources: weight.sources.length / experts, bytes: memory.sizeBytes };
    if (experts > 1) own.bytes = packedBytes(weight, physicalToLogical(weight).length) / experts;
    let sourceRow = 0;
    const jobs = weight.sources.flatMap((source, i): readonly PlacedJob[] => {
      if (i % own.sources === 0) sourceRow = 0;
      const rows = tableRows === undefined ? source.rows : Math.min(source.rows, tableRows);
      const { format } = weight;
      const isNarrow = isCodeFormat(format) || isBlockFormat(format) || format === 'u4' || format === 'mxfp4';
      const range = {
        tensor: tensorOf(isNarrow ? 'f32' : format, rows, matrixColumns(weight), {
          kind: 'random',
          seed: seed + 7919 * i,
          scale,
        }),
        firstRow: 0,
        rows,
        sourceRow,
        isScaled: false,
      };
      sourceRow += source.rows;
      const place = { offset: Math.floor(i / own.sources) * own.bytes, bytes: own.bytes };
      if (format === 'mxfp4') return [{ ...microscaledJob(weight, range, place.bytes), place }];
      return weight.group === undefined
        ? [{ ...packJob(weight, range), place }]
        : (['codes', 'scales'] as const).map((part) => ({ ...groupJob(weight, range, part, place.bytes), place }));
    });
    await this.run(memory, jobs);
  }

  /** `rows` rows of `stride` elements; codes reach the largest one in every row. */
  async matrix(
    memory: CudaMemory,
    format: FormatName | 'e4m3',
    rows: number,
    stride: number,
    fill: Fill,
  ): Promise<void> {
    if (rows === 0) return;
    const like: WeightDecl = {
      name: 'values',
      layout: 'rows',
      format,
      sources: [{ tensor: 'values', rows }],
      k: stride,
      pairing: { kind: 'none' },
    };
    const tensor = tensorOf(format === 'e4m3' ? 'f32' : format, rows, stride, fill);
    const job = packJob(like, { tensor, firstRow: 0, rows, sourceRow: 0, isScaled: false });
    await this.run(memory, [{ ...job, place: { offset: 0, bytes: memory.sizeBytes } }]);
  }

  private async run(memory: CudaMemory, jobs: readonly PlacedJob[]): Promise<void> {
    const list = new this.addon.Memory(this.device, roundUp(jobs.length * JOB_BYTES, 256));
    try {
      jobs.forEach(({ bytes }, i) => {
        list.write(i * JOB_BYTES, bytes);
      });
      const program = new this.addon.Program({
        device: this.device,
        extents: [],
        inputs: [],
        outputs: [],
        slots: jobs.flatMap(({ place }, i) => [
          { memory: list, offset: i * JOB_BYTES, bytes: JOB_BYTES },
          { memory, ...place },
        ]),
        // Nothing is loaded or scaled, so the job's memory serves as a placeholder for both unused operands.
        launches: jobs.map(({ launch, symbol = PACK_ENTRIES.rows }, i) => ({
          name: 'random numbers',
          module: this.pack,
          symbol,
          tensorMaps: [],
          launch,
          usesProgrammaticLaunch: false,
          slots: [2 * i, 2 * i, 2 * i + 1, 2 * i],
        })),
      });
      try {
        await program.run({ extents: [], inputs: [] });
      } finally {
        program.release();
      }
    } finally {
      list.release();
    }
  }
}

/** A job, and the part of the memory that it fills. */
interface PlacedJob extends DeviceJob {
  readonly place: { readonly offset: number; readonly bytes: number };
}

const tensorOf = (format: FormatName, rows: number, columns: number, fill: Fill): TensorSource =>
  fill.kind === 'random'
    ? { kind: 'random', format, shape: [rows, columns], seed: BigInt(fill.seed), scale: fill.scale }
    : { kind: 'constant', format, shape: [rows, columns], value: fill.value };

/** Elements between the starts of a buffer's rows, in a plan of this capacity. */
export const strideOf = (buffer: BufferDecl, capacity: Bucket): number =>
  rowStride(buffer, capacity.extents, DTYPE_BYTES[buffer.dtype]);

/** Rows or columns in a micro-batch of the bucket's size. */
export const extentOf = (dim: Dim, bucket: Bucket): number => extentIn(dim, bucket.extents);

export interface BufferContents {
  readonly memory: CudaMemory;
  /** Size of the buffer within `memory`. */
  readonly bytes: number;
  readonly buffer: BufferDecl;
  /** The kernel that reads it, which gives its values their meaning. */
  readonly kernel: Kernel;
  readonly roles: BufferRoles;
  readonly bucket: Bucket;
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
  /** The value of every element where values must not be negative; undefined: random values. */
  readonly constant: number | undefined;
  readonly seed: number;
}

export async function fillBuffer(
  fill: DeviceFill,
  { memory, bytes, buffer, kernel, roles, bucket, capacity, constant, seed }: BufferContents,
): Promise<void> {
  const { name, dtype } = buffer;
  const rows = extentOf(buffer.rows, bucket);
  if (dtype === 'i32') {
    memory.fill(0);
    memory.write(
      0,
      integersFor(roles.integers.get(name) ?? { kind: 'position' }, bucket, Math.min(rows, bytes / 4), seed),
    );
    return;
  }
  if (dtype === 'i8') {
    memory.fill(0x38);
    return;
  }
  if (dtype === 'bool' || dtype === 'u8') {
    // The bytes extend bf16 numbers, which may be zero, so they must be small. 128 and more are negative.
    memory.fill(1);
    return;
  }
  const stride = strideOf(buffer, capacity);
  if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias' && kernel.mask.buffer === name) {
    memory.write(0, biasFor(bucketTrees(bucket), stride));
    return;
  }
  // Rows beyond the micro-batch stay NaN: no kernel may let them affect its results.
  memory.fill(0xff);
  const filled = Math.min(Math.max(1, rows), Math.floor(bytes / (stride * DTYPE_BYTES[dtype])));
  await fill.matrix(
    memory,
    dtype,
    filled,
    stride,
    constant === undefined ? { kind: 'random', seed, scale: 1 } : { kind: 'constant', value: constant },
  );
}

/**
 * Machine code by symbol, and the kernels that did not compile: compileCubins with keepsGoing. Kernels not yet compiled
 * when `signal` is aborted appear in neither.
 */
export type CompileKernels = (
  units: readonly CudaUnit[],
  signal?: AbortSignal,
) => Promise<{
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  readonly failures: ReadonlyMap<string, Error>;
}>;

export interface DeviceTools {
  readonly fill: DeviceFill;
  /** The compiled module of compare.ts. */
  readonly compare: CudaModule;
  release(): void;
}

/** Cache name of the runtime's own device code. */
const PACK_UNIT = 'tw_pack';

/** Throws UserError if there is no compiler, CudaError if the device fails. */
export async function loadDeviceTools({
  addon,
  device,
  compile,
}: {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly compile: CompileKernels;
}): Promise<DeviceTools> {
  const { cubins, failures } = await compile([
    { symbol: PACK_UNIT, source: PACK_SOURCE },
    { symbol: COMPARE_SYMBOL, source: COMPARE_SOURCE },
  ]);
  const module = (symbol: string): CudaModule => {
    const cubin = cubins.get(symbol);
    if (cubin === undefined) throw failures.get(symbol) ?? new Error(`${symbol} was not compiled.`);
    return new addon.Module(device, cubin);
  };
  const pack = module(PACK_UNIT),
    compare = module(COMPARE_SYMBOL);
  const fill = new DeviceFill(addon, device, pack);
  return {
    fill,
    compare,
    release: () => {
      pack.release();
      compare.release();
    },
  };
}
