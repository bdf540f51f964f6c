/**
 * The demo model's whole CUDA plan through the real addon on the fake driver, which accepts every range, grid and
 * tensor map.
 */
import { expect, it } from 'vitest';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../../../driver/targets/cudaKernels.js';
import { CUDA_ARCHS } from '../../../ir/cuda.js';
import { extentNames, SCORE } from '../../../ir/function.js';
import { scoreOf } from '../../../ir/plan.js';
import { rowsIn, scoringSize, tokensIn } from '../../../ir/scoring.js';
import { openCheckpoint } from '../../../models/checkpoint.js';
import { PACK_ENTRIES } from '../../../runtime/cuda/packKernels.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { openCuda } from '../../support/scoring.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, PACK_PTX } from './packShim.js';
import { entryText } from './ptxEntry.js';
import { casesHere } from '../../support/thorough.js';

describeFake('the demo model on the fake driver', (fake) => {
  fake.host(buildPackShim(temporaryFolder()).library);
  const checkpoint = openCheckpoint('models/demo');
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
  const packCubin = encode(PACK_PTX);

  it.each(casesHere(CUDA_ARCHS, CUDA_ARCHS.length - 1))('loads, binds and launches everything for %s', async (arch) => {
    const model = compileModel(checkpoint, cuda, cudaDevice(TYPICAL_FACTS[arch], 'bf16'), { batchTokens: 512 });
    const plan = scoreOf(model.plan);
    const { kernels, distinct } = emitCudaPlan(model.plan);
    const cubins = new Map(
      [...distinct.values()].map(({ symbol, parameters, tensorMaps }) => [
        symbol,
        encode(entryText(symbol, parameters.length, tensorMaps.length, extentNames(plan.interface))),
      ]),
    );
    const done: number[] = [];
    const executor = await openCuda({
      plan,
      kernels: kernels[SCORE]!,
      cubins,
      packCubin,
      tensors: checkpoint.tensors,
      ordinals: [0],
      addon: fake.addon,
      onProgress: ({ doneBytes, totalBytes }) => done.push(doneBytes / totalBytes),
    });
    expect(done.at(-1)).toBe(1);
    for (const { tokens, rows } of plan.buckets.map(scoringSize)) {
      const batch = {
        tokens: new Int32Array(tokens).fill(3),
        position: Int32Array.from({ length: tokens }, (_, i) => i % 64),
        subtreeEnd: Int32Array.from({ length: tokens }, (_, i) => Math.min(tokens, (Math.floor(i / 64) + 1) * 64)),
        row: Int32Array.from({ length: rows }, (_, i) => i % tokens),
        target: new Int32Array(rows).fill(5),
      };
      const { bucket, launches } = await executor.profile(batch);
      expect([tokensIn(bucket), rowsIn(bucket)]).toEqual([tokens, rows]);
      expect(launches).toHaveLength(plan.launches.length);
      // Nothing was computed, so no value can be judged, but each launch's results are searched.
      fake.reset();
      await executor.diagnose(batch);
      expect(
        fake.log('launch').filter((line) => line.includes(PACK_ENTRIES.find)).length,
        fake.log().slice(0, 3).join('\n'),
      ).toBeGreaterThanOrEqual(plan.launches.length - 1);
    }
    await executor.close();
    expect(fake.live()).toBe(0);
  });
});
