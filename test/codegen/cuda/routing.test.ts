/**
 * Products with the logits of experts that run the kernels behind them: what these would have left, to the bit, of one
 * block or of several, and no launch of theirs.
 */
import { describe, expect, it } from 'vitest';
import { cudaScheduling } from '../../../codegen/cuda/encoding.js';
import { emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaSchedule, RoutingUse } from '../../../ir/cuda.js';
import { everyExtent } from '../../../ir/function.js';
import { extentIn } from '../../../ir/extents.js';
import type { GemmKernel } from '../../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../../ir/kernelAccess.js';
import type { Bucket } from '../../../ir/plan.js';
import { at } from '../../../system/at.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { isThorough } from '../../support/thorough.js';
import { randomSource } from '../harness.js';
import { arrangeModule, loadEmulator } from './emulate.js';
import { microCase, SMALL } from './microCases.js';
import { randomTensors } from './randomModel.js';

const FACTS = TYPICAL_FACTS.sm_90a;
/** 40 experts are three tiles of logits, of which the last is not full. */
const { module: whole } = microCase({ ...SMALL, num_local_experts: 40, num_experts_per_tok: 3 });
const first = whole.kernels.findIndex((kernel) => kernel.anchor === 'gemm' && kernel.routing !== undefined);
const kernels = whole.kernels.slice(first, first + 3);
const read = new Set(kernels.flatMap((kernel) => [...kernelReads(kernel)]));
const module = { ...whole, kernels, weights: whole.weights.filter(({ name }) => read.has(name)) };
const [product, route, gather] = kernels as [GemmKernel, ...typeof kernels];

const bucketOf = (tokens: number): Bucket => ({ extents: { T: tokens, R: tokens, C: tokens }, longest: 64 });
const defaults = (tokens: number): readonly CudaSchedule[] =>
  kernels.map((kernel) => cudaScheduling.default(kernel, module, FACTS, bucketOf(tokens)));

/** Settled schedules of the product and of the two kernels behind it. */
function settledAt(tokens: number): readonly CudaSchedule[] {
  const own = whole.launches.slice(first, first + 3);
  const schedules = Object.fromEntries(defaults(tokens).map((schedule, i) => [at(own, i).signature, schedule]));
  const settled = cudaScheduling.settle!(module, own, schedules, bucketOf(tokens));
  return own.map(({ signature }) => settled[signature]!);
}

function inputsOf(tokens: number): ReadonlyMap<string, Float64Array> {
  const dice = randomSource(7);
  const written = new Set(kernels.flatMap((kernel) => [...kernelWrites(kernel)]));
  const sizes = bucketOf(tokens).extents;
  return new Map(
    module.buffers
      .filter(({ name, space }) => read.has(name) && !written.has(name) && space !== 'weight')
      .map(({ name, dtype, rows, columns }) => {
        const count = extentIn(rows, sizes) * Number(columns);
        const value = (): number => (dtype === 'f32' ? Math.abs(dice()) : dtype === 'u8' ? 77 : dice());
        return [name, Float64Array.from({ length: count }, value)];
      }),
  );
}

/** What the kernels leave under these schedules. */
function run(tokens: number, schedules: readonly CudaSchedule[], backwards = false): ReadonlyMap<string, Float64Array> {
  const options = { sizes: bucketOf(tokens).extents, inputs: inputsOf(tokens), schedules };
  const tensors = randomTensors(module, randomSource(3));
  const { emitted, memory, values } = arrangeModule(module, { ...options, tensors });
  const emulate = loadEmulator(emitted);
  for (const text of emitted) emulate(text, memory, options.sizes, { backwards });
  return values();
}

const written = [route, gather].flatMap((kernel) => [...kernelWrites(kernel!)]);

describe('products that choose experts', () => {
  it('are those of few rows', () => {
    const routes = (tokens: number): unknown => (settledAt(tokens)[0] as { routes?: RoutingUse }).routes;
    expect([1, 2, 3, 64, 65].map(routes)).toEqual(['rows', 'rows', 'pairs', 'pairs', undefined]);
    const idle = (tokens: number): unknown =>
      settledAt(tokens).map((each) => each.kind === 'loop' && each.isIdle === true);
    expect(idle(1)).toEqual([false, true, true]);
    expect(idle(8)).toEqual([false, true, false]);
    expect(idle(65)).toEqual([false, false, false]);
    for (const tokens of [1, 8])
      kernels.forEach((kernel, i) => expect(isLegalCuda(kernel, module, at(settledAt(tokens), i), FACTS)).toBe(true));
  });

  it.each([1, 2, 20])('leave what the kernels behind them would, of %i rows', (tokens) => {
    const want = run(tokens, defaults(tokens));
    for (const backwards of [false, true]) {
      const got = run(tokens, settledAt(tokens), backwards);
      for (const name of [...kernelWrites(product), ...written])
        expect([...got.get(name)!], name).toEqual([...want.get(name)!]);
    }
  });

  it('are refused where others multiply', () => {
    const [own] = defaults(1);
    if (own?.kind !== 'gemm') throw new Error('no product');
    expect(isLegalCuda(product, module, { ...own, skeleton: 'wgmma', routes: 'rows' }, FACTS)).toMatch('cannot choose');
    const { routing: _, ...alone } = product;
    expect(isLegalCuda(alone, module, { ...own, routes: 'pairs' }, FACTS)).toMatch('no kernel that chooses');
  });

  it.runIf(hasNvcc && isThorough)('compile for a GPU', () => {
    const all = [1, 8].map((tokens) =>
      emitCudaKernel(product, module, at(settledAt(tokens), 0), everyExtent(module.interface, 64)),
    );
    expect(() => compileByNvcc(all, 'sm_90a')).not.toThrow();
  });
});
