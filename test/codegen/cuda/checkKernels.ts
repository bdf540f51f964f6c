/**
 * Checks every kernel of a module under many schedules against the float64 interpreter, wherever kernels can be
 * launched.
 */
import { extentIn, type Extents } from '../../../ir/extents.js';
import { withKeyRoom } from '../../../ir/scoring.js';
import { emitCudaKernel } from '../../../codegen/cuda/index.js';
import type { CudaKernelText, CudaSchedule } from '../../../ir/cuda.js';
import {
  LOGPROB_BLOCK,
  type BufferDecl,
  type Kernel,
  type KernelModule,
  type LogProbKernel,
} from '../../../ir/kernel.js';
import { kernelWrites } from '../../../ir/kernelAccess.js';
import { interpretKernel, logicalWeight, type RawTensor } from '../../../ir/kernelInterpreter.js';
import { ROW_PAD, rowStride, type LinkedFunction } from '../../../ir/plan.js';
import { joinF24 } from '../../../ir/scalar.js';
import { DTYPE_BYTES, roundUp, type BufferDType } from '../../../ir/types.js';
import { aligned, put, take } from '../harness.js';
import { besideCuts, partsOf, usual, type Range } from './besideCuts.js';
import { packForGpu } from './emulate.js';

/** NaN in every float type, −1 as an index. */
const GUARD = 0xff;

export interface Sizes {
  readonly T: number;
  readonly R: number;
  /** Entries of the lists of keys. */
  readonly C: number;
}

/** Extents of a plan with room for `capacity` tokens and rows. */
export const roomFor = ({ interface: own }: Pick<KernelModule, 'interface'>, capacity: number): Extents =>
  withKeyRoom(own, { extents: { T: capacity, R: capacity } }).extents;

/** Runs one kernel on the memory of its parameters, which it changes. Buffers have room for `capacity` tokens. */
export type Launch = (
  text: CudaKernelText,
  memory: ReadonlyMap<string, Buffer>,
  sizes: Sizes,
  capacity: number,
) => Promise<void> | void;

/** A kernel and the schedules that it is checked under. Later kernels read the results of the first schedule. */
export interface Checked {
  readonly kernel: Kernel;
  readonly texts: readonly { readonly text: CudaKernelText; readonly schedule: CudaSchedule }[];
}

/**
 * Every kernel of a plan with its schedules. If several kernels have one signature, the later ones run under the first
 * schedule only.
 */
export function kernelsToCheck(
  plan: LinkedFunction<CudaSchedule>,
  capacity: number,
  schedulesOf: (kernel: Kernel) => readonly CudaSchedule[],
): Checked[] {
  const first = new Map<string, CudaSchedule>();
  return plan.kernels.map((kernel, i) => {
    const { signature } = plan.launches[i]!;
    const known = first.get(signature);
    const schedules = known === undefined ? schedulesOf(kernel) : [known];
    first.set(signature, schedules[0]!);
    return {
      kernel,
      texts: schedules.map((schedule) => ({
        schedule,
        text: emitCudaKernel(kernel, plan, schedule, roomFor(plan, capacity)),
      })),
    };
  });
}

export interface CheckOptions {
  readonly module: KernelModule;
  readonly tensors: ReadonlyMap<string, RawTensor>;
  readonly inputs: ReadonlyMap<string, Float64Array>;
  readonly sizes: Sizes;
  /** Rows of every buffer, at least as many as the batch has. Rows behind the batch hold NaN. */
  readonly capacity: number;
  readonly launch: Launch;
  /** The beginning of every message. */
  readonly where: string;
}

/** Relative error of rounding a stored value once. For bytes: of the numbers that they extend. */
const ROUNDING: Readonly<Partial<Record<BufferDType, number>>> = { bf16: 2 ** -8, f16: 2 ** -11, u8: 2 ** -16 };
/**
 * Error of sums in f32 compared with float64, in units of a buffer's usual value. Tensor cores add with fewer bits than
 * f32 has.
 */
const SUMMED = 1e-4;
/** Logits that are this close to each other, in units of their summed terms, may be taken for one another. */
const TIE = 1e-6;

const describe = ({ kernel }: Checked, schedule: CudaSchedule): string =>
  `${kernel.path} under ${JSON.stringify(schedule)}`;

class Memory {
  readonly bytes = new Map<string, Buffer>();
  readonly weights = new Map<string, Float64Array>();
  private readonly options: CheckOptions;

  constructor(options: CheckOptions) {
    this.options = options;
    const { module, tensors, inputs } = options;
    for (const decl of module.buffers) {
      const given = inputs.get(decl.name);
      this.bytes.set(decl.name, this.empty(decl));
      if (given !== undefined) this.write(decl, given);
    }
    for (const decl of module.weights) {
      const logical = logicalWeight(decl, tensors, true);
      this.weights.set(decl.name, logical);
      this.bytes.set(decl.name, packForGpu(decl, logical));
    }
  }

