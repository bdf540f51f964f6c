/** Contractions that store rows of states through slots: the values of a plain store, in the rows that slots name. */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { BufferDecl, KernelModule, Pairing } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { interfaceOf } from '../../support/interface.js';
import { expectSame } from '../../support/numbers.js';
import { acc, add, constant, mul, store } from '../modules.js';
import { emulateModule } from './emulate.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const [T, K, COLUMNS, ROWS] = [19, 64, 64, 40];
/** Rows of the state for each token; −1: none. */
const SLOTS = Array.from({ length: T }, (_, i) => (i % 5 === 3 ? -1 : (i * 7 + 11) % ROWS));

const gemm = (skeleton: CudaGemmSchedule['skeleton'], changes: Partial<CudaGemmSchedule>): CudaGemmSchedule => ({
  kind: 'gemm',
  skeleton,
  tm: 32,
  tn: 64,
  tk: 32,
  stages: skeleton === 'simt' ? 1 : 2,
  cluster: 1,
  raster: 2,
  mode: 'cooperative',
  ...changes,
});
const SCHEDULES = [
  gemm('simt', {}),
  gemm('mma', {}),
  gemm('skinny', { tm: 8, tn: 32, tk: 64, stages: 3 }),
  gemm('skinny', { tm: 32, tn: 32, tk: 64, stages: 3 }),
  gemm('skinnyWgmma', { tm: 8, tn: 32, tk: 64, stages: 3 }),
  gemm('skinnyWgmma', { tm: 32, tn: 64, tk: 64, stages: 3 }),
  gemm('wgmma', { mode: 'cooperative', tm: 128, tn: 128, tk: 64 }),
  gemm('wgmma', { mode: 'pingpong', tm: 64, tn: 96, tk: 64 }),
  gemm('wgmma', { mode: 'deferred', tm: 128, tn: 128, tk: 64 }),
];
const PAIRINGS: readonly Pairing[] = [{ kind: 'none' }, { kind: 'rotate', headDim: 32, width: 8 }];
const DTYPES = ['bf16', 'f32'] as const;

/** A kernel for each schedule, whose two segments store the same values: plainly and through slots. */
function moduleOf(pairing: Pairing, dtype: BufferDecl['dtype']): KernelModule {
  const product: Scalar = { op: 'roundF20', a: acc() };
  const rough = mul(product, add(product, constant(0.1)));
  const value: Scalar = pairing.kind === 'rotate' ? add(rough, { op: 'rotateHalf', a: product }) : rough;
  const buffer = (
    name: string,
    of: BufferDecl['dtype'],
    rows: BufferDecl['rows'],
    columns: number,
    space: BufferDecl['space'],
  ): BufferDecl => ({ name, dtype: of, rows, columns, space });
  return {
    interface: interfaceOf([]),
    weights: ['w', 'again'].map((name) => ({
      name,
      layout: 'kmajor',
      format: 'bf16',
      k: K,
      pairing,
      sources: [{ tensor: 'w', rows: COLUMNS }],
    })),
    buffers: [
      buffer('x', 'bf16', 'T', K, 'input'),
      buffer('slot', 'i32', 'T', 1, 'input'),
      ...SCHEDULES.flatMap((_, i) => [
        buffer(`plain${i}`, dtype, 'T', COLUMNS, 'arena'),
        buffer(`state${i}`, dtype, ROWS, COLUMNS, 'state'),
      ]),
    ],
    kernels: SCHEDULES.map((_, i) => ({
      name: `qkv${i}`,
      path: 'test',
      ops: [],
      anchor: 'gemm',
      rows: 'T',
      k: K,
      a: 'x',
      segments: [
        { weight: 'w', columns: COLUMNS, pairing, outputs: [store(`plain${i}`, value)] },
        {
          weight: 'again',
          columns: COLUMNS,
          pairing,
          outputs: [{ kind: 'store', buffer: `state${i}`, via: 'slot', value }],
        },
      ],
    })),
  };
}

describe('stores through slots', () => {
  it.each(PAIRINGS.flatMap((pairing) => DTYPES.map((dtype) => ({ pairing, dtype }))))(
    'are those of plain stores in every skeleton: $dtype, $pairing.kind',
    ({ pairing, dtype }) => {
      const module = moduleOf(pairing, dtype);
      module.kernels.forEach((kernel, i) => expect(isLegalCuda(kernel, module, SCHEDULES[i]!, FACTS)).toBe(true));
      const integers = (n: number, seed: number): Float64Array =>
        Float64Array.from({ length: n }, (_, i) => (((i * 7919 + seed * 104_729) % 1009) % 17) - 8);
      const { values } = emulateModule(module, {
        sizes: { T, R: 0 },
        inputs: new Map([
          ['x', integers(T * K, 3)],
          ['slot', Float64Array.from(SLOTS)],
        ]),
        tensors: new Map([['w', { rows: COLUMNS, columns: K, data: integers(COLUMNS * K, 1) }]]),
        schedules: SCHEDULES,
      });
      SCHEDULES.forEach(({ skeleton, mode }, i) => {
        const plain = values.get(`plain${i}`)!;
        const want = new Float64Array(ROWS * COLUMNS).fill(NaN);
        SLOTS.forEach((slot, row) => {
          if (slot >= 0) want.set(plain.subarray(row * COLUMNS, (row + 1) * COLUMNS), slot * COLUMNS);
        });
        expect(plain.every(Number.isFinite)).toBe(true);
        expectSame(values.get(`state${i}`), want, `the state by ${skeleton}, ${mode}`);
      });
    },
  );
});
