/** Steps over rows of states on a device, held against its own scoring. */
import assert from 'node:assert/strict';
import type { LoadedModel } from '../../commands/loadModel.js';
import { scoreInputs } from '../../commands/scorer.js';
import type { DeviceModel } from '../../engine/device.js';
import { SCORE } from '../../ir/function.js';
import { pathsOfWalk, scoreInputs as scoredPaths, type WalkOptions, walkStates } from './stateWalk.js';

/** Paths that are scored in a call. */
const PATHS = 8;

/** Throws at the first step of a walk whose log-probabilities lack the bits of scoring. Returns how many there are. */
export async function checkWalk(
  { executor }: Pick<LoadedModel, 'executor'>,
  device: Pick<DeviceModel, 'step'>,
  options: WalkOptions,
): Promise<number> {
  const walk = walkStates(options);
  const wanted = new Map<string, number>();
  const paths = pathsOfWalk(walk);
  for (let at = 0; at < paths.length; at += PATHS) {
    const { inputs, keys } = scoredPaths(paths.slice(at, at + PATHS));
    const { outputs } = await executor.call(SCORE, scoreInputs(inputs, executor));
    const logProb = outputs['logProb'];
    assert.ok(logProb instanceof Float32Array);
    logProb.forEach((x, i) => wanted.set(keys[i]!, x));
  }
  // One behind another, as engines send them.
  const answers = await Promise.all(walk.map(({ message }) => device.step(message)));
  answers.forEach(({ logProb }, i) => {
    const expected = walk[i]!.asked.map((path) => wanted.get(path.join()));
    assert.deepEqual([...logProb], expected, `step ${i} of ${walk.length}`);
  });
  return walk.reduce((count, { asked }) => count + asked.length, 0);
}
