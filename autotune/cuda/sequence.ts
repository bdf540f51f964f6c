/**
 * Kernels launched in sequence as in a run, on random data. Each finds what the one before left in memory and in the
 * caches.
 */
import { at } from '../../system/at.js';
import { parametersOf } from '../../codegen/signature.js';
import type { CudaKernelText } from '../../ir/cuda.js';
import type { BufferDecl, Kernel, KernelModule, WeightDecl } from '../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../ir/kernelAccess.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import type { Bucket } from '../../ir/plan.js';
import { DTYPE_BYTES, isFloat, roundUp } from '../../ir/types.js';
import { bufferBytes } from '../../passes/planMemory.js';
import { programExtents } from '../../runtime/bindPorts.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import { bindKernel } from '../../runtime/cuda/bindProgram.js';
import type { CudaDevice, CudaMemory, CudaModule, CudaProgram } from '../../runtime/cuda/native.js';
import { sizesOf } from '../../runtime/bindPorts.js';
import { type BufferRoles, rolesOf } from '../randomInputs.js';
import { rowsWithin } from '../workbench.js';
import { scaleOf } from './compare.js';
import { type DeviceFill, fillBuffer, strideOf } from './fill.js';
import { Hung, launchTimes, patiently, sustain, type SustainOptions } from './timing.js';

/** Bytes of the last kernel's results that are checked. */
const SAMPLE_BYTES = 1 << 16;

export interface SequenceRequest {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly fill: DeviceFill;
  readonly module: KernelModule;
  /** Kernels of `module`, in its order. */
  readonly kernels: readonly Kernel[];
  readonly bucket: Bucket;
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
}

/** A compiled kernel of the sequence. */
export interface SequencePart {
  readonly text: CudaKernelText;
  readonly module: CudaModule;
}

/**
 * Memory for everything that the kernels read and write. Each buffer has its own, so inputs survive every repetition.
 */
export class SequenceBench {
  private readonly names: string[] = [];
  private readonly memories: CudaMemory[] = [];
  private readonly request: SequenceRequest;
  private readonly buffers: ReadonlyMap<string, BufferDecl>;
  private readonly weights: ReadonlyMap<string, WeightDecl>;

