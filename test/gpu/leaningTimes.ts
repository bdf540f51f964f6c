/**
 * `node dist/test/gpu/leaningTimes.js`: attention of a layer with ALiBi (BLOOM 7B1) and of one with chunks (Llama 4
 * Scout), on CUDA cores and on tensor cores. Microseconds of a launch; what the bytes of keys and values allow beside.
 */
import { attentionSchedules, defaultAttentionSchedule } from '../../codegen/cuda/attention/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { paperSlopes } from '../../models/decoder/slopes.js';
import { attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { Bench, skip } from './attentionBench.js';
import { layOutCalls, type TimedCall, timedCache, timeOf, TIMED_CAPACITY } from './attentionTimes.js';

const ROWS = 1 << 17;
const layer = (heads: number, kvHeads: number, more: Partial<Shape>): Shape => ({
  ...{ heads, kvHeads, headDim: 128, dtype: 'bf16', mask: 'path', cacheRows: ROWS },
  ...more,
});
const LAYERS: Readonly<Record<string, Shape>> = {
  'BLOOM 7B1': layer(32, 32, { sloped: true }),
  'BLOOM 7B1 without slopes': layer(32, 32, {}),
  'Llama 4 Scout, chunks': layer(40, 8, { chunk: 8192 }),
  'Llama 4 Scout, whole paths': layer(40, 8, {}),
};

/** New tokens of each of so many texts, behind keys. */
interface Call {
  readonly texts: number;
  readonly tokens: number;
  readonly keys: number;
}
const CALLS: readonly Call[] = [
  { texts: 1, tokens: 2048, keys: 0 },
  { texts: 4, tokens: 2048, keys: 0 },
  { texts: 1, tokens: 16_384, keys: 0 },
  { texts: 1, tokens: 1, keys: 2047 },
  { texts: 16, tokens: 1, keys: 2047 },
  { texts: 64, tokens: 1, keys: 2047 },
  { texts: 8, tokens: 1, keys: 11_999 },
];

function listsOf({ texts, tokens, keys }: Call): TimedCall {
  const length = tokens + keys;
  const each = <T>(make: (text: number, token: number) => T): T[] =>
    Array.from({ length: texts * tokens }, (_, i) => make(Math.floor(i / tokens), i % tokens));
  return {
    paths: texts * tokens,
    lists: {
      begin: Int32Array.from(each((text) => text * length)),
      position: Int32Array.from(each((_, token) => keys + token)),
      key: Int32Array.from({ length: texts * length }, (_, i) => i % ROWS),
    },
  };
}

async function main(): Promise<void> {
  if (skip !== false) throw new Error(skip);
  const bench = new Bench();
  const { multiprocessors } = bench.device.info;
  for (const [name, s] of Object.entries(LAYERS)) {
    const { module, kernel } = attentionModule(s);
    const slopes = new bench.cuda.Memory(bench.device, 4096);
    slopes.write(0, Buffer.from(Float32Array.from([...paperSlopes(s.heads), ...new Float32Array(512)]).buffer));
    const cache = new Map([...timedCache(bench, s, ROWS), ['slopes', slopes] as const]);
    for (const call of CALLS) {
      const timed = listsOf(call);
      const run = call.tokens === 1 ? 1 : undefined;
      const chosen = defaultAttentionSchedule(kernel, module, bench.limits, {
        rows: timed.paths,
        multiprocessors,
        run,
      });
      const all = attentionSchedules(kernel, module, bench.limits);
      const plans = new Map<string, CudaAttentionSchedule>([['chosen', chosen]]);
      for (const skeleton of ['mma', 'wgmma'] as const) {
        const other = call.tokens > 1 ? all.find((each) => each.skeleton === skeleton) : undefined;
        if (other !== undefined && chosen.skeleton !== skeleton) plans.set(skeleton, other);
      }
      // For prompts, kernels on CUDA cores would need more blocks than a launch may have.
      if (call.tokens === 1)
        plans.set(
          'simt',
          all.find(({ skeleton }) => skeleton === 'simt')!,
        );
      await bench.prepare(
        [...plans.values()].map((plan) => ({ s, plan })),
        TIMED_CAPACITY,
      );
      const laid = layOutCalls(bench, s, [timed], cache);
      for (const [which, plan] of plans) {
        const samples = { rounds: 5, launches: call.tokens > 1 ? 2 : 20 };
        const time = await timeOf(bench, s, plan, timed, laid.memory, samples);
        const what = `${call.texts} x ${call.tokens} tokens behind ${call.keys} keys`;
        console.log(`${name}: ${what}, ${which} (${cudaScheduling.key(plan)}): ${time.toFixed(1)} us`);
      }
      laid.release();
    }
    for (const memory of cache.values()) memory.release();
  }
  bench.release();
}

await main();
