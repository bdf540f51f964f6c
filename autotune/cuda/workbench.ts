/** The device memory of one kernel in one bucket: random operands in rotating copies, and the reference's results. */
import { defined } from '../../system/defined.js';
import type { CudaKernelText } from '../../ir/cuda.js';
import { type Kernel, type KernelModule, partWidth } from '../../ir/kernel.js';
import { kernelReads } from '../../ir/kernelAccess.js';
import { sourceRows } from '../../ir/packing.js';
import type { Bucket } from '../../ir/plan.js';
import { FORMATS } from '../../ir/storage.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { bufferBytes } from '../../passes/planMemory.js';
import { programExtents } from '../../runtime/bindPorts.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaMemory, CudaModule, CudaProgram } from '../../runtime/cuda/native.js';
import { sizesOf } from '../../runtime/bindPorts.js';
import { type BufferRoles, resultRows, rolesOf, stateRows } from '../randomInputs.js';
import { KernelOperands, type PlacedOperand, rowsWithin, weightBytes } from '../workbench.js';
import {
  COMPARE_FOUND_BYTES,
  COMPARE_JOB_BYTES,
  COMPARE_SYMBOL,
  compareJob,
  nothingFound,
  scaleOf,
  tiesAllowed,
  toleranceOf,
} from './compare.js';
import { type DeviceFill, extentOf, fillBuffer } from './fill.js';

const MAX_COPIES = 32;
/** Bytes of the reference's results that its scale is computed from. */
const SAMPLE_BYTES = 1 << 20;

type DeviceOperand = PlacedOperand<CudaMemory>;

/** What the reference computed: copies of the buffers it wrote. */
interface ReferenceResult {
  readonly memory: CudaMemory;
  readonly scale: number;
}

export interface BenchRequest {
  readonly kernel: Kernel;
  readonly module: KernelModule;
  readonly bucket: Bucket;
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly fill: DeviceFill;
  /** The compiled module of compare.ts. */
  readonly compare: CudaModule;
}

export class CudaWorkbench {
  readonly bytes: number;
  private readonly request: BenchRequest;
  private readonly operands: KernelOperands;
  private readonly roles: BufferRoles;
  /** copies[i]: memory of every parameter for the i-th launch. */
  private readonly copies: readonly (readonly DeviceOperand[])[];
  private readonly expected = new Map<string, ReferenceResult>();
  private readonly found: CudaMemory;
  private isFilled = false;

  /**
   * Makes enough copies that a launch finds nothing from the one before in the L2 cache. Throws CudaError if memory is
   * short.
   */
  constructor(request: BenchRequest) {
    this.request = request;
    const { kernel, module, addon, device } = request;
    this.operands = new KernelOperands(kernel, module, request.capacity);
    this.roles = rolesOf(kernel, module, (name) => this.tableRows(name));
    const { names } = this.operands;
    const one = names.reduce((sum, name) => sum + this.sizeOf(name), 0);
    const count = Math.max(1, Math.min(MAX_COPIES, Math.ceil((2 * device.info.l2Bytes) / one)));
    const made: CudaMemory[] = [];
    try {
      const place = (name: string): DeviceOperand => {
        const bytes = this.sizeOf(name);
        const memory = new addon.Memory(device, roundUp(bytes, 256));
        made.push(memory);
        return { name, bytes, memory };
      };
      this.copies = Array.from({ length: count }, () => names.map(place));
      this.found = new addon.Memory(device, COMPARE_JOB_BYTES * 8);
      made.push(this.found);
    } catch (error) {
      for (const memory of made) memory.release();
      throw error;
    }
    this.bytes = count * one + this.written().reduce((sum, { bytes }) => sum + bytes, 0);
  }

  release(): void {
    for (const { memory } of this.copies.flat()) memory.release();
    for (const { memory } of this.expected.values()) memory.release();
    this.found.release();
  }

  /** Launches per program, one per copy. */
  get launches(): readonly number[] {
    return this.copies.map((_, i) => i);
  }

  /** Fills weights and inputs with random numbers, once. */
  async fill(): Promise<void> {
    if (this.isFilled) return;
    let seed = 1;
    for (const placed of this.copies.flat()) {
      const weight = this.operands.weights.get(placed.name);
      // Scaled so that sums of k products of unit normals have variance near one.
      if (weight !== undefined)
        await this.request.fill.weight(
          placed.memory,
          weight,
          seed,
          weight.layout === 'rows' ? 1 : 1 / Math.sqrt(Math.max(1, weight.k)),
          this.tableRows(placed.name),
        );
      else await this.fillBuffer(placed, seed);
      seed += 31;
    }
    this.isFilled = true;
  }