  declared(name: string): BufferDecl {
    return this.options.module.buffers.find((buffer) => buffer.name === name)!;
  }

  clear(name: string): void {
    this.bytes.get(name)!.fill(GUARD);
  }

  read(decl: BufferDecl): Float64Array {
    const { rows, columns, stride } = this.shape(decl);
    const bytes = this.bytes.get(decl.name)!;
    const values = new Float64Array(rows * columns);
    for (let row = 0, i = 0; row < rows; row++)
      for (let c = 0; c < columns; c++) values[i++] = take(bytes, row * stride + c, decl.dtype);
    return values;
  }

  private write(decl: BufferDecl, values: Float64Array): void {
    const { columns, stride } = this.shape(decl);
    const bytes = this.bytes.get(decl.name)!;
    values.forEach((value, i) => {
      put(bytes, Math.floor(i / columns) * stride + (i % columns), decl.dtype, value);
    });
  }

  private shape({ rows, columns, ...decl }: BufferDecl): { rows: number; columns: number; stride: number } {
    const { sizes, capacity, module } = this.options;
    return {
      rows: extentIn(rows, { ...sizes }),
      columns: extentIn(columns, { ...sizes }),
      stride: rowStride({ rows, columns, ...decl }, roomFor(module, capacity), DTYPE_BYTES[decl.dtype]),
    };
  }

  private empty(decl: BufferDecl): Buffer {
    const rows =
      decl.space === 'weight' && typeof decl.rows === 'number'
        ? decl.rows
        : roundUp(extentIn(decl.rows, roomFor(this.options.module, this.options.capacity)), ROW_PAD);
    return aligned(rows * this.shape(decl).stride * DTYPE_BYTES[decl.dtype], GUARD);
  }
}

/**
 * Schedules of a kernel with the same order give the same bits. Each skeleton adds in one order, whatever its tiles,
 * and in bf16 all instructions of tensor cores add in the same one. A vocabulary block is summed in another order by
 * mma.
 */
function orderOf(kernel: Kernel, { buffers }: KernelModule, schedule: CudaSchedule): string {
  if (!('skeleton' in schedule)) return schedule.kind;
  if (kernel.anchor !== 'gemm' && kernel.anchor !== 'logprob') return schedule.skeleton;
  const isBf16 = buffers.find(({ name }) => name === kernel.a)?.dtype === 'bf16';
  if (schedule.skeleton === 'skinnyWgmma') return 'wgmma';
  if (schedule.skeleton === 'skinny') return isBf16 ? 'wgmma' : kernel.anchor === 'gemm' ? 'mma' : 'skinny';
  return schedule.skeleton === 'mma' && kernel.anchor === 'gemm' && isBf16 ? 'wgmma' : schedule.skeleton;
}

/** The most problems that are listed. */
const TOLD = 12;

class Checker {
  readonly problems: string[] = [];
  private readonly options: CheckOptions;
  private readonly memory: Memory;
  /** What each buffer holds, for buffers that were given or written. */
  private readonly values: Map<string, Float64Array>;
  /** What the kernel being checked may also give; computed on demand. */
  private beside: ReadonlyMap<string, Range> | undefined;

  constructor(options: CheckOptions) {
    this.options = options;
    this.memory = new Memory(options);
    this.values = new Map(
      [...options.inputs.keys()].map((name) => [name, this.memory.read(this.memory.declared(name))]),
    );
  }

  /** `more`: what a kernel has written. */
  private environment(more: ReadonlyMap<string, Float64Array> = new Map()): Parameters<typeof interpretKernel>[1] {
    return {
      sizes: { ...this.options.sizes },
      buffers: new Map([...this.values, ...more]),
      weights: this.memory.weights,
      decls: this.options.module,
    };
  }

  /** Runs a kernel under every schedule. Later kernels read the first schedule's results. */
  async check(checked: Checked): Promise<void> {
    const { kernel, texts } = checked;
    const { sizes, capacity, launch, where } = this.options;
    const [whole, ...finished] = partsOf(kernel) as readonly [Kernel, ...Kernel[]];
    const stored = interpretKernel(whole, this.environment());
    this.beside = undefined;
    const written = [...kernelWrites(kernel)].map((name) => this.memory.declared(name));
    const first = new Map<string, Map<string, Float64Array>>();
    let kept: { readonly bytes: Buffer; readonly name: string }[] = [];
    for (const { text, schedule } of texts) {
      for (const { name } of written) this.memory.clear(name);
      try {
        await launch(text, this.memory.bytes, sizes, capacity);
      } catch (error) {
        throw new Error(`${where}: ${describe(checked, schedule)}`, { cause: error });
      }
      const got = new Map(written.map((decl) => [decl.name, this.memory.read(decl)]));
      const order = orderOf(kernel, this.options.module, schedule);
      const others = first.get(order);
      const want = new Map([
        ...stored,
        ...finished.flatMap((part) => [...interpretKernel(part, this.environment(got))]),
      ]);
      for (const decl of written) {
        const part = stored.has(decl.name) ? whole : finished[0]!;
        const problem =
          this.problem(part, decl, numbersOf(decl, got), numbersOf(decl, want)) ??
          differs(decl, got.get(decl.name)!, others?.get(decl.name));
        if (problem !== undefined) this.problems.push(`${where}: ${describe(checked, schedule)}: ${problem}`);
      }
      // What later kernels would read is wrong.
      if (kept.length === 0 && this.problems.length > 0) this.fail();
      if (others === undefined) first.set(order, got);
      if (kept.length > 0) continue;
      for (const [name, values] of got) this.values.set(name, values);
      kept = written.map(({ name }) => ({ name, bytes: Buffer.from(this.memory.bytes.get(name)!) }));
    }
    for (const { name, bytes } of kept) bytes.copy(this.memory.bytes.get(name)!);
  }

