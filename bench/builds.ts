/**
 * Kernels of two builds of this project beside each other on one GPU: the same plan and schedules, each build's own
 * text, in turn. Shows that a change of code generation keeps time and bits.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Command } from 'commander';
import { type Contender, interleave, warmUp } from '../autotune/cuda/timing.js';
import { CudaWorkbench } from '../autotune/cuda/workbench.js';
import { median } from '../autotune/records.js';
import { defaultCudaSchedule, emitCudaKernel } from '../codegen/cuda/index.js';
import { cudaScheduling } from '../codegen/cuda/encoding.js';
import { compileModel } from '../driver/compile/compile.js';
import { openModel } from '../driver/functions.js';
import type { Precision } from '../driver/precision.js';
import { cuda } from '../driver/targets/cuda.js';
import { cudaDevice } from '../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../driver/targets/cudaKernels.js';
import { UserError } from '../errors.js';
import type { CudaKernelText, CudaSchedule } from '../ir/cuda.js';
import { kernelSignature } from '../codegen/signature.js';
import type { Kernel } from '../ir/kernel.js';
import { type Bucket, linkFunction, type LinkedFunction } from '../ir/plan.js';
import { scoringBucket, withKeyRoom } from '../ir/scoring.js';
import { stepExtents } from '../ir/stepping.js';
import { compileCubins } from '../runtime/cuda/compiler.js';
import type { CudaUnit } from '../runtime/cuda/compiler.js';
import type { CudaModule } from '../runtime/cuda/native.js';
import { readSettings } from '../settings.js';
import { benchCommand, decimal, list, repeated, runProgram, text, whole } from './command.js';
import { modelFolder } from './checkpoint.js';
import { withConfig } from './compilePlan.js';
import { type GpuLab, openLab, programContender } from './gpuLab.js';

/** The generators of the other build, which print the same IR. */
interface OtherBuild {
  readonly emit: typeof emitCudaKernel;
  readonly emitPlan: typeof emitCudaPlan;
}

interface BuildsOptions {
  readonly before: string;
  readonly model: string;
  readonly precision: Precision;
  readonly size: readonly string[];
  readonly kernel: readonly string[];
  readonly rounds: number;
  readonly seconds: number;
  readonly compile: number;
}

const SIZE = /^(score|prompt|prefill|step):(\d{1,6})(?:x(\d{1,6}))?$/;
const LAYERS = 3;
const WARM_SECONDS = 0.3;

async function openBuild(dist: string): Promise<OtherBuild> {
  const load = async (file: string): Promise<Readonly<Record<string, unknown>>> =>
    (await import(pathToFileURL(join(resolve(dist), file)).href)) as Readonly<Record<string, unknown>>;
  try {
    const [codegen, kernels] = [await load('codegen/cuda/index.js'), await load('driver/targets/cudaKernels.js')];
    return {
      emit: codegen['emitCudaKernel'] as typeof emitCudaKernel,
      emitPlan: kernels['emitCudaPlan'] as typeof emitCudaPlan,
    };
  } catch (error) {
    throw new UserError(
      `--before ${dist}: no build of this project (${error instanceof Error ? error.message : String(error)})`,
      'name the dist folder of a checkout in which npm run build has run',
    );
  }
}

/**
 * The function and the bucket of a size: `score:3840` tokens in trees, `prompt:32768` in one path, `prefill:32768` the
 * same with a cache, `step:64x1024` sequences and keys of each.
 */
