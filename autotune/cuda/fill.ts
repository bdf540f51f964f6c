/** Random weights and activations, generated on the device by the runtime's own code. */
import { rowStride, type Bucket } from '../../ir/plan.js';
import type { BufferDecl, WeightDecl } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { isBlockFormat, isCodeFormat, type FormatName } from '../../ir/storage.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaMemory, CudaModule } from '../../runtime/cuda/nativeDevice.js';
import { groupJob } from '../../runtime/cuda/packGroups.js';
import { JOB_BYTES, matrixColumns, packJob, type DeviceJob } from '../../runtime/cuda/packJob.js';
import { PACK_ENTRIES } from '../../runtime/cuda/packKernels.js';
import type { TensorSource } from '../../runtime/tensorSource.js';

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
  async weight(memory: CudaMemory, weight: WeightDecl, seed: number, scale: number, tableRows?: number): Promise<void> {
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
      const isNarrow = isCodeFormat(format) || isBlockFormat(format) || format === 'u4';
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
