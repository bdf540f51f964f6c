/** Times the vendor's library for comparison: its best time for a kernel's bare contraction, without the epilogue. */
import { at } from '../../system/at.js';
import { extentIn } from '../../ir/extents.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { physicalToLogical } from '../../ir/packing.js';
import type { Bucket } from '../../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CublasLt, CublasLtContraction, CublasLtOperands } from '../../runtime/cuda/cublasLt.js';
import type { CudaEvent, CudaMemory } from '../../runtime/cuda/native.js';
import type { CudaDevice } from '../../runtime/cuda/native.js';
import { median } from '../records.js';
import type { DeviceFill } from './fill.js';
import { sample, type TimeShape } from './timing.js';

/** C[m, n] = A[m, k]·W[n, k]ᵀ. */
export interface BareContraction {
  readonly dtype: 'f16' | 'bf16' | 'e4m3';
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/**
 * The contraction in a kernel, with all segments side by side, as if all experts had one matrix; undefined if there is
 * none on tensor cores.
 */
export function contractionOf(kernel: Kernel, module: KernelModule, bucket: Bucket): BareContraction | undefined {
  if (kernel.anchor !== 'gemm' && kernel.anchor !== 'logprob') return undefined;
  const dtype = module.buffers.find(({ name }) => name === kernel.a)?.dtype;
  if (dtype !== 'f16' && dtype !== 'bf16' && dtype !== 'e4m3') return undefined;
  const names = kernel.anchor === 'gemm' ? kernel.segments.map(({ weight }) => weight) : [kernel.weight];
  const n = names.reduce((sum, name) => {
    const weight = module.weights.find((w) => w.name === name);
    return weight === undefined ? NaN : sum + physicalToLogical(weight).length / (weight.experts ?? 1);
  }, 0);
  const m = extentIn(kernel.rows, bucket.extents);
  return Number.isFinite(n) && m > 0 ? { dtype, m, n, k: kernel.k } : undefined;
}

export interface BaselineTime {
  /** Name of the algorithm. */
  readonly name: string;
  readonly seconds: readonly number[];
}

const ALGORITHMS = 8;
const WORKSPACE_BYTES = 64 << 20;
const MAX_COPIES = 32;
const RUN_UP_BYTES = 512 << 20;

export interface BaselineOptions {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly library: CublasLt;
  readonly fill: DeviceFill;
}

/**
 * Memory filled before timed launches: while the device writes it, they queue up. Throws CudaError if memory is short.
 */
export const makeRunUp = (addon: CudaAddon, device: CudaDevice): CudaMemory =>
  new addon.Memory(device, Math.min(RUN_UP_BYTES, roundUp(Math.max(1 << 20, device.memory().freeBytes / 4), 256)));

/**
 * Seconds per call of `launch`, which enqueues work on the device's stream; one value per sample. Blocks the JavaScript
 * thread.
 */
export function timeLaunches(
  { addon, device, runUp }: { readonly addon: CudaAddon; readonly device: CudaDevice; readonly runUp: CudaMemory },
  launch: () => void,
  { warmup, repeats, perSample }: TimeShape,
): number[] {
  device.makeCurrent();
  const events: CudaEvent[] = [];
  const event = (): CudaEvent => {
    const made = new addon.Event(device);
    events.push(made);
    return made;
  };
  try {
    const marks = Array.from({ length: repeats }, () => ({ begin: event(), end: event() }));
    const several = (): void => {
      for (let i = 0; i < perSample; i++) launch();
    };
    runUp.fill(0);
    for (let i = 0; i < warmup; i++) several();
    for (const { begin, end } of marks) {
      begin.record();
      several();
      end.record();
    }
    device.synchronize();
    return marks.map(({ begin, end }) => (Math.max(end.millisecondsSince(begin), 1e-6) * 1e-3) / perSample);
  } finally {
    for (const made of events) made.release();
  }
}

/** The library's algorithms for one contraction, on random operands in rotating copies that exceed the L2 cache. */
export class BaselineBench {
  /** Names of the algorithms, as the heuristic ranks them. */
  readonly algorithms: readonly string[];
  private readonly options: BaselineOptions;
  private readonly contraction: CublasLtContraction;
  private readonly operands: readonly CublasLtOperands[];
  private readonly room: { readonly address: bigint; readonly bytes: number };
  private readonly made: readonly { release(): void }[];
  private next = 0;

