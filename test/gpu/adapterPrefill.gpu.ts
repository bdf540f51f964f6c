/**
 * Contractions of many rows with adapters on a real device: near to float64, the same bits under every schedule of
 * tensor cores, rows without adapter as in kernels without any, and rows with one as if all others had it too.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toleranceOf } from '../../autotune/cuda/compare.js';
import { isLegalCuda } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { ROW_PAD } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { arrangeAdapted, interpretAdapted, withAdapters } from '../codegen/cuda/adapters.js';
import { layerGemm, type WgmmaCase } from '../codegen/cuda/wgmmaKernels.js';
import { deviceHere } from './device.js';
import { Launcher } from './launcher.js';

const device = await deviceHere();

const schedule = (
  skeleton: CudaGemmSchedule['skeleton'],
  [tm, tn, tk, stages]: readonly [number, number, number, number],
  mode: CudaGemmSchedule['mode'] = 'cooperative',
  more: Partial<Pick<CudaGemmSchedule, 'cluster' | 'remainderTn'>> = {},
): CudaGemmSchedule => ({ kind: 'gemm', skeleton, tm, tn, tk, stages, cluster: 1, raster: 2, mode, ...more });

/** Of tensor cores, which give the same bits, and one of CUDA cores, which does not. */
const SCHEDULES = [
  schedule('mma', [128, 128, 64, 2]),
  schedule('wgmma', [128, 256, 64, 4], 'cooperative', { cluster: 2 }),
  schedule('wgmma', [128, 192, 64, 5], 'pingpong', { cluster: 2 }),
  schedule('wgmma', [128, 256, 64, 3], 'deferred', { cluster: 2 }),
  schedule('wgmma', [128, 256, 64, 3], 'deferred'),
  schedule('wgmma', [128, 256, 64, 3], 'deferred', { remainderTn: 128 }),
  schedule('simt', [32, 128, 32, 1]),
];
const HIDDEN = 512;
const SLOTS = 5;
const ROWS = [130, 700];
/** Most rows of calls that are compared with float64: it takes long. */
const INTERPRETED_ROWS = 130;
/** Slots of rows: all one adapter's; in runs; in turns; of base rows and adapters; whole tiles of either. */
const PATTERNS: readonly ((row: number) => number)[] = [
  () => 3,
  (row) => Math.floor(row / 50) % SLOTS,
  (row) => row % SLOTS,
  (row) => (Math.floor(row / 7) % (SLOTS + 1)) - 1,
  (row) => (row < 300 ? 3 : row < 500 ? -1 : 1),
];

type Values = ReadonlyMap<string, Float64Array>;

describe('contractions of many rows with adapters', { skip: device.skip }, () => {
  for (const [which, rank] of [
    ['qkv', 16],
    ['o', 64],
    ['gateUp', 16],
    ['gateUp', 48],
  ] as const)
    it(`have the same bits under every schedule and in any company: ${which}, rank ${rank}`, async () => {
      assert(typeof device.arch === 'string');
      const launcher = new Launcher(device.arch);
      const plain = layerGemm(which, HIDDEN, HIDDEN, 128);
      const own = withAdapters(plain, { slots: SLOTS, rank });
      const legal = SCHEDULES.filter((each) => isLegalCuda(own.kernel, own.module, each, launcher.facts) === true);
      assert(legal.length > 2, 'too few schedules are legal');
      const outputs = own.kernel.segments.flatMap((segment) => segment.outputs.map(({ buffer }) => buffer));
      // All at once: compilers take seconds for each.
      await launcher.load(
        ROWS.flatMap((rows) => {
          const slotOf = Array.from({ length: rows }, () => 0);
          const adapted = legal.flatMap((each) => arrangeAdapted(own, slotOf, each).emitted);
          return [...adapted, ...arrangeAdapted(plain, slotOf, legal[0]!).emitted];
        }),
      );
      const run = async (one: WgmmaCase, slotOf: readonly number[], each: CudaGemmSchedule): Promise<Values> => {
        const { emitted, memory, values } = arrangeAdapted(one, slotOf, each);
        const rows = slotOf.length;
        for (const text of emitted) await launcher.launch(text, memory, { T: rows, R: 1 }, roundUp(rows, ROW_PAD));
        return values();
      };
      for (const rows of ROWS)
        for (const [p, pattern] of PATTERNS.entries()) {
          const slotOf = Array.from({ length: rows }, (_, row) => pattern(row));
          const wanted = rows <= INTERPRETED_ROWS ? interpretAdapted(own, slotOf) : undefined;
          let first: Values | undefined;
          for (const each of legal) {
            const got = await run(own, slotOf, each);
            const where = `${rows} rows in pattern ${p} under ${JSON.stringify(each)}`;
            for (const name of outputs) {
              if (first !== undefined && each.skeleton !== 'simt')
                assert.deepEqual(got.get(name), first.get(name), `${name}, ${where}`);
              const buffer = own.module.buffers.find((decl) => decl.name === name)!;
              if (buffer.dtype === 'u8' || wanted === undefined) continue;
              const { relative, absolute } = toleranceOf(own.kernel, own.module, buffer);
              const want = wanted.get(name)!;
              const scale = Math.sqrt(want.reduce((sum, x) => sum + x * x, 0) / want.length);
              got.get(name)!.forEach((x, i) => {
                const y = want[i]!;
                assert(
                  Math.abs(x - y) <= absolute * scale + relative * Math.abs(y),
                  `${name} ${i} is ${x}, not ${y}, ${where}`,
                );
              });
            }
            first ??= got;
          }
          // Each row beside others: as without adapters, or as where all rows have its own.
          for (const slot of new Set(slotOf)) {
            const alone = await run(
              slot < 0 ? plain : own,
              Array.from(slotOf, () => slot),
              legal[0]!,
            );
            for (const name of outputs) {
              const [got, want] = [first!.get(name)!, alone.get(name)!];
              const columns = got.length / rows;
              slotOf.forEach((each, row) => {
                const range = [row * columns, (row + 1) * columns] as const;
                if (each === slot)
                  assert.deepEqual(
                    got.subarray(...range),
                    want.subarray(...range),
                    `${name}, row ${row} of slot ${slot}, ${rows} rows in pattern ${p}`,
                  );
              });
            }
          }
        }
      launcher.release();
    });
});
