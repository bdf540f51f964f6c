/**
 * A plan in stages on real devices gives the same bits as in one piece, whatever the cuts and the way between stages.
 * With a single GPU, all stages are on it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice } from '../../driver/targets/cudaDevice.js';
import { compileCudaKernels, emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { SCORE } from '../../ir/function.js';
import { scoreOf, type Stage } from '../../ir/plan.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { cudaAvailable, requireCuda } from '../../runtime/cuda/addon.js';
import { PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import { type Batch, type CudaScoring, type CudaScoringOptions, openCuda } from '../support/scoring.js';
import { DEMO } from './command.js';
import { archOf } from './launcher.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch = archOf(available);
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
const skip = typeof compiler === 'string' ? compiler : false;

/** Milliseconds. */
const SLACK = 5;

/** Chains of 1 to 90 tokens, of which every third token is scored. */
function batchOf(tokens: number, vocab: number, seed: number): Batch {
  const position = new Int32Array(tokens);
  const subtreeEnd = new Int32Array(tokens);
  for (let at = 0, tree = seed; at < tokens; tree++) {
    const end = Math.min(tokens, at + 1 + ((tree * 37) % 90));
    for (let i = at; i < end; i++) ((position[i] = i - at), (subtreeEnd[i] = end));
    at = end;
  }
  const rows = Math.ceil(tokens / 3);
  const draw = (i: number): number => ((i + 1) * 7919 + seed * 104_729) % vocab;
  return {
    tokens: Int32Array.from({ length: tokens }, (_, i) => draw(i)),
    position,
    subtreeEnd,
    row: Int32Array.from({ length: rows }, (_, i) => 3 * i),
    target: Int32Array.from({ length: rows }, (_, i) => draw(i + tokens)),
  };
}

async function load(): Promise<Omit<CudaScoringOptions, 'ordinals'> & { readonly vocab: number }> {
  if (typeof arch !== 'string' || !available.ok) throw new Error('no device');
  const { sharedBytesPerBlock, multiprocessors } = available.devices[0]!;
  const checkpoint = openCheckpoint(DEMO);
  const model = compileModel(checkpoint, cuda, cudaDevice({ arch, sharedBytesPerBlock, multiprocessors }, 'bf16'), {
    batchTokens: 2048,
  });
  const plan = scoreOf(model.plan);
  const emitted = emitCudaPlan(model.plan);
  const { cubins } = await compileCudaKernels(emitted, arch, {
    driverVersion: available.driverVersion,
  });
  return {
    plan,
    kernels: emitted.kernels[SCORE]!,
    cubins,
    packCubin: cubins.get(PACK_SYMBOL)!,
    tensors: checkpoint.tensors,
    vocab: checkpoint.config.vocabSize,
  };
}

/** `count` stages of about as many launches, moved by `shift`. */
function cut(launches: number, count: number, shift: number): readonly Stage[] {
  const ends = Array.from({ length: count }, (_, i) =>
    i + 1 === count
      ? launches
      : Math.max(i + 1, Math.min(launches - count + i + 1, Math.round((launches * (i + 1)) / count) + shift)),
  );
  return ends.map((end, i) => ({ first: ends[i - 1] ?? 0, end }));
}

/** The most by which a device's times may be off by the host's clock, in milliseconds. */
function clockErrorOf(ordinal: number): number {
  const { Clock, Device } = requireCuda();
  const device = new Device(ordinal);
  const clock = new Clock(device);
  const { errorMilliseconds } = clock;
  clock.release();
  device.release();
  return errorMilliseconds;
}

describe('a plan in stages', { skip }, () => {
  it('gives the bits of one piece, whatever the cuts and the way between devices', async () => {
    const { vocab, ...options } = await load();
    const sizes = [2048, 1500, 700, 129, 64, 17, 1, 2048, 333];
    const batches = sizes.flatMap((size, i) => [batchOf(size, vocab, i), batchOf(Math.ceil(size / 2), vocab, i + 50)]);
    const score = async (
      change: Pick<CudaScoringOptions, 'ordinals' | 'stages' | 'usesPeers'>,
    ): Promise<{
      readonly scored: readonly Awaited<ReturnType<CudaScoring['score']>>[];
      readonly routes: string;
      readonly clockError: number;
    }> => {
      let routes = '';
      const executor = await openCuda({
        ...options,
        ...change,
        onRoutes: (found) => {
          routes = [...new Set(found)].join();
        },
      });
      const clockError = clockErrorOf(0);
      assert(clockError < 1, `the device's clock is known to ±${clockError} ms only`);
      const from = performance.timeOrigin + performance.now();
      const scored = await Promise.all(batches.map((batch) => executor.score(batch)));
      const until = performance.timeOrigin + performance.now();
      // An allowance for clocks that drift apart: this process's, the system's, the device's.
      for (const { begin, end } of scored.flatMap(({ spans }) => spans ?? []))
        assert(
          begin <= end && begin >= from - SLACK && end <= until + SLACK,
          `${begin} to ${end} is not within ${from} to ${until}`,
        );
      await executor.close();
      return { scored, routes, clockError };
    };
    const { scored: wanted } = await score({ ordinals: [0] });
    const devices = available.ok ? available.devices.length : 0;
    const launches = options.plan.launches.length;
    for (const count of [2, 3, 5]) {
      for (const shift of [0, 1, -1]) {
        for (const [ways, ordinals, usesPeers] of [
          ['one device', [0], true],
          ['the host', [0], false],
          ['devices', Array.from({ length: devices }, (_, i) => i), true],
        ] as const) {
          if (ways === 'devices' && devices === 1) continue;
          const stages = cut(launches, count, shift);
          const { scored, routes, clockError } = await score({
            stages,
            usesPeers,
            ordinals: stages.map((_, i) => ordinals[i % ordinals.length]!),
          });
          if (shift === 0)
            console.log(
              `${count} stages by way of ${ways}: ${routes}; clocks to ±${(clockError * 1000).toFixed(0)} µs`,
            );
          scored.forEach(({ logProb, isArgmax }, i) => {
            assert.deepEqual([...logProb], [...wanted[i]!.logProb], `${count} stages, ${ways}, micro-batch ${i}`);
            assert.deepEqual([...isArgmax], [...wanted[i]!.isArgmax]);
          });
        }
      }
    }
  });

  it('measures each launch and finds nothing wrong', async () => {
    const { vocab, ...options } = await load();
    const executor = await openCuda({
      ...options,
      ordinals: [0, 0, 0],
      stages: cut(options.plan.launches.length, 3, 0),
    });
    const batch = batchOf(1000, vocab, 3);
    const { launches } = await executor.profile(batch);
    assert.equal(launches.length, options.plan.launches.length);
    for (const { path, nanoseconds } of launches) assert(nanoseconds >= 0, path);
    assert.equal(await executor.diagnose(batch), undefined);
    await executor.close();
  });
});
