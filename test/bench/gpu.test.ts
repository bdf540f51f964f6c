/**
 * The GPU benchmark with a stand-in for the device and the library, both with a clock: turns, ratios, the layer, the
 * table.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { COMPARE_SYMBOL } from '../../autotune/cuda/compare.js';
import { DeviceFill } from '../../autotune/cuda/fill.js';
import { CUDA_RECORDS, cudaTarget } from '../../autotune/cuda/tune.js';
import { TuningDatabase } from '../../autotune/database.js';
import { parseOptions } from '../../bench/command.js';
import { gpuCommand, type GpuOptions, runGpuBench } from '../../bench/gpu.js';
import { type GpuLab, openLab } from '../../bench/gpuLab.js';
import { type BenchModel, roleOf } from '../../bench/gpuModel.js';
import type { GpuResults } from '../../bench/gpuResults.js';
import { defaultCudaSchedule, kernelSignature } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { cudaNumerics } from '../../driver/targets/cudaDevice.js';
import { UserError } from '../../errors.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { LinkedFunction } from '../../ir/plan.js';
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { type CudaAddon, cudaAvailable } from '../../runtime/cuda/addon.js';
import type { CublasLt } from '../../runtime/cuda/cublasLt.js';
import { loadKoffi } from '../../runtime/cuda/loadKoffi.js';
import type { CudaProgramBinding, CudaTimeRequest } from '../../runtime/cuda/native.js';
import { PACK_ENTRIES } from '../../runtime/cuda/packKernels.js';
import { readSettings } from '../../settings.js';
import { CAPACITY, cudaModule, FACTS } from '../autotune/cuda/fixture.js';
import { fakeCuda, type FakeKernel } from '../runtime/cuda/fakeCudaAddon.js';

const koffi = loadKoffi();

const module = cudaModule();
const planOf = (lowered: typeof module): LinkedFunction<CudaSchedule> => ({
  ...lowered,
  constants: [],
  states: [],
  launches: [],
  capacity: CAPACITY,
  arenaBytes: 0,
  placements: [],
  buckets: [CAPACITY],
  schedules: [{}],
});
const modelOf = (of: LinkedFunction<CudaSchedule>): BenchModel => ({
  plan: of,
  facts: FACTS,
  layer: of.kernels.filter(({ path }) => path.startsWith('layers.1.')),
});
const plan = planOf(module);
const model = modelOf(plan);
const ROLES = ['attention.qkv', 'attention.mix', 'attention.o', 'ffn.gate_up', 'ffn.down'];
const quiet = (): void => undefined;

/** Milliseconds of our kernels by anchor and order in the layer, of the library's products by their columns. */
const OURS: Readonly<Record<string, number>> = {
  'attention.qkv': 0.5,
  'attention.mix': 0.25,
  'attention.o': 0.4,
  'ffn.gate_up': 1,
  'ffn.down': 0.6,
  'ffn.gate.quantize': 0.05,
};

/** `isQueued`: the run-up was filled since another contender's last turn. */
interface Turn {
  readonly who: string;
  readonly launches: number;
  readonly isQueued: boolean;
}