  /** Throws the problems found so far, if any. */
  fail(): void {
    if (this.problems.length === 0) return;
    const more = this.problems.length > TOLD ? `\n… and ${this.problems.length - TOLD} more` : '';
    throw new Error(`${this.problems.slice(0, TOLD).join('\n')}${more}`);
  }

  /** Where a result differs from float64; undefined if it does not. */
  private problem(kernel: Kernel, decl: BufferDecl, got: Float64Array, want: Float64Array): string | undefined {
    const scale = usual(want);
    const rounding = ROUNDING[decl.dtype] ?? 0;
    // Attention also rounds its weights, which multiply values of the size of v.
    const attended =
      kernel.anchor !== 'attention'
        ? 0
        : 1.5 *
          (ROUNDING[this.memory.declared(kernel.v).dtype] ?? 0) *
          this.values.get(kernel.v)!.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    const allowed = (x: number): number =>
      SUMMED * Math.max(scale, Math.abs(x)) + 2.05 * rounding * Math.abs(x) + attended;
    // Both sides are rounded. Close to a tie they may be a whole unit in the last place apart, which is twice the
    // rounding error.
    for (let i = 0; i < want.length; i++) {
      const [x, y] = [want[i]!, got[i]!];
      if (x === y || Math.abs(x - y) <= allowed(x)) continue;
      if (kernel.anchor === 'gemm') {
        this.beside ??= besideCuts(kernel, this.environment(), SUMMED);
        const range = this.beside.get(decl.name)!;
        const [low, high] = [range.low[i]!, range.high[i]!];
        if (y >= low - allowed(low) && y <= high + allowed(high)) continue;
      }
      if (
        kernel.anchor === 'logprob' &&
        i % 4 === 2 &&
        this.isTie(kernel, Math.floor((i * this.options.sizes.R) / want.length), x, y)
      )
        continue;
      return `element ${i} of ${decl.name} is ${y}, not ${x}`;
    }
    return undefined;
  }

  /** Whether two columns of the vocabulary, both in one block, have logits that f32 cannot tell apart. */
  private isTie(kernel: LogProbKernel, row: number, x: number, y: number): boolean {
    if (!Number.isInteger(y) || Math.floor(x / LOGPROB_BLOCK) !== Math.floor(y / LOGPROB_BLOCK) || y >= kernel.vocab)
      return false;
    const a = this.values.get(kernel.a)!,
      w = this.memory.weights.get(kernel.weight)!;
    let [difference, size] = [0, 0];
    for (let k = 0; k < kernel.k; k++) {
      const [p, q] = [x, y].map((column) => a[row * kernel.k + k]! * w[column * kernel.k + k]!) as [number, number];
      difference += p - q;
      size += Math.abs(p);
    }
    return Math.abs(difference) <= TIE * size;
  }
}

/** The contents of a buffer; for bytes, the numbers that they extend. */
export const numbersOf = ({ name, upper }: BufferDecl, values: ReadonlyMap<string, Float64Array>): Float64Array =>
  upper === undefined ? values.get(name)! : values.get(name)!.map((tail, i) => joinF24(values.get(upper)![i]!, tail));

function differs({ name }: BufferDecl, got: Float64Array, other: Float64Array | undefined): string | undefined {
  const at = other === undefined ? -1 : got.findIndex((x, i) => !Object.is(x, other[i]));
  return at < 0
    ? undefined
    : `element ${at} of ${name} is ${got[at]!}, but ${other![at]!} under a schedule that should give the same bits`;
}

/**
 * Checks kernels in the order of a module. Throws if values are wrong or depend on the tile, and says where, once for
 * each schedule and buffer.
 */
export async function checkKernels(list: readonly Checked[], options: CheckOptions): Promise<void> {
  const checker = new Checker(options);
  for (const checked of list) await checker.check(checked);
  checker.fail();
}
