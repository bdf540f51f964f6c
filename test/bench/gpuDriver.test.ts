/** The GPU benchmark over the real addon and the fake driver, which checks everything that is bound and released. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { COMPARE_SYMBOL } from '../../autotune/cuda/compare.js';
import { type CompileKernels, loadDeviceTools } from '../../autotune/cuda/fill.js';
import { parseOptions } from '../../bench/command.js';
import { gpuCommand, type GpuOptions, runGpuBench } from '../../bench/gpu.js';
import { type GpuLab, openLab } from '../../bench/gpuLab.js';
import { defaultChoice, openBenchModel, roleOf, trialSchedule } from '../../bench/gpuModel.js';
import { modelPath, packageRoot } from '../../bench/inputs.js';
import { attentionSchedules } from '../../codegen/cuda/attention/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import type { AttentionKernel } from '../../ir/kernel.js';
import type { CublasLt } from '../../runtime/cuda/cublasLt.js';
import { readSettings } from '../../settings.js';
import { buildPackShim, PACK_PTX } from '../runtime/cuda/packShim.js';
import { entryText } from '../runtime/cuda/ptxEntry.js';
import { temporaryFolder } from '../runtime/kernels.js';
import { compileLibrary, describeFake } from '../support/fakeCuda/fakeDriver.js';

/** Pointers and tensor maps of a generated kernel, from its text. */
function parametersOf(
  symbol: string,
  source: string,
): { readonly ints: readonly string[]; readonly pointers: number; readonly maps: number } {
  const parameters = (new RegExp(`${symbol}\\(([^)]*)\\)`).exec(source)?.[1] ?? '').split(',');
  const maps = parameters.filter((each) => each.includes('TensorMap')).length;
  const ints = parameters.flatMap((each) => /^\s*int (\w+)$/.exec(each)?.[1] ?? []);
  return { ints, pointers: parameters.length - ints.length - maps, maps };
}

