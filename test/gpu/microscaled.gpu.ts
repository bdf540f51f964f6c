/** Products of experts in MXFP4 on a real device: the bits of the same weights in bf16, in every tile. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { isLegalCuda } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { ROW_PAD } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import type { Arranged } from '../codegen/cuda/emulate.js';
import { arrangedMicro, MICRO_SIZES, microCase, outputsOf, SMALL } from '../codegen/cuda/microCases.js';
import { deviceHere } from './device.js';
import { Launcher } from './launcher.js';

const { arch, skip } = await deviceHere();

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const tile = (
  skeleton: CudaGemmSchedule['skeleton'],
  tm: number,
  tn: number,
  tk: number,
  stages: number,
  more: Partial<CudaGemmSchedule> = {},
): CudaGemmSchedule => ({ ...GEMM, skeleton, tm, tn, tk, stages, ...more });

/** Of bf16, and of MXFP4. */
const DECODED = [tile('mma', 32, 64, 32, 3), tile('wgmma', 128, 128, 64, 4, { mode: 'pingpong' })];
const STORED = [
  tile('micro', 8, 48, 192, 3),
  tile('micro', 8, 176, 64, 8),
  tile('micro', 16, 240, 192, 3),
  tile('micro', 8, 96, 192, 3, { raster: 2 }),
  tile('micro', 16, 192, 128, 3, { raster: 2 }),
  tile('micro', 32, 256, 64, 4, { raster: 2 }),
  tile('micro', 32, 96, 128, 3),
  tile('micro', 64, 192, 128, 4),
  tile('micro', 128, 192, 128, 4),
  tile('micro', 128, 64, 128, 5),
];

describe('experts in MXFP4', { skip: skip === false && arch !== 'sm_90a' ? 'they need Hopper' : skip }, () => {
  const own = microCase(SMALL);
  const arranged = [
    ...DECODED.map((schedule) => ({ schedule, at: arrangedMicro(own, schedule, true) })),
    ...STORED.map((schedule) => ({ schedule, at: arrangedMicro(own, schedule, false) })),
  ];
  let launcher: Launcher;
  before(async () => {
    assert(typeof arch === 'string');
    launcher = new Launcher(arch);
    await launcher.load(arranged.flatMap(({ at }) => at.emitted));
  });
  after(() => launcher.release());

  async function run({ emitted, memory, values }: Arranged): Promise<ReadonlyMap<string, Float64Array>> {
    // Room for the pairs of a row and an expert, two a row.
    const capacity = 2 * roundUp(Math.max(64, MICRO_SIZES.T), ROW_PAD);
    for (const text of emitted) await launcher.launch(text, memory, MICRO_SIZES, capacity);
    return values();
  }

  it('have the bits of bf16', async () => {
    const first = await run(arranged[0]!.at);
    for (const { schedule, at } of arranged.slice(1)) {
      for (const kernel of own.products)
        assert.equal(
          isLegalCuda(kernel, schedule.skeleton === 'micro' ? own.module : own.decoded, schedule, launcher.facts),
          true,
        );
      const values = await run(at);
      for (const name of outputsOf(own)) {
        const [got, wanted] = [values.get(name)!, first.get(name)!];
        assert(wanted.some((x) => Math.abs(x) > 0.1));
        assert(
          got.every((x, i) => Object.is(x, wanted[i])),
          `${schedule.skeleton} ${schedule.tm}×${schedule.tn}: ${name}`,
        );
      }
    }
  });
});