function bucketOf(
  size: string,
  functions: ReadonlyMap<string, LinkedFunction<CudaSchedule>>,
): {
  readonly fn: LinkedFunction<CudaSchedule>;
  readonly bucket: Bucket;
} {
  const [, kind, count = '', keys = '1024'] = SIZE.exec(size) ?? [];
  if (kind === undefined)
    throw new UserError(
      `--size ${JSON.stringify(size)}: expected score:TOKENS, prompt:TOKENS, prefill:TOKENS or step:SEQUENCESxKEYS`,
      'for example: --size score:3840 --size step:64x1024',
    );
  const tokens = Number(count);
  if (kind === 'step' || kind === 'prefill') {
    const fn = functions.get('step')!;
    const filtered = fn.interface.extents.some(({ name }) => name === 'F') ? 1 : undefined;
    const extents = stepExtents({
      ...(kind === 'step' ? { tokens, rows: tokens, keys: tokens * Number(keys) } : { tokens, rows: 1, keys: tokens }),
      ...(filtered === undefined ? {} : { filtered, entries: 1 }),
    });
    return { fn, bucket: kind === 'step' ? { extents, longest: Number(keys), run: 1 } : { extents, longest: tokens } };
  }
  const fn = functions.get('score')!;
  const rows = kind === 'prompt' ? 1 : Math.max(1, Math.round((tokens * 128) / 176));
  const longest = kind === 'prompt' ? tokens : Math.min(tokens, 80);
  return { fn, bucket: withKeyRoom(fn.interface, scoringBucket({ tokens, rows, longest })) };
}

/** Kernels of a layer that is neither the first nor the last, and those outside of layers, each signature once. */
function kernelsOf(fn: LinkedFunction<CudaSchedule>, wanted: readonly string[]): readonly Kernel[] {
  const seen = new Set<string>();
  return fn.kernels.filter((kernel) => {
    const layer = /^layers\.(\d+)\./.exec(kernel.path)?.[1];
    if (layer !== undefined && layer !== '1') return false;
    if (wanted.length > 0 && !wanted.some((name) => kernel.path.includes(name))) return false;
    const signature = kernelSignature(kernel, fn, fn.capacity.extents);
    if (seen.has(signature)) return false;
    seen.add(signature);
    return true;
  });
}