  /** The extents of a call of the bucket's size. */
  get sizes(): readonly number[] {
    return sizesOf(this.request.module.interface, this.request.bucket.extents);
  }

  /** The kernel bound to each copy. */
  program(text: CudaKernelText, module: CudaModule): CudaProgram {
    const { device, addon, kernel, bucket } = this.request;
    const width = text.parameters.length;
    return new addon.Program({
      device,
      extents: programExtents(this.request.module.interface, bucket.extents),
      inputs: [],
      outputs: [],
      slots: this.copies.flat().map(({ memory, bytes }) => ({ memory, offset: 0, bytes })),
      launches: this.copies.map((_, copy) => ({
        name: kernel.path,
        module,
        symbol: text.symbol,
        launch: text.launch,
        usesProgrammaticLaunch: false,
        slots: Array.from({ length: width }, (_slot, i) => copy * width + i),
        tensorMaps: text.tensorMaps.map(({ parameter, ...map }) => ({ slot: copy * width + parameter, ...map })),
      })),
    });
  }

  get hasReference(): boolean {
    return this.expected.size > 0;
  }

  /** Stores what `program` computes as the expected result. */
  async learnReference(program: CudaProgram): Promise<void> {
    await this.runChecked(program);
    const { addon, device, bucket, kernel } = this.request;
    for (const { name, memory, bytes } of this.written()) {
      const buffer = this.operands.buffer(name);
      const copy = new addon.Memory(device, roundUp(bytes, 256));
      copy.copyFrom(0, memory, 0, bytes);
      const stride = this.operands.stride(buffer);
      const rowBytes = stride * DTYPE_BYTES[buffer.dtype];
      const rows = Math.max(1, Math.min(resultRows(kernel, buffer, bucket), Math.floor(SAMPLE_BYTES / rowBytes)));
      const sample = await memory.readAsync(0, Math.min(rows * rowBytes, bytes));
      this.expected.set(name, {
        memory: copy,
        scale: scaleOf(sample, buffer.dtype, extentOf(buffer.columns, bucket), stride),
      });
    }
  }