  /** Throws CudaError if memory is short. */
  constructor(request: SequenceRequest) {
    this.request = request;
    const { addon, device, module, kernels } = request;
    this.buffers = new Map(module.buffers.map((buffer) => [buffer.name, buffer]));
    this.weights = new Map(module.weights.map((weight) => [weight.name, weight]));
    try {
      for (const name of new Set(kernels.flatMap((kernel) => parametersOf(kernel, module)))) {
        this.memories.push(new addon.Memory(device, roundUp(this.bytesOf(name), 256)));
        this.names.push(name);
      }
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    for (const memory of this.memories) memory.release();
  }

  /**
   * Weights, states and the sequence's inputs are random. What the sequence writes itself is NaN until then: of a state
   * it writes some rows only.
   */
  async fill(): Promise<void> {
    const { fill, module, kernels } = this.request;
    const written = new Set<string>();
    const readers = new Map<string, Kernel>();
    for (const kernel of kernels) {
      for (const name of kernelReads(kernel))
        if (!readers.has(name) && (!written.has(name) || this.tableRows(name) !== undefined)) readers.set(name, kernel);
      for (const name of kernelWrites(kernel)) written.add(name);
    }
    for (const [i, name] of this.names.entries()) {
      const memory = at(this.memories, i),
        weight = this.weights.get(name),
        reader = readers.get(name);
      if (weight !== undefined) await fill.weight(memory, weight, 1 + 31 * i, 1 / Math.sqrt(Math.max(1, weight.k)));
      else if (reader !== undefined)
        await this.fillInput(
          memory,
          this.bufferOf(name),
          reader,
          rolesOf(reader, module, (table) => this.tableRows(table)),
          1 + 31 * i,
        );
      else memory.fill(0xff);
    }
  }

  /** The extents of a call of the bucket's size. */
  get sizes(): readonly number[] {
    return sizesOf(this.request.module.interface, this.request.bucket.extents);
  }

  /** The kernels bound to the memory and launched as in a run. `parts`: one per kernel, in order. */
  program(parts: readonly SequencePart[]): CudaProgram {
    const { addon, device, kernels, bucket } = this.request;
    return new addon.Program({
      device,
      extents: programExtents(this.request.module.interface, bucket.extents),
      inputs: [],
      outputs: [],
      slots: this.names.map((name, i) => ({ memory: at(this.memories, i), offset: 0, bytes: this.bytesOf(name) })),
      launches: kernels.map((kernel, i) => {
        const { text, module } = at(parts, i);
        return bindKernel(kernel.path, text, module, (name) => this.indexOf(name));
      }),
    });
  }

  /** Throws if the last kernel's results are not numbers: then the measured time is meaningless. */
  async requireNumbers(): Promise<void> {
    const { kernels, capacity } = this.request;
    for (const name of kernelWrites(at(kernels, -1))) {
      const buffer = this.bufferOf(name);
      if (!isFloat(buffer.dtype)) continue;
      const stride = strideOf(buffer, capacity);
      const sample = await at(this.memories, this.indexOf(name)).readAsync(
        0,
        Math.min(SAMPLE_BYTES, this.bytesOf(name)),
      );
      if (scaleOf(sample, buffer.dtype, typeof buffer.columns === 'number' ? buffer.columns : stride, stride) === 0)
        throw new Error(`The last kernel leaves no numbers in ${name}: the sequence's time would be meaningless.`);
    }
  }

  private indexOf(name: string): number {
    const index = this.names.indexOf(name);
    if (index < 0) throw new Error(`No kernel of the sequence uses ${name}.`);
    return index;
  }

  private bufferOf(name: string): BufferDecl {
    const buffer = this.buffers.get(name);
    if (buffer === undefined) throw new Error(`The sequence uses '${name}', which the module does not declare.`);
    return buffer;
  }

  /** Rows of a state that are allocated; undefined for what a call brings. */
  private tableRows(name: string): number | undefined {
    const buffer = this.buffers.get(name);
    if (buffer === undefined || typeof buffer.rows !== 'number') return undefined;
    return rowsWithin(buffer.rows, strideOf(buffer, this.request.capacity) * DTYPE_BYTES[buffer.dtype]);
  }

  private bytesOf(name: string): number {
    const weight = this.weights.get(name);
    if (weight !== undefined) return packedBytes(weight, physicalToLogical(weight).length);
    const buffer = this.bufferOf(name);
    const { bucket, capacity } = this.request;
    return bufferBytes({ ...buffer, rows: this.tableRows(name) ?? buffer.rows }, bucket.extents, capacity.extents);
  }

  private fillInput(
    memory: CudaMemory,
    buffer: BufferDecl,
    reader: Kernel,
    roles: BufferRoles,
    seed: number,
  ): Promise<void> {
    const { fill, capacity, bucket } = this.request;
    // Partial sums of the squares of k numbers of unit variance add up to k.
    const isParts = roles.positive.has(buffer.name) && reader.anchor === 'gemm' && typeof buffer.columns === 'number';
    return fillBuffer(fill, {
      memory,
      bytes: this.bytesOf(buffer.name),
      buffer,
      kernel: reader,
      roles,
      bucket,
      capacity,
      seed,
      constant: isParts ? reader.k / Number(buffer.columns) : undefined,
    });
  }
}

/** A kernel compiled with one schedule. */
export interface KernelCubin {
  readonly text: CudaKernelText;
  readonly cubin: Uint8Array;
}

export interface ContestRequest extends SustainOptions {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  /** Kernels of the sequence, one list per contender. */
  readonly contenders: readonly (readonly KernelCubin[])[];
  /** Seconds after which a launch counts as hung. */
  readonly patienceSeconds: number | undefined;
}

/**
 * seconds[contender][round] of the sequence; undefined if it was aborted. Throws Error if a contender's results are not
 * numbers, Hung if the device does not answer, and CudaError.
 */
export async function contend(
  { addon, device, contenders, patienceSeconds, ...options }: ContestRequest,
  bench: SequenceBench,
): Promise<readonly (readonly number[])[] | undefined> {
  const made: { release(): void }[] = [];
  const modules = new Map<string, CudaModule>();
  const load = ({ text, cubin }: KernelCubin): CudaModule => {
    const known = modules.get(text.symbol);
    if (known !== undefined) return known;
    const module = new addon.Module(device, cubin);
    made.push(module);
    modules.set(text.symbol, module);
    return module;
  };
  try {
    const programs: CudaProgram[] = [];
    for (const parts of contenders) {
      const program = bench.program(parts.map((part) => ({ text: part.text, module: load(part) })));
      made.push(program);
      programs.push(program);
      await patiently(program.run({ extents: bench.sizes, inputs: [] }), patienceSeconds);
      await bench.requireNumbers();
    }
    const launches = [...(contenders[0] ?? []).keys()];
    return await sustain(
      programs.map((program, i) => ({
        name: String(i),
        time: launchTimes(program, launches, bench.sizes, { turn: launches.length, patienceSeconds }),
      })),
      options,
    );
  } catch (error) {
    // Memory that a hung kernel uses cannot be released. It is freed when the process exits.
    if (error instanceof Hung) made.length = 0;
    throw error;
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
