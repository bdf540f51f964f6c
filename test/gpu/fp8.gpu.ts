/**
 * Contractions in E4M3 on a real device: the same bits under every schedule and beside any other rows, as near to
 * float64 as tensor cores' sums are, and whole evaluations with `--quantize fp8` beside float64.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { toleranceOf } from '../../autotune/cuda/compare.js';
import { isLegalCuda } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { ROW_PAD } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { arrangeLayerGemm, interpretLayerGemm } from '../codegen/cuda/emulateLayerGemm.js';
import { inE4m3, layerGemm } from '../codegen/cuda/wgmmaKernels.js';
import { compareEveryAnswer, printCompared } from '../support/everyAnswer.js';
import { readSamples, tilewright } from './command.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { compareGolden } from './golden.js';
import { Launcher } from './launcher.js';
import { temporaryFolder } from './support.js';

const device = await deviceHere();
const data = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');

const schedule = (
  skeleton: CudaGemmSchedule['skeleton'],
  [tm, tn, tk, stages]: readonly [number, number, number, number],
  mode: CudaGemmSchedule['mode'] = 'cooperative',
  cluster: 1 | 2 = 1,
): CudaGemmSchedule => ({ kind: 'gemm', skeleton, tm, tn, tk, stages, cluster, raster: 2, mode });

const SCHEDULES = [
  schedule('wgmma', [128, 256, 128, 4], 'cooperative', 2),
  schedule('wgmma', [128, 128, 128, 4], 'cooperative'),
  schedule('wgmma', [128, 192, 128, 4], 'pingpong', 2),
  schedule('wgmma', [64, 64, 128, 3], 'pingpong'),
  schedule('wgmma', [128, 256, 128, 3], 'deferred', 2),
  schedule('wgmma', [128, 240, 128, 3], 'deferred'),
  schedule('wgmma', [128, 128, 128, 5], 'deferred'),
  schedule('skinnyWgmma', [8, 64, 128, 4]),
  schedule('skinnyWgmma', [64, 128, 256, 3]),
];
const MAX_ROWS = 512;
const ROWS = [1, 7, 64, 130, MAX_ROWS];
const HIDDEN = 256;

describe('contractions of E4M3', { skip: device.skip }, () => {
  for (const which of ['o', 'gateUp'] as const)
    it(`have the same bits under every schedule, for 1 to ${MAX_ROWS} rows: ${which}`, async () => {
      assert(typeof device.arch === 'string');
      const launcher = new Launcher(device.arch);
      const own = inE4m3(layerGemm(which, HIDDEN, HIDDEN, 128), true);
      const legal = SCHEDULES.filter((each) => isLegalCuda(own.kernel, own.module, each, launcher.facts) === true);
      assert(legal.length > 4, 'too few schedules are legal');
      const outputs = own.kernel.segments.flatMap((segment) => segment.outputs.map(({ buffer }) => buffer));
      for (const rows of ROWS) {
        const wanted = interpretLayerGemm(own, rows);
        let first: ReadonlyMap<string, Float64Array> | undefined;
        for (const each of legal) {
          const { emitted, memory, values } = arrangeLayerGemm(own, rows, each);
          await launcher.load(emitted);
          for (const text of emitted) await launcher.launch(text, memory, { T: rows, R: 1 }, roundUp(rows, ROW_PAD));
          const got = values();
          const where = `${rows} rows under ${JSON.stringify(each)}`;
          for (const name of outputs) {
            if (first !== undefined) assert.deepEqual(got.get(name), first.get(name), `${name}, ${where}`);
            const buffer = own.module.buffers.find((decl) => decl.name === name)!;
            if (buffer.dtype === 'u8') continue;
            const { relative, absolute } = toleranceOf(own.kernel, own.module, buffer);
            const want = wanted.get(name)!;
            const scale = Math.sqrt(want.reduce((sum, x) => sum + x * x, 0) / want.length);
            got.get(name)!.forEach((x, i) => {
              const y = want[i]!;
              assert(Math.abs(x - y) <= absolute * scale + relative * Math.abs(y), `${name} ${i} is ${x}, not ${y}`);
            });
          }
          first ??= got;
        }
      }
      launcher.release();
    });
});

describe('answers with --quantize fp8', { skip: skipWithout(device.skip, data, "HellaSwag's questions") }, () => {
  /** Share of the choices of float64. Rounding alone, in PyTorch, keeps 95 % with every layer in FP8. */
  const SAME_CHOICE = 0.94;

  it('choose as float64 does, and have the same bits in any batch and from the function step', async () => {
    const model = join(SHARED, 'checkpoints', 'demo');
    const run = async (flags: readonly string[]): Promise<string> => {
      const out = temporaryFolder();
      const common = ['run', model, '--target', 'cuda', '--quantize', 'fp8', '--task', 'hellaswag', '--data', data];
      await tilewright([...common, '--out', out, ...flags], 600);
      return readSamples(out);
    };
    const { error, agreement } = compareGolden(
      await run([]),
      readFileSync(join(SHARED, 'golden', 'demo.jsonl'), 'utf8'),
    );
    console.log(`demo in FP8: mean error ${error.toFixed(3)}, same choice ${(100 * agreement).toFixed(2)} %`);
    assert(agreement >= SAME_CHOICE, `only ${agreement} of the choices are those of float64`);
    const compared = await compareEveryAnswer({
      ...{ model, data, target: 'cuda', precision: 'fp8', stepQuestions: 500, run },
    });
    console.log(printCompared('demo in FP8', compared));
    assert.deepEqual(
      compared.filter(({ others }) => others > 0).map(({ what }) => what),
      [],
      'ways that give other bits',
    );
  });
});