describeFake('runGpuBench on the fake driver', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  let libraries = 0;

  /**
   * Kernels write ones to the start of every buffer except those that `leaves` names. Once written, they stay with the
   * driver.
   */
  function openFake(leaves: (symbol: string) => boolean): Promise<GpuLab> {
    const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
    const compile: CompileKernels = (units) => {
      const generated = units
        .filter(({ symbol }) => symbol.startsWith('k_'))
        .map(({ symbol, source }) => ({ symbol, ...parametersOf(symbol, source) }));
      const writing = generated.filter(({ symbol }) => !leaves(symbol));
      if (writing.length > 0) {
        fake.host(
          compileLibrary(folder, `ones${libraries++}`, {
            text: writing
              .map(
                ({ symbol, pointers }) =>
                  `void host_${symbol}(const int *sizes, const unsigned *grid, void **p) { (void)sizes; ` +
                  `(void)grid; for (int i = 0; i < ${pointers}; i++) for (int j = 0; j < 16; j++) ((unsigned ` +
                  'short *)p[i])[j] = 0x3f80; }\n',
              )
              .join(''),
          }),
        );
      }
      const texts = new Map(
        generated.map(({ symbol, ints, pointers, maps }) => [symbol, encode(entryText(symbol, pointers, maps, ints))]),
      );
      for (const { symbol } of units) {
        if (symbol === COMPARE_SYMBOL) texts.set(symbol, encode(entryText(symbol, 6, 0, [])));
        else if (!texts.has(symbol)) texts.set(symbol, encode(PACK_PTX));
      }
      return Promise.resolve({ cubins: texts, failures: new Map() });
    };
    const library: CublasLt = {
      version: '13.0.2',
      cuda: { major: 13, minor: 0 },
      release: () => undefined,
      contraction: () => ({ release: () => undefined, algorithms: [{ name: 'algorithm 0', launch: () => undefined }] }),
    };
    const { addon } = fake;
    const device = new addon.Device(0);
    return loadDeviceTools({ addon, device, compile }).then((tools) => {
      const runUp = new addon.Memory(device, 1 << 16);
      const release = (): void => {
        for (const each of [runUp, tools, device]) each.release();
      };
      return {
        addon,
        device,
        facts: TYPICAL_FACTS.sm_90a,
        driverVersion: 13_000,
        compile,
        compiler: { name: 'none', build: 'none' },
        library,
        tools,
        runUp,
        release,
      };
    });
  }
  const options = parseOptions<GpuOptions>(gpuCommand(), [
    '--model',
    join(packageRoot(), 'models/demo'),
    '--tokens',
    '48',
    '--rounds',
    '2',
    '--seconds',
    '0.001',
  ])!;
  const model = openBenchModel(options.model, TYPICAL_FACTS.sm_90a, 48);

  it('opens a model whose weights stay in 4 bits, and reads the keys of its products', () => {
    const { precision, model: path } = parseOptions<GpuOptions>(gpuCommand(), [
      '--model',
      'llama-33b-gptq',
      '--precision',
      'int4',
    ])!;
    const grouped = openBenchModel(modelPath(path), TYPICAL_FACTS.sm_90a, 48, undefined, precision);
    const products = grouped.layer.filter(({ anchor }) => anchor === 'gemm');
    expect(products).toHaveLength(4);
    for (const kernel of products) {
      const { schedule } = defaultChoice(kernel, grouped, 16);
      expect(schedule).toMatchObject({ skeleton: 'grouped' });
      const trial = { kernel: roleOf(kernel.path), what: cudaScheduling.key(schedule) };
      expect(trialSchedule(trial, kernel, grouped, schedule)).toEqual(schedule);
    }
  });

  it('reads the keys of heads that blocks share, and tries whole ones', () => {
    const { model: path } = parseOptions<GpuOptions>(gpuCommand(), ['--model', 'qwen3-8b'])!;
    const normed = openBenchModel(modelPath(path), TYPICAL_FACTS.sm_90a, 48);
    const kernel = normed.layer.find(({ path: own }) => own.endsWith('attention.qkv'))!;
    const { schedule } = defaultChoice(kernel, normed, 1);
    expect(schedule).toMatchObject({ skeleton: 'skinnyWgmma', parts: 2 });
    const tried = (what: string) => trialSchedule({ kernel: roleOf(kernel.path), what }, kernel, normed, schedule);
    expect(tried(cudaScheduling.key(schedule))).toEqual(schedule);
    const { parts: _, ...whole } = { ...(schedule as CudaGemmSchedule), tn: 128, stages: 6 };
    expect(tried('parts=0,tn=128,stages=6')).toEqual(whole);
  });

  it('reads every key of attention that a table may print', () => {
    const mix = model.layer.find(({ path }) => path.endsWith('attention.mix'))!;
    const [start, ...others] = attentionSchedules(mix as AttentionKernel, model.plan, model.facts);
    expect(others.length).toBeGreaterThan(8);
    for (const schedule of others) {
      const trial = { kernel: 'attention.mix', what: cudaScheduling.key(schedule) };
      expect(trialSchedule(trial, mix, model, start!)).toEqual(schedule);
    }
  });

  it('times no layer that writes no numbers', async () => {
    const lab = await openFake((symbol) => symbol.startsWith('k_gemm'));
    await expect(runGpuBench(lab, model, { ...options, kernel: ['layer'] }, () => undefined)).rejects.toThrow(
      /leaves no numbers in \w+/,
    );
    lab.release();
    expect(fake.live()).toBe(0);
  });

  it('binds every kernel and the whole layer, checks results, and releases everything', async () => {
    const lab = await openFake(() => false);
    const { kernels, layers } = await runGpuBench(lab, model, options, () => undefined);
    expect(kernels.map(({ kernel, failure }) => ({ kernel, failure }))).toEqual(
      ['attention.qkv', 'attention.o', 'ffn.gate_up', 'ffn.down'].map((kernel) => ({ kernel, failure: undefined })),
    );
    expect(layers[0]?.parts.map(({ kernel }) => kernel)).toEqual([
      'attention.qkv',
      'attention.mix',
      'attention.o',
      'ffn.gate_up',
      'ffn.down',
    ]);
    for (const { ratio } of kernels) expect(ratio).toBeGreaterThan(0);
    expect(layers[0]?.ratioToSum).toBeGreaterThan(0);
    lab.release();
    expect(fake.live()).toBe(0);
  });

  it('measures the head where it is named, beside the layer and not within it', async () => {
    const lab = await openFake(() => false);
    const { kernels, layers } = await runGpuBench(
      lab,
      model,
      { ...options, kernel: ['head', 'layer'] },
      () => undefined,
    );
    expect(kernels.map(({ kernel, failure }) => ({ kernel, failure }))).toEqual([
      { kernel: 'head', failure: undefined },
    ]);
    expect(kernels[0]!.bytes).toBeGreaterThan(0);
    expect(layers[0]?.parts).toHaveLength(5);
    lab.release();
    expect(fake.live()).toBe(0);
  });

  it('says that cuBLASLt is missing, and what to type', async () => {
    const settings = readSettings({ TILEWRIGHT_CUDA_DRIVER: fake.path, TILEWRIGHT_CUBLASLT: 'none' });
    await expect(openLab(settings)).rejects.toMatchObject({
      name: 'UserError',
      message: expect.stringContaining('cuBLASLt'),
      hint: expect.stringContaining('TILEWRIGHT_CUBLASLT='),
    });
    expect(fake.live()).toBe(0);
  });
});
