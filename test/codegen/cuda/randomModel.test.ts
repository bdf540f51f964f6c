/**
 * Kernels of random models under random schedules, run over fibres and compared with float64, as test/gpu does on a
 * device.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { kernelWrites } from '../../../ir/kernelAccess.js';
import { scoreOf } from '../../../ir/plan.js';
import { casesHere } from '../../support/thorough.js';
import { randomSource } from '../harness.js';
import { type Checked, checkKernels, kernelsToCheck, type Launch } from './checkKernels.js';
import { loadEmulator } from './emulate.js';
import { randomCases } from './randomCases.js';
import { randomBatch, randomModel, type RandomModel } from './randomModel.js';
import { randomSchedules } from './randomSchedules.js';

const CAPACITY = 96;
const folder = mkdtempSync(join(tmpdir(), 'tilewright-random-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const checkedOf = (model: RandomModel, seed: number, arch: 'sm_80' | 'sm_90a' = 'sm_80'): Checked[] => {
  const plan = scoreOf(model.plan);
  const random = randomSource(seed);
  const counts =
    arch === 'sm_80'
      ? { simt: 1, mma: 1, skinny: 1, skinnyWgmma: 0, wgmma: 0, grouped: 0, micro: 0 }
      : { simt: 0, mma: 0, skinny: 1, skinnyWgmma: 1, wgmma: 1, grouped: 0, micro: 0 };
  return kernelsToCheck(plan, CAPACITY, (kernel) =>
    // Blocks are emulated one by one, so they cannot form clusters.
    randomSchedules(kernel, plan, TYPICAL_FACTS[arch], random, counts).map((schedule) =>
      schedule.kind === 'gemm' && schedule.skeleton === 'wgmma' ? { ...schedule, cluster: 1 } : schedule,
    ),
  );
};

describe('a random model on the emulation', () => {
  const emulated = (list: readonly Checked[]): Launch => {
    const run = loadEmulator(list.flatMap(({ texts }) => texts.map(({ text }) => text)));
    return (text, memory, sizes) => {
      run(text, memory, { ...sizes });
    };
  };

  const CASES = [
    { seed: 1, dtype: 'bf16', arch: 'sm_80', hasBiases: false },
    { seed: 2, dtype: 'f16', arch: 'sm_80', hasBiases: true },
    { seed: 4, dtype: 'bf16', arch: 'sm_90a', hasBiases: true },
  ] as const;
  it.each(casesHere<(typeof CASES)[number]>(CASES, 1, 2))(
    'has kernels that agree with float64: seed $seed, $dtype, $arch, biases: $hasBiases',
    async ({ seed, dtype, arch, hasBiases }) => {
      const model = randomModel(folder, seed, dtype, TYPICAL_FACTS[arch], { scale: 0.3, hasBiases });
      const biased = model.plan.weights.filter(({ sources }) => sources.some(({ tensor }) => tensor.endsWith('.bias')));
      expect(biased.length).toBe(hasBiases ? 14 : 0);
      const list = checkedOf(model, seed, arch);
      const options = {
        module: scoreOf(model.plan),
        tensors: model.tensors,
        ...randomBatch({ T: 37, R: 19 }, model.vocab, seed),
        capacity: CAPACITY,
        where: model.name,
      };
      const launch = emulated(list);
      await checkKernels(list, { ...options, launch });

      // A value that one schedule of one kernel spoils is found.
      const { kernel, texts } = list.find((each) => each.kernel.anchor === 'gemm')!;
      const { text: spoiled, schedule } = texts.at(-1)!;
      const spoil: Launch = async (text, memory, current, capacity) => {
        await launch(text, memory, current, capacity);
        if (text === spoiled) for (const name of kernelWrites(kernel)) memory.get(name)!.writeUInt16LE(0x4640, 0);
      };
      await expect(checkKernels(list, { ...options, launch: spoil })).rejects.toThrow(
        `${kernel.path} under ${JSON.stringify(schedule)}: element 0 of `,
      );
    },
  );
});

describe('the cases of the GPU tests', () => {
  /** Part of a layer, over all tokens (T) or scored rows (R). */
  const PARTS = [
    'attention.qkv[T]',
    'attention.o[T]',
    'attention.o[R]',
    'ffn.gate_up[T]',
    'ffn.gate_up[R]',
    'ffn.down[T]',
    'ffn.down[R]',
    'head[R]',
  ];
  const kindOf = ({ skeleton, mode, cluster }: CudaGemmSchedule): string =>
    skeleton === 'wgmma' ? `wgmma ${mode} ${cluster}` : skeleton;

  it.each(casesHere([1, 2, 3], 0))(
    'cover every skeleton, mode and cluster size of every contraction, in both element types: seed %i',
    (seed) => {
      const facts = TYPICAL_FACTS.sm_90a;
      const cases = randomCases(folder, seed, facts);
      const seen = new Set<string>();
      const widths = new Set<number>();
      for (const { list, model } of cases) {
        const plan = scoreOf(model.plan);
        const [dtype] = model.plan.weights.flatMap((weight) => (weight.layout === 'kmajor' ? weight.format : []));
        for (const { kernel, texts } of list) {
          for (const { schedule } of texts) {
            expect(isLegalCuda(kernel, plan, schedule, facts)).toBe(true);
            if (schedule.kind !== 'gemm') continue;
            seen.add(`${kernel.path.replace(/^layers\.\d+\./, '')}[${kernel.rows}] ${dtype!} ${kindOf(schedule)}`);
            if (schedule.skeleton === 'wgmma') widths.add(schedule.tn);
          }
        }
      }
      const wgmma = ['pingpong', 'cooperative'].flatMap((mode) => [1, 2].map((cluster) => `wgmma ${mode} ${cluster}`));
      for (const part of PARTS) {
        for (const kind of ['simt', 'mma', 'skinny', 'skinnyWgmma', ...(part === 'head[R]' ? [] : wgmma)])
          for (const dtype of ['bf16', 'f16']) expect(seen).toContain(`${part} ${dtype} ${kind}`);
      }
      // Steps of 16, and tiles of two instructions beside each other.
      expect([...widths].some((tn) => tn % 32 !== 0)).toBe(true);
      expect([...widths].some((tn) => tn > 256)).toBe(true);
      expect(widths.size).toBeGreaterThan(6);
      expect(
        new Set(cases.flatMap(({ list }) => list.flatMap(({ texts }) => texts.map(({ text }) => text.symbol)))).size,
      ).toBeLessThan(360);
    },
  );
});