/** `refuses`: does not compile. `slows`: the clock slows down by this factor every turn. */
function lab(options: { readonly refuses?: (source: string) => boolean; readonly slows?: number } = {}) {
  const turns: Turn[] = [];
  let clock = 0,
    pace = 1,
    isQueued = false;
  const advance = (milliseconds: number): void => {
    clock += milliseconds * pace;
  };
  /** Marks what it writes: the first numbers of every buffer that it is given. */
  const writes: FakeKernel = (_launch, _sizes, pointers) => {
    for (const pointer of pointers) new Uint16Array(koffi.view(pointer, 32)).fill(0x3f80);
  };
  const symbols = new Map<string, string>();
  const { addon: base, state } = fakeCuda({
    modules: new Proxy(
      {},
      {
        get: (_target, name) => ({ [String(name) === 'pack' ? PACK_ENTRIES.rows : String(name)]: writes }),
      },
    ),
  });
  class Program extends base.Program {
    private readonly binding: CudaProgramBinding;
    constructor(binding: CudaProgramBinding) {
      super(binding);
      this.binding = binding;
      for (const { name, symbol } of binding.launches) symbols.set(symbol, name);
    }
    override time({ launches, warmup, repeats, perSample = 1 }: CudaTimeRequest): Promise<Float64Array> {
      let next = 0;
      const one = (): number => {
        const from = clock;
        for (let i = 0; i < perSample; i++)
          advance(OURS[roleOf(this.binding.launches[launches[next++ % launches.length]!]!.name)] ?? NaN);
        return clock - from;
      };
      for (let i = 0; i < warmup; i++) one();
      const found = Float64Array.from({ length: repeats }, one);
      const names = new Set(this.binding.launches.map(({ name }) => roleOf(name)));
      turns.push({ who: names.size > 1 ? 'layer' : [...names].join(), launches: repeats * perSample, isQueued });
      isQueued = false;
      pace *= options.slows ?? 1;
      return Promise.resolve(found);
    }
  }
  class Memory extends base.Memory {
    override copyFrom(): void {
      advance(1);
    }
  }
  class RunUp extends base.Memory {
    override fill(): void {
      isQueued = true;
    }
  }
  class Device extends base.Device {
    override synchronize(): void {
      isQueued = false;
    }
  }
  let open = 0;
  const addon: CudaAddon = {
    ...base,
    Device,
    Memory,
    Program,
    Event: class {
      private at = NaN;
      record(): void {
        this.at = clock;
      }
      synchronize(): void {
        /* all is done when it is asked for */
      }
      millisecondsSince(earlier: unknown): number {
        return this.at - (earlier as { at: number }).at;
      }
      release(): void {
        /* nothing is held */
      }
    },
  };
  const device = new addon.Device(0);
  const library: CublasLt = {
    version: '13.0.2',
    cuda: { major: 13, minor: 0 },
    release: quiet,
    contraction: ({ n, k }) => {
      open++;
      return {
        release: () => {
          open--;
        },
        // The second one is the best; the third does not work.
        algorithms: [2, 1, NaN].map((factor, i) => ({
          name: `algorithm ${i}`,
          launch: () => {
            if (Number.isNaN(factor)) throw new Error('cublasLtMatmul fails with cublasStatus 15');
            turns.push({ who: `${n}×${k}`, launches: 1, isQueued });
            advance((factor * (n * k)) / 10_000);
          },
        })),
      };
    },
  };
  const pack = new addon.Module(device, Buffer.from('pack'));
  const fill = new DeviceFill(addon, device, pack);
  const compare = new addon.Module(device, Buffer.from(COMPARE_SYMBOL));
  const made: GpuLab = {
    addon,
    device,
    facts: FACTS,
    driverVersion: 13_000,
    library,
    compiler: { name: 'NVRTC 13.0', build: 'nvrtc 13.0' },
    runUp: new RunUp(device, 1 << 10),
    tools: { fill, compare, release: quiet },
    compile: (units) => {
      const [bad, good] = [true, false].map((isBad) =>
        units.filter(({ source }) => (options.refuses?.(source) ?? false) === isBad),
      );
      return Promise.resolve({
        cubins: new Map(good!.map(({ symbol }) => [symbol, Buffer.from(symbol)])),
        failures: new Map(bad!.map(({ symbol }) => [symbol, new Error('error: 3 is not a vector')])),
      });
    },
    release: quiet,
  };
  return { lab: made, turns, state, open: () => open };
}

const options = (...args: readonly string[]): GpuOptions =>
  parseOptions<GpuOptions>(gpuCommand(), ['--no-check', '--rounds', '3', '--seconds', '0.03', ...args])!;

