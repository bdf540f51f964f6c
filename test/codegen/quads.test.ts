/**
 * Products of blocks: compared with float64, and the same bits whatever the schedule, T, threads or instruction set.
 */
import { describe, expect, it } from 'vitest';
import { isLegal } from '../../codegen/cpu/index.js';
import { decodeEncoded } from '../../ir/encoding.js';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { physicalToLogical } from '../../ir/packing.js';
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import { BLOCK_NAMES, type BlockName } from '../../ir/storage.js';
import { ENCODINGS, quadPanels, sampleParts, seeded } from '../support/encodedSamples.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { isThorough } from '../support/thorough.js';
import { runGenerated } from './harness.js';
import { acc, add, element, store } from './modules.js';
import { TESTED } from './tested.js';

const FACTS = { isas: ['portable', 'avx2', 'avx512'] as const, l1: 32768, l2: 1 << 20 };

/** mr, nr, mb: a tile of few rows, and one of many with a rest. */
const SCHEDULES: Readonly<Record<Exclude<CpuIsa, 'amx'>, readonly (readonly [number, number, number])[]>> = {
  portable: [[3, 32, 6]],
  avx2: [
    [2, 32, 2],
    [6, 16, 24],
    [8, 32, 8],
  ],
  avx512: [
    [14, 32, 28],
    [3, 32, 6],
  ],
};
const CHOSEN = TESTED.filter((isa) => isa !== 'amx');

const K = 512;
const COLUMNS = 70;
const ROWS = 17;

/** A kernel with a segment of each format: their scales are for groups alike. */
function moduleOf(names: readonly BlockName[]): KernelModule {
  const buffers: BufferDecl[] = [
    { name: 'a', dtype: 'f32', rows: 'T', columns: K, space: 'input' },
    { name: 'e', dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'input' },
    ...names.map((name): BufferDecl => ({
      name: `y_${name}`,
      dtype: 'f32',
      rows: 'T',
      columns: COLUMNS,
      space: 'arena',
    })),
  ];
  return {
    interface: interfaceOf(buffers),
    buffers,
    weights: names.map((format) => ({
      name: `w_${format}`,
      layout: 'quads',
      format,
      k: K,
      pairing: { kind: 'none' },
      sources: [{ tensor: format, rows: COLUMNS }],
    })),
    kernels: [
      {
        anchor: 'gemm',
        name: 'g',
        path: 'g',
        ops: [],
        rows: 'T',
        k: K,
        a: 'a',
        rounding: { columns: 32 },
        segments: names.map((name) => ({
          weight: `w_${name}`,
          columns: COLUMNS,
          pairing: { kind: 'none' },
          outputs: [store(`y_${name}`, add(acc(), element('e')))],
        })),
      },
    ],
  };
}

/**
 * Rows that are codes times a power of two, the largest of 32 being 127, so that rounding is exact. All codes of the
 * first row are the largest: products of 4-bit codes are then the largest that 16 bits hold.
 */
function exactRows(): Float64Array {
  const next = seeded(7);
  const out = new Float64Array(ROWS * K);
  for (let at = 0; at < out.length; at += 32) {
    const scale = 2 ** -(3 + next(5));
    for (let i = 0; i < 32; i++) out[at + i] = (at < K ? 127 : i === at % 31 ? -127 : next(255) - 127) * scale;
  }
  return out;
}

describe('products of blocks', () => {
  const all = moduleOf(BLOCK_NAMES);
  const stored = BLOCK_NAMES.map((name, i) => sampleParts(ENCODINGS[name]!, COLUMNS, K, 11 + i));
  // A block of q4_0 is a scale of two bytes and 16 bytes of codes.
  const largest = stored[BLOCK_NAMES.indexOf('q4_0')]!.blocks!;
  for (let at = 0; at < (K / 32) * 18; at++) if (at % 18 >= 2) largest[at] = 255;
  const packed = new Map(
    BLOCK_NAMES.map((name, i) => [
      `w_${name}`,
      quadPanels(name, stored[i]!.blocks!, K, physicalToLogical(all.weights[i]!)),
    ]),
  );
  const a = exactRows();
  const e = Float64Array.from({ length: ROWS * COLUMNS }, (_v, i) => (i % 17) / 8);
  const inputs = (rows: number) =>
    new Map([
      ['a', a.subarray(0, rows * K)],
      ['e', e.subarray(0, rows * COLUMNS)],
    ]);
  const want = interpretModule(all, {
    sizes: { T: ROWS, R: 0 },
    buffers: inputs(ROWS),
    tensors: new Map(
      BLOCK_NAMES.map((name, i) => [
        name,
        { rows: COLUMNS, columns: K, data: decodeEncoded(ENCODINGS[name]!, COLUMNS, K, stored[i]!) },
      ]),
    ),
  });
  const firsts = new Map<string, Float64Array>();

  const cases = CHOSEN.flatMap((isa) =>
    SCHEDULES[isa]
      .slice(0, isThorough ? undefined : 1)
      .flatMap((shape, i) => (i === 0 || isa !== 'avx512' || isThorough ? [{ isa, shape }] : [])),
  );
  it.each(cases)('$isa $shape', ({ isa, shape: [mr, nr, mb] }) => {
    const schedule: CpuGemmSchedule = { kind: 'gemm', isa, mr, nr, kc: 256, mb, nb: 64 };
    // Compilers take long for AVX-512, which has every function twice.
    const names = isThorough || isa === 'avx2' ? BLOCK_NAMES : (['q8_0', 'q6_k'] as const);
    const module = moduleOf(names);
    expect(isLegal(module.kernels[0]!, module, schedule, FACTS)).toBe(true);
    for (const rows of mb > 8 ? [ROWS, 5] : [5]) {
      const { values, dirtyPads, overruns } = runGenerated(module, {
        sizes: { T: rows, R: 0 },
        inputs: inputs(rows),
        packed,
        schedules: [schedule],
        workers: rows === ROWS ? 2 : 1,
        isQuick: true,
      });
      expect([dirtyPads, overruns]).toEqual([[], []]);
      for (const name of names) {
        const got = values.get(`y_${name}`)!;
        const exact = want.get(`y_${name}`)!.subarray(0, got.length);
        const size = Math.sqrt(exact.reduce((sum, v) => sum + v * v, 0) / exact.length);
        got.forEach((v, at) => expect(Math.abs(v - exact[at]!)).toBeLessThan(3e-6 * size + 1e-6 * Math.abs(v)));
        // Portable C has no fused multiply-add.
        const kind = `${isa === 'portable'} ${name}`;
        const first = firsts.get(kind) ?? got;
        firsts.set(kind, first.length >= got.length ? first : got);
        const shared = Math.min(first.length, got.length);
        expectSame(got.subarray(0, shared), first.subarray(0, shared));
      }
    }
  });
});
