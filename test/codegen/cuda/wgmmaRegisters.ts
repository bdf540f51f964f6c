/** Hopper contractions that NVIDIA's compiler must keep in registers. CI compiles some, test/slow all. */
import { beforeAll, describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../../codegen/cuda/index.js';
import { isLegalWgmma } from '../../../codegen/cuda/wgmma/index.js';
import type { CudaGemmSchedule, CudaKernelText } from '../../../ir/cuda.js';
import { compileByNvcc, hasNvcc, type NvccReport } from '../../support/nvcc.js';
import { withAdapters } from './adapters.js';
import { headKernel, inE4m3, layerGemm, type HeadCase, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';

export const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
export const [HIDDEN, INTER, CAPACITY] = [6656, 17920, 7680];
export const PINGPONG: CudaGemmSchedule = {
  kind: 'gemm',
  skeleton: 'wgmma',
  tm: 128,
  tn: 192,
  tk: 64,
  stages: 5,
  cluster: 2,
  raster: 16,
  mode: 'pingpong',
};
export const COOPERATIVE: CudaGemmSchedule = { ...PINGPONG, tn: 256, stages: 4, mode: 'cooperative' };
export const DEFERRED: CudaGemmSchedule = { ...COOPERATIVE, stages: 3, mode: 'deferred' };
const NARROW = { ...DEFERRED, tk: 128, raster: 22 } as const;
export const ALL: readonly LayerGemm[] = ['qkv', 'o', 'gateUp', 'down'];
export const large = (which: LayerGemm): WgmmaCase => layerGemm(which, HIDDEN, INTER);
export const HEAD = headKernel(HIDDEN, 32_000);
export const emit = ({ kernel, module }: WgmmaCase | HeadCase, schedule: CudaGemmSchedule): CudaKernelText =>
  emitCudaKernel(kernel, module, schedule, { T: CAPACITY, R: CAPACITY });
export const legal = (
  { kernel, module }: WgmmaCase | HeadCase,
  schedule: CudaGemmSchedule,
  facts = H100,
): true | string => isLegalWgmma(kernel, module, schedule, facts);

type RegisterCase = readonly [label: string, kernel: WgmmaCase | HeadCase, schedule: CudaGemmSchedule];

/**
 * Bytes of words that are set once a tile or row: these may be kept in local memory, outside the loop over k.
 * Accumulators, which take hundreds of bytes at least, may not.
 */
const FEW_BYTES = 160;

export const COMPILED: readonly RegisterCase[] = [
  ['ping-pong, row values, heads rotated', large('qkv'), PINGPONG],
  ['ping-pong, residual and row sums', large('o'), PINGPONG],
  ['ping-pong, residual and row sums, the most accumulators', large('o'), { ...PINGPONG, tn: 208 }],
  ['cooperative, interleaved', large('gateUp'), COOPERATIVE],
  ['ping-pong, the most accumulators', large('gateUp'), { ...PINGPONG, tn: 208 }],
  ['deferred, row values, heads rotated', large('qkv'), DEFERRED],
  ['deferred, residual and row sums', large('o'), DEFERRED],
  ['deferred, remainder tiles beside rotated heads', large('qkv'), { ...DEFERRED, remainderTn: 192 }],
  ['deferred, remainder tiles of pairs', large('gateUp'), { ...DEFERRED, remainderTn: 128 }],
  ['deferred, remainder tiles row by row', large('o'), { ...DEFERRED, remainderTn: 160 }],
  ['deferred, interleaved, part of a chunk', large('gateUp'), { ...DEFERRED, tn: 208 }],
  [
    'tall tiles, f16, one block a cluster',
    layerGemm('down', HIDDEN, INTER, 128, 'f16'),
    { ...PINGPONG, tm: 192, tn: 128, cluster: 1 },
  ],
  ['deferred, adapters of pairs', withAdapters(large('gateUp'), { slots: 8, rank: 16 }), DEFERRED],
  [
    'deferred, adapters of remainder tiles',
    withAdapters(large('o'), { slots: 8, rank: 64 }),
    { ...DEFERRED, remainderTn: 160 },
  ],
  ['E4M3, deferred, row and column values', inE4m3(large('qkv')), NARROW],
  ['E4M3, deferred, the stream in 24 bits, loaded ahead', inE4m3(large('down'), true), NARROW],
  ['E4M3, two warpgroups for epilogues', inE4m3(large('o')), { ...NARROW, epilogueGroups: 1 }],
  ['the vocabulary, cooperative', HEAD, COOPERATIVE],
  ['the vocabulary, ping-pong', HEAD, { ...PINGPONG, tm: 64, tn: 256 }],
  ['two slabs a stage', layerGemm('o', 256, 512, 64), { ...COOPERATIVE, tn: 64, tk: 128, stages: 2 }],
];

/** Of a mode whose products must not wait for moves: test/slow/registers.test.ts has all. */
export const COMPILED_FIRST: readonly RegisterCase[] = COMPILED.filter(
  ([label]) => label === 'deferred, remainder tiles row by row',
);

/** Tests of what NVIDIA's compiler makes of them. */
export function testRegisters(cases: readonly RegisterCase[]): void {
  describe.skipIf(!hasNvcc)('compiled for sm_90a', () => {
    let reports: readonly NvccReport[];
    beforeAll(() => {
      reports = compileByNvcc(
        cases.map(([, c, schedule]) => emit(c, schedule)),
        'sm_90a',
      );
    });

    it.each(cases.map(([label, c, schedule], i) => ({ label, c, schedule, i })))(
      '$label keeps its accumulators in registers',
      ({ c, schedule, i }) => {
        expect(legal(c, schedule)).toBe(true);
        const { log, spillStores, registers, movesBeforeProducts } = reports[i]!;
        // This includes C7519: an accumulator that stays live beside another tile's is moved about in the loop, and
        // products are lost.
        expect(log).not.toMatch(/C75\d\d|serialized/);
        expect(registers).toBe(schedule.epilogueGroups === undefined ? 168 : 128);
        expect(spillStores).toBeLessThanOrEqual(FEW_BYTES);
        // Ping-pong tiles hide the moves behind each other's products. Remainder tiles have a loop of their own, and
        // the loop over few stages of two slabs is unrolled.
        const loops = (schedule.remainderTn === undefined ? 1 : 2) * (schedule.tk === 64 ? 1 : 3);
        if (schedule.mode !== 'pingpong') expect(movesBeforeProducts).toBeLessThanOrEqual(2 * loops);
      },
    );
  });
}