describe('runGpuBench', () => {
  it(
    "measures each product in turn with the library's best, then the layer with the sum and " + 'the sequence',
    async () => {
      const { lab: made, turns, state, open } = lab();
      const before = state.live;
      const { kernels, layers } = await runGpuBench(made, model, options('--tokens', '64'), quiet);
      expect(kernels.map(({ kernel }) => kernel)).toEqual(ROLES.filter((role) => role !== 'attention.mix'));
      const theirs: Readonly<Record<string, number>> = {
        'attention.qkv': 128 * 64,
        'attention.o': 64 * 64,
        'ffn.gate_up': 320 * 64,
        'ffn.down': 64 * 160,
      };
      for (const { kernel, seconds, rival, ratio, teraflops, failure, origin } of kernels) {
        expect(failure).toBeUndefined();
        expect(origin).toBe('default');
        expect(seconds! * 1e3).toBeCloseTo(OURS[kernel]!, 9);
        expect(rival).toMatchObject({ algorithm: 'algorithm 1' });
        expect(rival!.seconds * 1e3).toBeCloseTo(theirs[kernel]! / 10_000, 9);
        expect(ratio).toBeCloseTo(theirs[kernel]! / 10_000 / OURS[kernel]!, 9);
        expect(teraflops! * 1e12).toBeCloseTo((2 * 64 * theirs[kernel]!) / seconds!, 3);
      }
      const whole = ROLES.reduce((sum, role) => sum + OURS[role]!, 0),
        products = Object.values(theirs).reduce((sum, nk) => sum + nk / 10_000, 0);
      expect(layers).toHaveLength(1);
      expect(layers[0]!.seconds * 1e3).toBeCloseTo(whole, 9);
      expect(layers[0]!.sumSeconds * 1e3).toBeCloseTo(products, 9);
      expect(layers[0]!.sequenceSeconds * 1e3).toBeCloseTo(products, 9);
      expect(layers[0]!.ratioToSum).toBeCloseTo(products / whole, 9);
      expect(layers[0]!.parts.map(({ kernel }) => kernel)).toEqual(ROLES);
      // The last rounds: the layer, the four in sequence, then each of them, three times.
      const tail = turns.slice(turns.findLastIndex(({ who }) => who === 'layer')).map(({ who }) => who);
      expect([...new Set(tail)]).toEqual(['layer', '128×64', '64×64', '320×64', '64×160']);
      // Nothing is left on the device or of the library.
      expect(open()).toBe(0);
      expect(state.live).toBe(before);
    },
  );

  it('lists loops with what they move, beside nothing of the library', async () => {
    const { lab: made } = lab();
    const narrow = modelOf(planOf(cudaModule(undefined, cudaNumerics('fp8'))));
    const { kernels } = await runGpuBench(made, narrow, options('--tokens', '64', '--kernel', 'gate.quantize'), quiet);
    expect(kernels).toMatchObject([{ kernel: 'ffn.gate.quantize', isBest: true }]);
    expect(kernels[0]!.seconds! * 1e3).toBeCloseTo(OURS['ffn.gate.quantize']!, 9);
    expect(kernels[0]!.bytes).toBeGreaterThan(0);
    expect(kernels[0]!.rival).toBeUndefined();
    expect(options('--finishing', 'deep,all').finishing).toEqual(['deep', 'all']);
    expect(options().finishing).toEqual(['deep']);
  });

  it('lets a product and its rival alternate, both queued behind the same run-up', async () => {
    const { lab: made, turns } = lab({ slows: 1.01 });
    const { kernels } = await runGpuBench(made, model, options('--tokens', '64', '--kernel', 'attention.o'), quiet);
    const runs = turns.map(({ who }) => who).filter((who, i, all) => who !== all[i - 1]);
    // Choosing the library's algorithm; load; sizing; three rounds.
    expect(runs).toEqual([
      '64×64',
      'attention.o',
      '64×64',
      'attention.o',
      '64×64',
      'attention.o',
      '64×64',
      'attention.o',
      '64×64',
    ]);
    expect(turns.every(({ isQueued }) => isQueued)).toBe(true);
    // A clock that slows by 1 % a turn spoils the times, but not the ratio.
    expect(kernels[0]!.ratio! / (0.4096 / 0.4)).toBeCloseTo(1.01, 2);
    expect(kernels[0]!.ratioRange![1] - kernels[0]!.ratioRange![0]).toBeLessThan(1e-9);
  });

  it('compares schedules that are tried or ranked, the chosen one first, and each once', async () => {
    const { lab: made } = lab();
    const down = model.layer.at(-1)!;
    const chosen = cudaScheduling.key(
      defaultCudaSchedule(down, plan, FACTS, scoringBucket({ tokens: 64, rows: 64, longest: 64 })),
    );
    const { kernels, layers } = await runGpuBench(
      made,
      model,
      options(
        '--tokens',
        '64',
        '--kernel',
        'ffn.down',
        '--all',
        '3',
        '--try',
        `ffn.down:${chosen.replaceAll('×', 'x')}`,
        '--try',
        'ffn.down:raster=4',
      ),
      quiet,
    );
    expect(layers).toHaveLength(0);
    expect(kernels[0]).toMatchObject({ kernel: 'ffn.down', origin: 'default', schedule: chosen });
    expect(kernels.filter(({ origin }) => origin === 'tried').map(({ schedule }) => schedule)).toEqual([
      chosen.replace(/ r\d+ /, ' r4 '),
    ]);
    expect(kernels.length).toBeGreaterThan(3);
    expect(new Set(kernels.map(({ schedule }) => schedule)).size).toBe(kernels.length);
    expect(kernels.filter(({ isBest }) => isBest)).toHaveLength(1);
  });

  it('runs the layer with schedules that are tried, where only the layer is measured', async () => {
    const { lab: made } = lab();
    const bound: string[] = [];
    class Program extends made.addon.Program {
      constructor(binding: CudaProgramBinding) {
        super(binding);
        for (const { name, symbol } of binding.launches) bound.push(`${roleOf(name)} ${symbol}`);
      }
    }
    const watched: GpuLab = {
      ...made,
      addon: { ...made.addon, Program },
    };
    const run = async (...args: readonly string[]): Promise<string | undefined> => {
      bound.length = 0;
      await runGpuBench(watched, model, options('--tokens', '64', '--kernel', 'layer', ...args), quiet);
      return bound.find((each) => each.startsWith('ffn.down '));
    };
    expect(await run('--try', 'ffn.down:stages=4')).not.toBe(await run());
  });

  it("takes the winner of the tuner's final, or of the next larger bucket's, not of a burst", async () => {
    const { lab: made } = lab();
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-bench-'));
    const path = join(folder, 'tuning.jsonl');
    const down = model.layer.at(-1)!;
    const start = defaultCudaSchedule(down, plan, FACTS, CAPACITY);
    if (start.kind !== 'gemm') throw new Error('a contraction');
    const [slow, fast, lucky] = [4, 2, 8].map((raster) => ({ ...start, raster })) as [
      CudaSchedule,
      CudaSchedule,
      CudaSchedule,
    ];
    const database = TuningDatabase.open(path, CUDA_RECORDS);
    const target = cudaTarget(FACTS, made.device.info, made.driverVersion, made.compiler.build);
    const place = {
      key: kernelSignature(down, plan, { T: tokensIn(CAPACITY), R: tokensIn(CAPACITY) }),
      bucket: CAPACITY,
      target,
    };
    database.append({ ...place, schedule: lucky, seconds: [1e-4] });
    database.appendFinal({ ...place, final: [{ schedule: lucky, seconds: 1e-3 }], marginSeconds: 0 });
    database.appendFinal({
      ...place,
      final: [
        { schedule: start, seconds: 2e-3 },
        { schedule: slow, seconds: 2.1e-3 },
        { schedule: fast, seconds: 1e-3 },
      ],
      marginSeconds: 1e-5,
    });
    database.close();
    const notes: string[] = [];
    const { kernels } = await runGpuBench(
      made,
      model,
      options('--tokens', '64', '--kernel', 'ffn.down', '--database', path),
      (line) => notes.push(line),
    );
    expect(kernels).toMatchObject([{ origin: 'tuned', schedule: cudaScheduling.key(fast) }]);
    expect(notes.join('\n')).toMatch(/layers\.1\.attention\.o at 64 tokens is not in .*its default is measured/);
    expect(notes.join('\n')).not.toContain('layers.1.ffn.down at');
    rmSync(folder, { recursive: true });
  });

  it('names what does not compile, and then leaves the layer out', async () => {
    const { lab: made, state } = lab({ refuses: (source) => source.includes('k_attention') });
    const before = state.live;
    const notes: string[] = [];
    const results = await runGpuBench(made, model, options('--tokens', '64'), (line) => notes.push(line));
    expect(results.kernels).toHaveLength(4);
    expect(results.layers).toHaveLength(0);
    expect(notes.join('\n')).toContain('the layer at 64 tokens is left out');
    const broken = lab({ refuses: (source) => source.includes('k_gemm') });
    const { kernels } = await runGpuBench(broken.lab, model, options('--tokens', '64', '--kernel', 'ffn.down'), quiet);
    expect(kernels[0]).toMatchObject({ failure: 'error: 3 is not a vector', isBest: false });
    expect(kernels[0]!.ratio).toBeUndefined();
    expect(state.live).toBe(before);
  });

  it('refuses names and schedules that do not exist', async () => {
    const { lab: made } = lab();
    const run = (...args: readonly string[]): Promise<GpuResults> =>
      runGpuBench(made, model, options('--tokens', '64', ...args), quiet);
    await expect(run('--kernel', 'ffn.up')).rejects.toMatchObject({
      name: 'UserError',
      hint: expect.stringContaining('ffn.gate_up'),
    });
    await expect(run('--try', 'ffn.up:raster=4')).rejects.toMatchObject({
      name: 'UserError',
      hint: expect.stringContaining('ffn.gate_up'),
    });
    await expect(run('--try', 'ffn.down:rooster=4')).rejects.toThrow(
      /no schedule of layers\.1\.ffn\.down, whose own is skinny/,
    );
    await expect(run('--try', 'ffn.down:tn=17')).rejects.toThrow(/cannot be compiled so: /);
    expect(() => options('--tokens', '64,seven')).toThrow(UserError);
    expect(() => options('--try', 'ffn.down')).toThrow(/expected KERNEL:SCHEDULE/);
    expect(() => options('--frobnicate')).toThrow(UserError);
    expect(() => options('--mask', 'bias')).toThrow(/expected path or tree/);
    expect(options('--mask', 'tree').mask).toBe('tree');
  });
});

const hasGpu = cudaAvailable().ok;
if (hasGpu) console.warn('SKIPPED the benchmark without a GPU: there is one here.');

describe.skipIf(hasGpu)('openLab', () => {
  it('says that there is no GPU, and what to type', async () => {
    await expect(openLab(readSettings({}))).rejects.toMatchObject({
      name: 'UserError',
      message: expect.stringMatching(/measures on a GPU: ./),
      hint: expect.stringContaining('npm run bundle'),
    });
  });
});
