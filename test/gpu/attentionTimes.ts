/** Times of attention over made-up paths on a real device. Launches in turn read lists of their own. */
import { extentIn } from '../../ir/extents.js';
import { ROW_PAD, rowStride } from '../../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import type { CudaMemory } from '../../runtime/cuda/native.js';
import { attentionModule, generate, type Shape } from '../codegen/cuda/attentionHarness.js';
import type { Bench } from './attentionBench.js';

/** Most entries of a call's list of keys. */
export const TIMED_CAPACITY = 1 << 22;
/** Two such bytes are 0.011 in bf16. */
const FILLED = 0x3c;

/** The lists of a call of `paths` queries. */
export interface TimedCall {
  readonly paths: number;
  readonly lists: Readonly<Record<'begin' | 'position' | 'key', Int32Array>>;
}

/** Keys and values of `rows` rows, or keys that are values, with their tails. */
export function timedCache(bench: Bench, s: Shape, rows: number): ReadonlyMap<string, CudaMemory> {
  const cache = new Map(
    (s.tail === undefined ? ['k', 'v'] : ['k', 'kTail']).map((name) => [
      name,
      new bench.cuda.Memory(bench.device, rows * strideOf(s, name) * 2),
    ]),
  );
  for (const memory of cache.values()) memory.fill(FILLED);
  return cache;
}

const median = (values: Float64Array): number => [...values].sort((a, b) => a - b)[values.length >> 1]!;

/** Elements from a row of a buffer to the next. */
function strideOf(s: Shape, name: string): number {
  const decl = attentionModule(s).module.buffers.find((each) => each.name === name)!;
  return rowStride(decl, { T: TIMED_CAPACITY, R: TIMED_CAPACITY, C: TIMED_CAPACITY }, DTYPE_BYTES[decl.dtype]);
}

/** What calls in turn read and write, as it lies on the device; `cache` are keys and values of all. */
export function layOutCalls(
  bench: Bench,
  s: Shape,
  calls: readonly TimedCall[],
  cache: ReadonlyMap<string, CudaMemory>,
): { readonly memory: ReadonlyMap<string, CudaMemory>[]; release(): void } {
  const made: CudaMemory[] = [];
  const make = (bytes: number): CudaMemory => {
    const target = new bench.cuda.Memory(bench.device, bytes);
    made.push(target);
    return target;
  };
  const { buffers } = attentionModule(s).module;
  const memory = calls.map(({ paths, lists }) => {
    const rows = ['q', 'out', ...(s.tail === undefined ? [] : ['qTail'])].map((name) => {
      const { dtype } = buffers.find((each) => each.name === name)!;
      const target = make(roundUp(paths, ROW_PAD) * strideOf(s, name) * DTYPE_BYTES[dtype]);
      target.fill(FILLED);
      return [name, target] as const;
    });
    const integers = Object.entries(lists).map(([name, values]) => {
      const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
      const target = make(roundUp(values.length, ROW_PAD) * 4);
      target.write(0, bytes);
      return [name, target] as const;
    });
    return new Map([...cache, ...rows, ...integers]);
  });
  return {
    memory,
    release: () => {
      for (const each of made) each.release();
    },
  };
}

/** Microseconds of a launch, of which each begins while the one before ends, as in a step. */
export async function timeOf(
  bench: Bench,
  s: Shape,
  plan: CudaAttentionSchedule,
  { paths, lists }: TimedCall,
  turns: readonly ReadonlyMap<string, CudaMemory>[],
  { rounds, launches: count }: { readonly rounds: number; readonly launches: number },
): Promise<number> {
  const { text, launch, parameters, extents, tensorMaps } = generate(s, plan, TIMED_CAPACITY);
  const held = turns.flatMap((memory) => parameters.map((name) => memory.get(name)!));
  const sizes = extents.map((name) => extentIn(name, { T: paths, R: 0, C: lists.key.length }));
  const program = new bench.cuda.Program({
    device: bench.device,
    extents: extents.map((name, i) => ({ name, most: Math.max(TIMED_CAPACITY, sizes[i]!) })),
    inputs: [],
    outputs: [],
    slots: held.map((target) => ({ memory: target, offset: 0, bytes: target.sizeBytes })),
    launches: turns.map((_, at) => ({
      name: 'attention',
      ...bench.kernel(text),
      slots: parameters.map((_name, i) => at * parameters.length + i),
      tensorMaps: tensorMaps.map(({ parameter, ...map }) => ({ slot: at * parameters.length + parameter, ...map })),
      launch,
      usesProgrammaticLaunch: true,
    })),
  });
  try {
    const launches = turns.map((_, at) => at);
    const request = { extents: sizes, launches, warmup: 1, repeats: rounds, perSample: count };
    return (1000 * median(await program.time(request))) / count;
  } finally {
    program.release();
  }
}