  /** `undefined` if `program` computes the same as the reference, else a description of the difference. */
  async difference(program: CudaProgram): Promise<string | undefined> {
    await this.runChecked(program);
    for (const placed of this.written()) {
      const problem = await this.compare(placed);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  /** What one launch of `program` leaves in all buffers that the kernel writes. */
  async results(program: CudaProgram): Promise<readonly Uint8Array[]> {
    await this.runChecked(program);
    const read: Uint8Array[] = [];
    for (const { memory, bytes } of this.written()) read.push(new Uint8Array(await memory.readAsync(0, bytes)));
    return read;
  }

  /** One launch on the first copy. Buffers that are only written hold NaN before, so that omissions show. */
  private async runChecked(program: CudaProgram): Promise<void> {
    const { kernel } = this.request;
    const reads = kernelReads(kernel);
    for (const [i, placed] of this.written().entries()) {
      if (reads.has(placed.name)) await this.fillBuffer(placed, 1 + i);
      else placed.memory.fill(0xff);
    }
    await program.run({ extents: this.sizes, inputs: [], launches: { first: 0, end: 1 } });
  }

  private async compare({ name, memory, bytes }: DeviceOperand): Promise<string | undefined> {
    const { kernel, module, bucket, addon, device, compare } = this.request;
    const expected = this.expected.get(name);
    if (expected === undefined) throw new Error(`The reference of ${kernel.path} has not been computed.`);
    const buffer = this.operands.buffer(name);
    const rows = resultRows(kernel, buffer, bucket),
      columns = extentOf(buffer.columns, bucket);
    const part = kernel.anchor === 'logprob' ? partWidth(kernel) : 0;
    const upper = buffer.upper === undefined ? undefined : this.upperOf(buffer.upper);
    const job = compareJob({
      dtype: buffer.dtype,
      rows,
      columns,
      stride: this.operands.stride(buffer),
      tolerance: toleranceOf(kernel, module, buffer),
      scale: (upper?.expected ?? expected).scale,
      part,
      ...defined({ upperStride: upper && upper.stride }),
    });
    // Answers first, then the job: slots begin at multiples of 256 bytes or of 16.
    this.found.write(0, nothingFound());
    this.found.write(COMPARE_FOUND_BYTES, job.bytes);
    const program = new addon.Program({
      device,
      extents: [],
      inputs: [],
      outputs: [],
      slots: [
        { memory: this.found, offset: COMPARE_FOUND_BYTES, bytes: COMPARE_JOB_BYTES },
        { memory: expected.memory, offset: 0, bytes },
        { memory, offset: 0, bytes },
        { memory: this.found, offset: 0, bytes: COMPARE_FOUND_BYTES },
        { memory: (upper?.expected ?? expected).memory, offset: 0, bytes: upper?.bytes ?? bytes },
        { memory: upper?.actual ?? memory, offset: 0, bytes: upper?.bytes ?? bytes },
      ],
      launches: [
        {
          name: 'comparison',
          module: compare,
          symbol: COMPARE_SYMBOL,
          tensorMaps: [],
          launch: job.launch,
          usesProgrammaticLaunch: false,
          slots: [0, 1, 2, 3, 4, 5],
        },
      ],
    });
    try {
      await program.run({ extents: [], inputs: [] });
    } finally {
      program.release();
    }
    const [count = 0n, first = 0n, ties = 0n] = new BigUint64Array(await this.found.readAsync(0, COMPARE_FOUND_BYTES));
    const total = rows * columns;
    if (count > 0n) {
      const place = `row ${Math.floor(Number(first) / columns)}, column ${Number(first) % columns}`;
      return `${count} of ${total} elements of ${name} differ from the reference's, the first in ${place}`;
    }
    // A part has the column of a maximum, and where tokens are drawn a second one.
    const maxima = total / 4;
    return part !== 0 && Number(ties) > tiesAllowed(maxima)
      ? `${ties} of ${maxima} maxima of ${name} are at other columns than the reference's`
      : undefined;
  }

  /** The bf16 numbers that the kernel's tail bytes extend. */
  private upperOf(name: string): {
    readonly expected: ReferenceResult;
    readonly actual: CudaMemory;
    readonly bytes: number;
    readonly stride: number;
  } {
    const expected = this.expected.get(name);
    const placed = this.written().find((each) => each.name === name);
    if (expected === undefined || placed === undefined)
      throw new Error(`${this.request.kernel.path} does not write '${name}', which its tail bytes extend.`);
    return {
      expected,
      actual: placed.memory,
      bytes: placed.bytes,
      stride: this.operands.stride(this.operands.buffer(name)),
    };
  }

  private written(): readonly DeviceOperand[] {
    return this.operands.written(this.copies[0]);
  }

  /** Rows of a table that are allocated; undefined for buffers over tokens or scored rows, and for packed weights. */
  private tableRows(name: string): number | undefined {
    const weight = this.operands.weights.get(name);
    if (weight !== undefined && weight.layout !== 'rows') return undefined;
    const rows = weight === undefined ? this.operands.buffers.get(name)?.rows : sourceRows(weight);
    if (typeof rows !== 'number') return undefined;
    const { kernel, module, bucket } = this.request;
    // So few of a state that copies of it exceed the L2 cache as those of a call's buffers do.
    if (weight === undefined) {
      const buffer = this.operands.buffer(name);
      const rowBytes = this.operands.stride(buffer) * DTYPE_BYTES[buffer.dtype];
      return stateRows(kernel, module, name, rowsWithin(rows, rowBytes), bucket);
    }
    return rowsWithin(rows, FORMATS[weight.format].bytes(1, weight.k));
  }

  private sizeOf(name: string): number {
    const weight = this.operands.weights.get(name);
    if (weight === undefined) {
      const buffer = this.operands.buffer(name);
      const { bucket, capacity } = this.request;
      // A row of a materialized bias is as long as the plan's largest micro-batch.
      return bufferBytes({ ...buffer, rows: this.tableRows(name) ?? buffer.rows }, bucket.extents, capacity.extents);
    }
    return weightBytes(weight, this.tableRows(name));
  }

  private fillBuffer({ name, memory, bytes }: DeviceOperand, seed: number): Promise<void> {
    const { kernel, bucket, capacity, fill } = this.request;
    return fillBuffer(fill, {
      memory,
      bytes,
      buffer: this.operands.buffer(name),
      kernel,
      roles: this.roles,
      bucket,
      capacity,
      seed,
      constant: this.roles.positive.has(name) ? 1 : undefined,
    });
  }
}
