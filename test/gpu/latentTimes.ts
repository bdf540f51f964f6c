/**
 * Times of latent attention in DeepSeek's widths on a Hopper GPU: `node dist/test/gpu/latentTimes.js [heads]`. Texts of
 * a call have paths of their own; calls in turn read rows of their own, more than a cache holds.
 */
import type { ClusterSize, CudaAttentionSchedule } from '../../ir/cuda.js';
import { pathShape } from '../codegen/cuda/pathSchedules.js';
import { Bench, skip } from './attentionBench.js';
import { layOutCalls, TIMED_CAPACITY, timedCache, timeOf } from './attentionTimes.js';

const HEADS = Number(process.argv[2] ?? 16);
const [RANK, TAIL] = [512, 64];
/** Rows of keys, 1,152 bytes each, of all calls in turn: 600 MB. */
const ROWS = 1 << 19;
/** Bytes a second of a whole read. */
const BANDWIDTH = 4.4e12;

if (skip !== false) throw new Error(skip);
const bench = new Bench();
const s = { ...pathShape(HEADS, 1, RANK, 'bf16'), tail: TAIL, cacheRows: ROWS };
const cache = timedCache(bench, s, ROWS);
const planOf = (cluster: ClusterSize, teams?: number): CudaAttentionSchedule => ({
  ...{ kind: 'attention', skeleton: 'mma', queries: 1, keys: 32 },
  ...(cluster === 1 ? {} : { cluster }),
  ...(teams === undefined ? {} : { teams }),
});

for (const [texts, keys] of [
  [1, 512],
  [1, 1024],
  [1, 4096],
  [1, 32_768],
  [8, 4096],
  [16, 4096],
  [32, 4096],
  [64, 1024],
  [64, 4096],
  [128, 4096],
] as const) {
  const turns = Math.min(24, Math.floor(ROWS / (texts * keys)));
  const calls = Array.from({ length: turns }, (_, turn) => ({
    paths: texts,
    lists: {
      begin: Int32Array.from({ length: texts }, (_v, text) => text * keys),
      position: new Int32Array(texts).fill(keys - 1),
      key: Int32Array.from({ length: texts * keys }, (_v, i) => turn * texts * keys + i),
    },
  }));
  const laid = layOutCalls(bench, s, calls, cache);
  const floor = (texts * keys * (RANK + TAIL) * 2) / BANDWIDTH;
  const times: string[] = [];
  for (const cluster of [1, 2, 4, 8, 16] as const) {
    if (texts * cluster * Math.ceil(HEADS / 16) > 300) continue;
    for (const teams of [undefined, 2]) {
      const plan = planOf(cluster, teams);
      try {
        await bench.prepare([{ s, plan }], TIMED_CAPACITY);
        const request = { rounds: 20, launches: turns };
        const time = await timeOf(bench, s, plan, calls[0]!, laid.memory, request);
        times.push(`${cluster}${teams === undefined ? '' : ' by teams'}: ${time.toFixed(1)}`);
      } catch (error) {
        times.push(`${cluster}: ${String(error)}`);
      }
    }
  }
  console.log(
    `${texts} × ${keys} keys, floor ${(floor * 1e6).toFixed(1)} µs; blocks of a cluster: ${times.join(', ')}`,
  );
  laid.release();
}
for (const each of cache.values()) each.release();
bench.release();
