/** The vendor's library as a rival: its best time for the bare contraction of a kernel, epilogue left out. */
import { physicalToLogical } from '../../ir/packing.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import type { CudaAddon, CudaDevice, CudaEvent, CudaMemory } from '../../runtime/cuda/addon.js';
import type { CublasLt, CublasLtAlgorithm, CublasLtOperands } from '../../runtime/cuda/cublasLt.js';
import { median } from '../database.js';
import type { DeviceFill } from './fill.js';

/** C[m, n] = A[m, k]·W[n, k]ᵀ. */
export interface BareContraction {
  readonly dtype: 'f16' | 'bf16';
  readonly m: number;
  readonly n: number;
  readonly k: number;
}

/** The contraction in a kernel, all segments side by side; undefined where there is none, or not in 16 bits. */
export function contractionOf(kernel: Kernel, module: KernelModule, bucket: Bucket): BareContraction | undefined {
  if (kernel.anchor !== 'gemm' && kernel.anchor !== 'logprob') return undefined;
  const dtype = module.buffers.find(({ name }) => name === kernel.a)?.dtype;
  if (dtype !== 'f16' && dtype !== 'bf16') return undefined;
  const names = kernel.anchor === 'gemm' ? kernel.segments.map(({ weight }) => weight) : [kernel.weight];
  const n = names.reduce((sum, name) => {
    const weight = module.weights.find((w) => w.name === name);
    return weight === undefined ? NaN : sum + physicalToLogical(weight).length;
  }, 0);
  const m = kernel.rows === 'T' ? bucket.tokens : bucket.rows;
  return Number.isFinite(n) && m > 0 ? { dtype, m, n, k: kernel.k } : undefined;
}

export interface RivalTime {
  /** The algorithm. */
  readonly name: string;
  readonly seconds: readonly number[];
}

const ALGORITHMS = 8;
const WORKSPACE_BYTES = 64 << 20;
const MAX_COPIES = 32;
const FIRST_SAMPLES = 3;
const MIN_SAMPLES = 7;
const MAX_SAMPLES = 40;
const SAMPLE_SECONDS = 0.03;
const HOPELESS = 1.3;
const WARM = 3;
const SHORTEST_SAMPLE = 1e-4;
const MAX_PER_SAMPLE = 32;
/** Filled before each batch of launches: while the device writes it, the launches queue up behind. */
const RUN_UP_BYTES = 512 << 20;

export interface RivalOptions {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly library: CublasLt;
  readonly fill: DeviceFill;
}

/** Best time over the algorithms that the library's heuristic names. Throws Error where it has none, CudaError where memory is short. */
export async function timeRival({ dtype, m, n, k }: BareContraction, { addon, device, library, fill }: RivalOptions): Promise<RivalTime> {
  const made: { release(): void }[] = [];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  const stride = { k: roundUp(k, 8), n: roundUp(n, 8) };
  try {
    const one = (m * stride.k + n * stride.k + m * stride.n) * 2;
    const copies = Math.max(1, Math.min(MAX_COPIES, Math.ceil((2 * device.info.l2Bytes) / one)));
    const matrix = async (rows: number, columns: number, seed: number, scale: number): Promise<CudaMemory> => {
      const memory = own(new addon.Memory(device, roundUp(rows * columns * 2, 256)));
      await fill.matrix(memory, dtype, rows, columns, { kind: 'random', seed, scale });
      return memory;
    };
    const operands: CublasLtOperands[] = [];
    for (let i = 0; i < copies; i++) {
      const a = await matrix(m, stride.k, 3 * i + 1, 1), w = await matrix(n, stride.k, 3 * i + 2, 1 / Math.sqrt(k));
      operands.push({ a: a.address, w: w.address, c: own(new addon.Memory(device, roundUp(m * stride.n * 2, 256))).address });
    }
    const workspace = own(new addon.Memory(device, WORKSPACE_BYTES));
    const runUp = own(new addon.Memory(device, Math.min(RUN_UP_BYTES, roundUp(Math.max(1 << 20, device.memory().freeBytes / 4), 256))));
    device.makeCurrent();
    const contraction = own(library.contraction({ dtype, m, n, k, lda: stride.k, ldw: stride.k, ldc: stride.n }, WORKSPACE_BYTES, ALGORITHMS));
    const room = { address: workspace.address, bytes: WORKSPACE_BYTES };
    let best: RivalTime | undefined;
    const problems: string[] = [];
    for (const algorithm of contraction.algorithms) {
      try {
        const seconds = sample({ addon, device, runUp, room, operands }, algorithm, best === undefined ? Infinity : median(best.seconds));
        if (best === undefined || median(seconds) < median(best.seconds)) best = { name: algorithm.name, seconds };
      } catch (error) {
        problems.push(error instanceof Error ? error.message : String(error));
      }
    }
    if (best === undefined) throw new Error(`no algorithm of the library works: ${problems[0] ?? 'none'}`);
    return best;
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}

interface Bench {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly runUp: CudaMemory;
  readonly room: { readonly address: bigint; readonly bytes: number };
  readonly operands: readonly CublasLtOperands[];
}

/** Seconds of a launch, once a sample, all copies in turn. */
function sample({ addon, device, runUp, room, operands }: Bench, algorithm: CublasLtAlgorithm, best: number): number[] {
  let next = 0;
  const time = (warmup: number, repeats: number, perSample: number): number[] => {
    device.makeCurrent();
    const events: CudaEvent[] = [];
    const event = (): CudaEvent => {
      const made = new addon.Event(device);
      events.push(made);
      return made;
    };
    try {
      const marks = Array.from({ length: repeats }, () => ({ begin: event(), end: event() }));
      const launch = (): void => { algorithm.launch(operands[next++ % operands.length]!, room, device.stream); };
      runUp.fill(0);
      for (let i = 0; i < warmup; i++) launch();
      for (const { begin, end } of marks) {
        begin.record();
        for (let i = 0; i < perSample; i++) launch();
        end.record();
      }
      device.synchronize();
      return marks.map(({ begin, end }) => Math.max(end.millisecondsSince(begin), 1e-6) * 1e-3 / perSample);
    } finally {
      for (const made of events) made.release();
    }
  };
  const first = time(1, FIRST_SAMPLES, 1);
  const estimate = median(first);
  if (estimate > HOPELESS * best) return first;
  const perSample = Math.max(1, Math.min(MAX_PER_SAMPLE, Math.ceil(SHORTEST_SAMPLE / estimate)));
  return time(WARM, Math.max(MIN_SAMPLES, Math.min(MAX_SAMPLES, Math.ceil(SAMPLE_SECONDS / (estimate * perSample)))), perSample);
}