  private constructor(
    options: BaselineOptions,
    contraction: CublasLtContraction,
    operands: readonly CublasLtOperands[],
    workspace: CudaMemory,
    made: readonly { release(): void }[],
  ) {
    this.options = options;
    this.contraction = contraction;
    this.operands = operands;
    this.room = { address: workspace.address, bytes: workspace.sizeBytes };
    this.made = made;
    this.algorithms = contraction.algorithms.map(({ name }) => name);
  }

  /** Throws Error if the library has no algorithm, CudaError if memory is short. */
  static async create({ dtype, m, n, k }: BareContraction, options: BaselineOptions): Promise<BaselineBench> {
    const { addon, device, library, fill } = options;
    const made: { release(): void }[] = [];
    const own = <T extends { release(): void }>(resource: T): T => {
      made.push(resource);
      return resource;
    };
    try {
      const { [dtype]: bytes } = DTYPE_BYTES;
      const stride = { k: roundUp(k, 16 / bytes), n: roundUp(n, 8) };
      const one = (m + n) * stride.k * bytes + m * stride.n * 2;
      const copies = Math.max(1, Math.min(MAX_COPIES, Math.ceil((2 * device.info.l2Bytes) / one)));
      const matrix = async (rows: number, columns: number, seed: number, scale: number): Promise<CudaMemory> => {
        const memory = own(new addon.Memory(device, roundUp(rows * columns * bytes, 256)));
        await fill.matrix(memory, dtype, rows, columns, { kind: 'random', seed, scale });
        return memory;
      };
      const operands: CublasLtOperands[] = [];
      for (let i = 0; i < copies; i++) {
        const a = await matrix(m, stride.k, 3 * i + 1, 1),
          w = await matrix(n, stride.k, 3 * i + 2, 1 / Math.sqrt(k));
        operands.push({
          a: a.address,
          w: w.address,
          c: own(new addon.Memory(device, roundUp(m * stride.n * 2, 256))).address,
        });
      }
      const workspace = own(new addon.Memory(device, WORKSPACE_BYTES));
      device.makeCurrent();
      const contraction = own(
        library.contraction(
          { dtype, m, n, k, lda: stride.k, ldw: stride.k, ldc: stride.n },
          WORKSPACE_BYTES,
          ALGORITHMS,
        ),
      );
      return new BaselineBench(options, contraction, operands, workspace, made);
    } catch (error) {
      for (const resource of made.reverse()) resource.release();
      throw error;
    }
  }

  /** Enqueues one product on the next copy. The device's context must be current. Throws if the library refuses. */
  launch(algorithm: number): void {
    at(this.contraction.algorithms, algorithm).launch(
      at(this.operands, this.next++ % this.operands.length),
      this.room,
      this.options.device.stream,
    );
  }

  release(): void {
    for (const resource of [...this.made].reverse()) resource.release();
  }
}

/**
 * Best time over the algorithms that the library's heuristic names. The best one is timed once more through `measure`,
 * which scales the time as the caller's comparison needs it. Throws Error if no algorithm works, CudaError if memory is
 * short.
 */
export async function timeBaseline(
  contraction: BareContraction,
  options: BaselineOptions,
  measure: (time: () => Promise<readonly number[]>) => Promise<readonly number[]> = (time) => time(),
): Promise<BaselineTime> {
  const { addon, device } = options;
  const bench = await BaselineBench.create(contraction, options);
  let runUp: CudaMemory | undefined;
  try {
    runUp = makeRunUp(addon, device);
    const timer = { addon, device, runUp };
    let best: { readonly index: number; readonly seconds: number } | undefined;
    const problems: string[] = [];
    const burst = (index: number, bestSeconds: number): Promise<readonly number[]> =>
      sample(
        (shape) =>
          Promise.resolve(
            timeLaunches(
              timer,
              () => {
                bench.launch(index);
              },
              shape,
            ),
          ),
        bestSeconds,
      );
    for (const index of bench.algorithms.keys()) {
      try {
        const seconds = median(await burst(index, best?.seconds ?? Infinity));
        if (best === undefined || seconds < best.seconds) best = { index, seconds };
      } catch (error) {
        problems.push(error instanceof Error ? error.message : String(error));
      }
    }
    if (best === undefined) throw new Error(`no algorithm of the library works: ${problems[0] ?? 'none'}`);
    const { index } = best;
    return { name: at(bench.algorithms, index), seconds: await measure(() => burst(index, Infinity)) };
  } finally {
    runUp?.release();
    bench.release();
  }
}