/** Seconds a launch of both texts, and whether they leave the same bits. Undefined where memory is short. */
async function measure(
  lab: GpuLab,
  fn: LinkedFunction<CudaSchedule>,
  kernel: Kernel,
  bucket: Bucket,
  texts: readonly [CudaKernelText, CudaKernelText],
  { rounds, seconds }: Pick<BuildsOptions, 'rounds' | 'seconds'>,
): Promise<{ readonly seconds: readonly [number, number]; readonly isSame: boolean }> {
  const made: { release(): void }[] = [];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  try {
    const modules: CudaModule[] = [];
    for (const each of texts) {
      const { cubins, failures } = await lab.compile([each]);
      const cubin = cubins.get(each.symbol);
      if (cubin === undefined) throw failures.get(each.symbol) ?? new Error(`${each.symbol} was not compiled`);
      modules.push(own(new lab.addon.Module(lab.device, cubin)));
    }
    const bench = own(
      new CudaWorkbench({
        ...{ kernel, module: fn, bucket, capacity: fn.capacity },
        ...{ addon: lab.addon, device: lab.device, fill: lab.tools.fill, compare: lab.tools.compare },
      }),
    );
    await bench.fill();
    const programs = texts.map((each, i) => own(bench.program(each, modules[i]!)));
    const results = [await bench.results(programs[0]!), await bench.results(programs[1]!)] as const;
    const isSame = results[0].every((bytes, i) => Buffer.compare(bytes, results[1][i]!) === 0);
    const contenders = programs.map((program, i): Contender =>
      programContender(lab, i === 0 ? 'before' : 'now', program, bench.launches, bench.launches.length, bench.sizes),
    );
    await warmUp(contenders[0]!, WARM_SECONDS);
    const times = await interleave(contenders, { rounds, seconds });
    const each = (i: number): number => median(times[i]!) / bench.launches.length;
    return { seconds: [each(0), each(1)], isSame };
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}

/** Seconds to compile all units with nothing in the cache. */
async function compileSeconds(lab: GpuLab, units: readonly CudaUnit[]): Promise<number> {
  const cacheDir = mkdtempSync(join(tmpdir(), 'tilewright-builds-'));
  try {
    const { arch } = lab.facts;
    const settings = { ...readSettings(), cacheDir };
    return (await compileCubins(units, { arch, driverVersion: lab.driverVersion, settings })).seconds;
  } finally {
    rmSync(cacheDir, { recursive: true, force: true });
  }
}

const micro = (seconds: number): string => (seconds * 1e6).toFixed(seconds < 1e-4 ? 2 : 1);

async function main(options: BuildsOptions): Promise<void> {
  const other = await openBuild(options.before);
  const lab = await openLab();
  try {
    const model = { path: options.model, precision: options.precision, target: 'cuda', layers: LAYERS };
    const checkpoint = withConfig(model, (folder) => openModel(folder, { kind: 'random', seed: 1 }));
    const device = cudaDevice(lab.facts, options.precision, checkpoint.config.dtype);
    const most = Math.max(
      ...options.size.map((size) => (size.startsWith('step') ? 0 : Number(SIZE.exec(size)?.[2] ?? 0))),
    );
    const { plan } = compileModel(checkpoint, cuda, device, {
      cacheTokens: 1 << 22,
      ...(most > 16_384 ? { batchTokens: most } : {}),
    });
    const functions = new Map(plan.functions.map(({ interface: { name } }) => [name, linkFunction(plan, name)]));
    console.log('size kernel schedule before_us now_us ratio bits');
    const ratios: number[] = [];
    for (const size of options.size) {
      const { fn, bucket } = bucketOf(size, functions);
      for (const kernel of kernelsOf(fn, options.kernel)) {
        const schedule = defaultCudaSchedule(kernel, fn, lab.facts, bucket);
        const { extents } = fn.capacity;
        const texts = [
          other.emit(kernel, fn, schedule, extents),
          emitCudaKernel(kernel, fn, schedule, extents),
        ] as const;
        const key = cudaScheduling.key(schedule).replaceAll(' ', '_');
        try {
          const { seconds, isSame } = await measure(lab, fn, kernel, bucket, texts, options);
          const ratio = seconds[1] / seconds[0];
          ratios.push(ratio);
          console.log(
            `${size} ${kernel.path} ${key} ${micro(seconds[0])} ${micro(seconds[1])} ${ratio.toFixed(4)} ` +
              (isSame ? 'same' : 'DIFFER'),
          );
        } catch (error) {
          console.log(
            `${size} ${kernel.path} ${key} - - - ${error instanceof Error ? error.message.slice(0, 300) : ''}`,
          );
        }
      }
    }
    if (ratios.length > 0)
      console.log(
        `${ratios.length} kernels: median ${median(ratios).toFixed(4)}, most ${Math.max(...ratios).toFixed(4)}`,
      );
    for (let turn = 0; turn < options.compile; turn++) {
      const [before, now] = [[...other.emitPlan(plan).distinct.values()], [...emitCudaPlan(plan).distinct.values()]];
      console.log(
        `compile ${now.length} kernels: before ${(await compileSeconds(lab, before)).toFixed(1)} s, ` +
          `now ${(await compileSeconds(lab, now)).toFixed(1)} s`,
      );
    }
  } finally {
    lab.release();
  }
}

export const buildsCommand = (): Command =>
  benchCommand('bench:builds', 'Kernels of two builds in turn: time and bits of each, and compile times.')
    .requiredOption('--before <dist>', 'the dist folder of the other build')
    .option(
      '--model <path>',
      'folder of a config.json, or one below bench/models',
      modelFolder,
      modelFolder('llama-8b'),
    )
    .option('--precision <name>', "as the commands' --precision and --quantize; int4 as bench:compile has it", 'bf16')
    .option(
      '--size <size>',
      'score:TOKENS, prompt:TOKENS, prefill:TOKENS or step:SEQUENCESxKEYS; may be repeated',
      repeated(text),
      [],
    )
    .option('--kernel <names>', 'only kernels whose path contains one of these', list(text), [])
    .option('--rounds <n>', 'turns of each side', whole(1, 1000), 20)
    .option('--seconds <s>', 'counted seconds of each side, all its turns together', decimal(0.001, 60), 0.1)
    .option('--compile <n>', 'turns of compiling all kernels of the plan, with nothing in the cache', whole(0, 20), 0);

await runProgram(import.meta.url, buildsCommand, main);
