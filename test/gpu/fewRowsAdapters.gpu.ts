/**
 * Rows of adapters on a real device: every skeleton that adds second factors gives the same bits, rows without adapter
 * have those of a kernel without adapters, and a row has the same in any company. The first factor has the same bits in
 * every tile, and in products that shrink their rows themselves, launched again and again. Against float64 too.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type CudaFacts, emitCudaKernel, isLegalCuda } from '../../codegen/cuda/index.js';
import { type CudaGemmSchedule, SHRINK_ROWS } from '../../ir/cuda.js';
import { ROW_PAD } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import {
  adapterCase,
  arrangeAdapters,
  arrangeBase,
  arrangeShrinking,
  interpretAdapters,
  outputsOf,
  type RowsOfAdapters,
} from '../codegen/cuda/adapterCases.js';
import type { Arranged } from '../codegen/cuda/emulate.js';
import { checkAdapted, same } from './adaptedRows.js';
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

const SCHEDULES: readonly CudaGemmSchedule[] = [
  tile('skinny', 64, 64, 128, 3),
  tile('skinnyWgmma', 16, 64, 64, 5),
  tile('skinnyWgmma', 64, 192, 64, 4),
  tile('skinnyWgmma', 32, 64, 128, 3, { cluster: 2 }),
  tile('mma', 32, 64, 32, 3),
  tile('wgmma', 128, 128, 64, 4),
];

const SHAPE = { hidden: 1024, inter: 1408, headDim: 64 } as const;
/** Calls of products that shrink their rows, and launches of each one behind another. */
const COUNTS: readonly number[] = [1, 5, 16, 33, 64];
const LAUNCHES = 4;
/** 70 rows: two tiles of 64, with base rows and every slot among them. */
const MIXED = Array.from({ length: 70 }, (_, i) => (i % 7 === 3 ? -1 : (i * 5) % 24));
/** Some of them, in other company. */
const CHOSEN = [64, 1, 3, 40];

const CASES = [
  ['qkv', 16],
  ['gateUp', 16],
  ['o', 64],
  ['down', 48],
] as const;

function prepare(which: (typeof CASES)[number][0], rank: number, facts: CudaFacts) {
  const own = adapterCase(which, SHAPE, { slots: 24, rank });
  const legal = SCHEDULES.filter((each) => isLegalCuda(own.kernel, own.module, each, facts) === true);
  console.log(`${which} of rank ${rank}: ${legal.map(({ skeleton, tm }) => `${skeleton} ${tm}`).join(', ')}`);
  assert(legal.length >= 2, 'few skeletons take adapters');
  const all: RowsOfAdapters = { slots: MIXED };
  const few: RowsOfAdapters = { slots: CHOSEN.map((row) => MIXED[row]!), rows: CHOSEN };
  const arranged = legal.map((gemm) => ({ gemm, at: arrangeAdapters(own, all, { gemm }) }));
  const apart = arrangeAdapters(own, few, { gemm: legal[0]! });
  const base = arrangeBase(own, all, legal[0]!);
  const inside = legal
    .filter((each) => isLegalCuda(own.kernel, own.module, { ...each, adapters: 'shrinks' }, facts) === true)
    .flatMap((gemm) =>
      COUNTS.map((count) => {
        const rows = Array.from({ length: count }, (_, i) => i + (count < 16 ? 64 : 0));
        return { gemm, rows, at: arrangeShrinking(own, { slots: rows.map((row) => MIXED[row]!), rows }, gemm) };
      }),
    );
  assert(arch !== 'sm_90a' || inside.length >= COUNTS.length, 'no product shrinks its rows');
  const tiles = SHRINK_ROWS.map((rows) => ({ kind: 'loop', threads: 256, rows }) as const).filter(
    (each) => isLegalCuda(own.shrink, own.module, each, facts) === true,
  );
  const shrinks = tiles.map((each) => emitCudaKernel(own.shrink, own.module, each, { T: 128, R: 128 }));
  const programs = [...arranged, ...inside].flatMap(({ at }) => at.emitted);
  return {
    ...{ own, legal, all, arranged, apart, base, inside, tiles, shrinks },
    texts: [...programs, ...apart.emitted, ...base.emitted, ...shrinks],
  };
}

describe('rows of adapters', { skip }, () => {
  let launcher: Launcher;
  before(() => {
    assert(typeof arch === 'string');
    launcher = new Launcher(arch);
  });
  after(() => launcher.release());

  for (const [which, rank] of CASES)
    it(`${which} of rank ${rank}`, async () => {
      const prepared = prepare(which, rank, launcher.facts);
      const { own, legal, all, arranged, apart, base, inside, tiles, shrinks } = prepared;
      // All at once: compilers take seconds for each.
      await launcher.load(prepared.texts);
      const run = async ({ emitted, memory, values }: Arranged, rows: number, texts = emitted) => {
        // Tensor maps show the rows that memory has.
        for (const text of texts) await launcher.launch(text, memory, { T: rows, R: 1 }, roundUp(rows, ROW_PAD));
        return values();
      };

      const first = await run(arranged[0]!.at, MIXED.length);
      const shrunk = rowsOf(first.get(own.shrink.out)!, MIXED.length);
      for (const [i, text] of shrinks.entries()) {
        const at = arrangeAdapters(own, all, { gemm: legal[0]! });
        const got = rowsOf((await run(at, MIXED.length, [text])).get(own.shrink.out)!, MIXED.length);
        MIXED.forEach((slot, row) => {
          if (slot >= 0) same(got[row]!, shrunk[row]!, `what is shrunk of row ${row} in tiles of ${tiles[i]!.rows}`);
        });
      }
      const got = outputsOf(own, first, MIXED.length);
      for (const { gemm, at } of arranged.slice(1))
        for (const [name, rows] of outputsOf(own, await run(at, MIXED.length), MIXED.length))
          rows.forEach((row, i) => same(row, got.get(name)![i]!, `${name} of row ${i} by ${gemm.skeleton} ${gemm.tm}`));
      for (const { gemm, rows, at } of inside) {
        // The numbers that blocks share are in memory of the kernel: each launch begins with what one has left.
        for (let i = 0; i < LAUNCHES; i++)
          for (const [name, values] of outputsOf(own, await run(at, rows.length), rows.length))
            values.forEach((row, i) =>
              same(row, got.get(name)![rows[i]!]!, `${name} of row ${rows[i]} of ${rows.length}, shrunk by ${gemm.tm}`),
            );
      }
      for (const [name, rows] of outputsOf(own, await run(apart, CHOSEN.length), CHOSEN.length))
        rows.forEach((row, i) => same(row, got.get(name)![CHOSEN[i]!]!, `${name} of row ${CHOSEN[i]}, apart`));
      const without = outputsOf(own, await run(base, MIXED.length), MIXED.length);
      const expected = outputsOf(own, interpretAdapters(own, all), MIXED.length);
      checkAdapted(got, without, expected, MIXED);
    });
});

const rowsOf = (all: Float64Array, rows: number): Float64Array[] => {
  const width = all.length / rows;
  return Array.from({ length: rows }, (_, row) => all.subarray(row * width, (row + 1) * width));
};
