/**
 * Every kernel that the passes make of a model, with every skeleton, on a real device. Models of random shapes and
 * random legal schedules are checked against float64. All tiles of a skeleton must give the same bits, and in bf16 all
 * skeletons on tensor cores must.
 */
import { scoreOf } from '../../ir/plan.js';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CudaKernelText } from '../../ir/cuda.js';
import { readSettings } from '../../settings.js';
import { checkKernels } from '../codegen/cuda/checkKernels.js';
import { CASE_CAPACITY, randomCases } from '../codegen/cuda/randomCases.js';
import { randomBatch } from '../codegen/cuda/randomModel.js';
import { deviceHere } from './device.js';
import { Launcher } from './launcher.js';
import { temporaryFolder } from './support.js';

const { arch, skip } = await deviceHere();

const SEED = readSettings().testSeed;

/** A persistent kernel on a single cluster: its blocks process many tiles in turn. On a whole GPU each has one. */
const onOneCluster = (text: CudaKernelText): CudaKernelText =>
  text.launch.gridX.kind === 'persistent'
    ? { ...text, launch: { ...text.launch, gridX: { kind: 'constant', count: text.launch.cluster } } }
    : text;
const GRIDS: readonly (readonly [string, (text: CudaKernelText) => CudaKernelText])[] = [
  ['the whole GPU', (text) => text],
  ['one cluster', onOneCluster],
];

describe('kernels of random models', { skip }, () => {
  it('agree with float64 under every skeleton, and have the same bits under all of its tiles', async () => {
    assert(typeof arch === 'string');
    console.log(`shapes and schedules of seed ${SEED}; others: TILEWRIGHT_TEST_SEED=${SEED + 1}`);
    const launcher = new Launcher(arch);
    const cases = randomCases(temporaryFolder(), SEED, launcher.facts);
    const texts = cases.flatMap(({ list }) => list.flatMap((checked) => checked.texts.map(({ text }) => text)));
    const { count, seconds } = await launcher.load(texts);
    console.log(`${count} kernels compiled in ${seconds.toFixed(1)} s`);
    for (const { model, list, sizes } of cases) {
      for (const [each, grid, place] of sizes.flatMap((size) => GRIDS.map(([name, of]) => [size, of, name] as const))) {
        const begin = performance.now();
        const where = `${model.name}; T ${each.T}, R ${each.R}; on ${place}`;
        await checkKernels(list, {
          module: scoreOf(model.plan),
          tensors: model.tensors,
          ...randomBatch(each, model.vocab, SEED),
          capacity: CASE_CAPACITY,
          where,
          launch: (text, memory, current, capacity) => launcher.launch(grid(text), memory, { ...current }, capacity),
        });
        console.log(`${where}: ${((performance.now() - begin) / 1000).toFixed(1)} s`);
      }
    }
    launcher.release();
  });
});
