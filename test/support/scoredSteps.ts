/** Steps against scoring: generating gives the tokens of a text the bits of scoring it, in one piece or in many. */
import { expect } from 'vitest';
import type { LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import { SCORE } from '../../ir/function.js';

/** Compares them for calls of any tokens, of 13 and of one. Returns the model's device, with the log-likelihoods. */
export async function expectBitsOfScoring(
  model: LoadedModel,
  text: readonly number[],
  cacheTokens: number,
): Promise<{ readonly device: DeviceModel; readonly logProbs: readonly number[] }> {
  const all = Int32Array.from(text, (_, i) => i);
  const { outputs } = await model.executor.call(SCORE, {
    tokens: Int32Array.from(text),
    position: all,
    subtreeEnd: all.map(() => text.length),
    row: all.slice(0, -1),
    target: Int32Array.from(text.slice(1)),
  });
  const logProbs = [...(outputs['logProb'] as Float32Array)];
  expect(logProbs).toHaveLength(text.length - 1);
  const device = deviceModelOf(model, cacheTokens, { feeds: true });
  for (const tokens of [device.limits.tokens, 13, 1]) {
    const engine = Engine.of({ ...device, limits: { ...device.limits, tokens, rows: Math.min(tokens, 64) } });
    const { promptScores } = await engine.generate({ prompt: text, maxNewTokens: 0, scoreFrom: 1 });
    expect(promptScores.map(({ logProb }) => logProb)).toEqual(logProbs);
  }
  return { device, logProbs };
}
