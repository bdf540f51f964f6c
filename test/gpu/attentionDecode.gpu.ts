/**
 * Attention of decoding on a real device: every way to share a path between blocks and teams, timed. Each launch reads
 * keys and values of its own, as the layers of a model do, so none are left in L2. The table comes last.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { makeRunUp } from '../../autotune/cuda/vendorBaseline.js';
import { measureReadRate } from '../../bench/gpuLab.js';
import {
  attentionSchedules,
  defaultAttentionSchedule,
  isLegalAttention,
} from '../../codegen/cuda/attention/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaMemory } from '../../runtime/cuda/native.js';
import {
  type AttentionData,
  attentionModule,
  generate,
  layOut,
  type Shape,
  sizesOf,
} from '../codegen/cuda/attentionHarness.js';
import { Bench, skip } from './attentionBench.js';

/** Entries of the list of keys of one call. */
const CAPACITY = 1 << 16;
const PAGE = 16;
/** Keys and values of all launches, in bytes: more than L2 holds, and less than a GPU has. */
const [MIN_BYTES, MAX_BYTES] = [200e6, 4e9];
const ROUNDS = 7;

const model = (heads: number, kvHeads: number, cacheRows: number): Shape => ({
  heads,
  kvHeads,
  headDim: 128,
  dtype: 'bf16',
  mask: 'path',
  cacheRows,
});

/** `paths` paths of `length` keys with a new token each, in pages that lie in no order. */
function decoding(paths: number, length: number): AttentionData {
  const pages = (paths * length) / PAGE;
  const key = Float64Array.from({ length: paths * length }, (_, i) => {
    const page = (Math.floor(i / PAGE) * 7919) % pages;
    return page * PAGE + (i % PAGE);
  });
  return {
    T: paths,
    inputs: new Map([
      ['begin', Float64Array.from({ length: paths }, (_, path) => path * length)],
      ['position', new Float64Array(paths).fill(length - 1)],
      ['key', key],
    ]),
  };
}

/** Heads, heads of keys, paths, and keys of each. */
const CALLS = [
  [32, 8, 1, 512],
  [32, 8, 1, 1024],
  [32, 8, 1, 8192],
  [32, 8, 1, 32_768],
  [32, 8, 1, 65_536],
  [32, 8, 8, 512],
  [32, 8, 8, 1024],
  [32, 8, 8, 8192],
  [32, 8, 64, 512],
  [32, 8, 64, 1024],
  [52, 52, 1, 512],
] as const;

/** Clusters that are a device's to have. */
const LARGE: CudaAttentionSchedule = { kind: 'attention', skeleton: 'mma', queries: 1, keys: 32, cluster: 16 };
const LARGE_CLUSTERS: readonly CudaAttentionSchedule[] = [LARGE, { ...LARGE, teams: 2 }];

interface Row {
  readonly label: string;
  readonly microseconds: readonly number[];
  readonly bytes: number;
}

const median = (values: Float64Array): number => [...values].sort((a, b) => a - b)[values.length >> 1]!;

