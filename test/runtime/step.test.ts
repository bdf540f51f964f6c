/**
 * The function step of a small model on the fake GPU, with keys and values in its memory: a generator gets the same
 * bits however prompts are cut, and again from pages that it kept.
 */
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { RESERVED_ROWS } from '../../ir/function.js';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { Engine } from '../../engine/engine.js';
import type { DeviceModel } from '../../engine/device.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { extentsOf, hostLibrary } from '../codegen/cuda/emulate.js';
import { randomModel } from '../codegen/cuda/randomModel.js';
import { describeFake } from '../support/fakeCuda/fakeDriver.js';
import { buildPackShim, PACK_PTX } from './cuda/packShim.js';
import { entryText } from './cuda/ptxEntry.js';
import { temporaryFolder } from './kernels.js';

const CACHE_TOKENS = 16 * 24;
const PROMPTS = [12, 1, 40, 23].map((length, i) => Array.from({ length }, (_, at) => (at * 37 + i * 101) % 500));

describeFake('steps on the fake GPU', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

  it('give the same bits in any calls, computed or found in pages', async () => {
    const { plan } = randomModel(folder, 3, 'bf16', TYPICAL_FACTS.sm_80, {
      cacheTokens: CACHE_TOKENS,
      cacheRows: RESERVED_ROWS,
      feeds: true,
    });
    const { kernels, distinct } = emitCudaPlan(plan);
    fake.host(hostLibrary(distinct.values(), mkdtempSync(join(folder, 'kernels-'))));
    const cubins = new Map(
      [...distinct].map(([symbol, text]) => [
        symbol,
        encode(entryText(symbol, text.parameters.length, 0, extentsOf(text))),
      ]),
    );
    const checkpoint = describeRandomCheckpoint(folder, 3);
    const executor = await openCudaExecutor({
      plan,
      kernels,
      cubins,
      packCubin: encode(PACK_PTX),
      tensors: checkpoint.tensors,
      ordinals: [0],
      tokens: { first: CACHE_TOKENS, most: CACHE_TOKENS },
      addon: fake.addon,
    });
    const stepper = deviceModelOf({ executor, checkpoint }, CACHE_TOKENS, { feeds: true });
    const continued = (generator: Engine) =>
      Promise.all(
        PROMPTS.map(async (prompt) => {
          const { tokens, promptScores } = await generator.generate({ prompt, maxNewTokens: 4, scoreFrom: 1 });
          return { tokens, promptScores };
        }),
      );
    let [running, most] = [0, 0];
    const counted: DeviceModel = {
      ...stepper,
      step: (message) => {
        most = Math.max(most, ++running);
        return stepper.step(message).finally(() => running--);
      },
    };
    // Calls that wait until the tokens of the one before them are read.
    const generator = Engine.of({ ...counted, limits: { ...stepper.limits, keptRows: 0 } });
    const wanted = await continued(generator);
    expect(wanted.flatMap(({ tokens }) => tokens).every(({ logProb }) => logProb < 0)).toBe(true);
    expect(most).toBe(1);
    const cut = Engine.of({ ...counted, limits: { ...stepper.limits, tokens: 9 } });
    expect(await continued(cut)).toEqual(wanted);
    expect(most).toBe(2);
    // Pages that hold the beginning of a prompt are used again.
    const { tokens, foundTokens } = await generator.generate({ prompt: PROMPTS[2]!, maxNewTokens: 4 });
    expect(tokens).toEqual(wanted[2]!.tokens);
    expect(foundTokens).toBe(39);
    await executor.close();
    expect(fake.live()).toBe(0);
  });
});