/** Microseconds of a launch, of which each begins when the one before has ended, and with programmatic launch. */
async function timeOf(bench: Bench, s: Shape, plan: CudaAttentionSchedule, data: AttentionData): Promise<number[]> {
  const { text, launch, parameters, extents } = generate(s, plan, CAPACITY);
  const { memory } = layOut({ ...s, cacheRows: 16 }, data, CAPACITY);
  const bytes = (name: string): number =>
    name === 'k' || name === 'v' ? (memory.get(name)!.length / 32) * s.cacheRows! : memory.get(name)!.length;
  const turn = bytes('k') + bytes('v');
  const turns = Math.max(2, Math.min(Math.ceil(MIN_BYTES / turn), Math.floor(MAX_BYTES / turn)));
  const made: { release(): void }[] = [];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  const make = (name: string): CudaMemory => {
    const target = own(new bench.cuda.Memory(bench.device, bytes(name)));
    // 0x3c3c is 0.011 in bf16.
    if (['q', 'k', 'v', 'out'].includes(name)) target.fill(0x3c);
    else target.write(0, memory.get(name)!);
    return target;
  };
  try {
    const shared = new Map(parameters.map((name) => [name, make(name)]));
    const held = Array.from({ length: turns }, (_, at) =>
      parameters.map((name) => (at > 0 && (name === 'k' || name === 'v') ? make(name) : shared.get(name)!)),
    ).flat();
    const sizes = extents.map((name) => extentIn(name, sizesOf(data)));
    const times: number[] = [];
    for (const usesProgrammaticLaunch of [false, true]) {
      const program = own(
        new bench.cuda.Program({
          device: bench.device,
          extents: extents.map((name, i) => ({ name, most: Math.max(CAPACITY, sizes[i]!) })),
          inputs: [],
          outputs: [],
          slots: held.map((target) => ({ memory: target, offset: 0, bytes: target.sizeBytes })),
          launches: Array.from({ length: turns }, (_, at) => ({
            name: 'decode',
            ...bench.kernel(text),
            slots: parameters.map((_name, i) => at * parameters.length + i),
            tensorMaps: [],
            launch,
            usesProgrammaticLaunch,
          })),
        }),
      );
      const launches = Array.from({ length: turns }, (_, at) => at);
      const request = { extents: sizes, launches, warmup: 2, repeats: ROUNDS, perSample: Math.max(64, turns) };
      times.push((1000 * median(await program.time(request))) / request.perSample);
    }
    return times;
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}

describe('attention of decoding', { skip }, () => {
  it('is timed in every schedule', async () => {
    const bench = new Bench();
    const runUp = makeRunUp(bench.cuda, bench.device);
    const read = await measureReadRate(
      {
        addon: bench.cuda,
        device: bench.device,
        runUp,
        compile: (units) => compileCubins(units, { arch: bench.limits.arch, keepsGoing: true }),
      },
      ROUNDS,
      0.5,
    );
    runUp.release();
    const rows: Row[] = [];
    const calls = CALLS.map(([heads, kvHeads, paths, length]) => {
      const s = model(heads, kvHeads, paths * length);
      const { module, kernel } = attentionModule(s);
      const plans = [...attentionSchedules(kernel, module, bench.limits), ...LARGE_CLUSTERS].filter(
        (plan) =>
          plan.skeleton === 'mma' &&
          plan.queries === 1 &&
          ((plan.teams ?? 1) - 1) * 128 * (plan.cluster ?? 1) < length &&
          ((plan.cluster ?? 1) - 1) * 128 < length &&
          isLegalAttention(kernel, module, plan, bench.limits) === true,
      );
      return { heads, kvHeads, paths, length, s, module, kernel, plans };
    });
    // All at once: a compiler a kernel.
    await bench.prepare(
      calls.flatMap(({ s, plans }) => plans.map((plan) => ({ s, plan }))),
      CAPACITY,
    );
    for (const { heads, kvHeads, paths, length, s, module, kernel, plans } of calls) {
      const data = decoding(paths, length);
      const call = { rows: paths, multiprocessors: bench.device.info.multiprocessors };
      const standard = cudaScheduling.key(defaultAttentionSchedule(kernel, module, bench.limits, call));
      for (const plan of plans) {
        const key = cudaScheduling.key(plan);
        const label = `${heads}/${kvHeads} heads, ${paths} × ${length}, ${key}${key === standard ? ' (default)' : ''}`;
        let microseconds: readonly number[];
        try {
          microseconds = await timeOf(bench, s, plan, data);
        } catch (error) {
          if (plan.cluster !== 16) throw error;
          console.log(`${label}: ${String(error)}`);
          continue;
        }
        assert(microseconds.every((time) => time > 0 && time < 50_000));
        rows.push({ label, microseconds, bytes: paths * length * kvHeads * 128 * 4 });
      }
    }
    console.log(`read rate ${(read / 1e9).toFixed(0)} GB/s; µs a launch: one after another, programmatic`);
    for (const { label, microseconds, bytes } of rows) {
      const times = microseconds.map((time) => time.toFixed(1).padStart(8)).join('');
      const rates = microseconds.map((time) => (bytes / time / 1e3).toFixed(0).padStart(6)).join('');
      const share = (bytes / Math.min(...microseconds) / 1e-6 / read).toFixed(2);
      console.log(`${label.padEnd(52)}${times} µs${rates} GB/s ${share} of read`);
    }
    bench.release();
  });
});
