/**
 * `npm run bench:gpu`: compares a layer's kernels on this machine's GPU with cuBLASLt, each ratio within one run.
 * In a bundle this is `bench-gpu.sh`.
 */
import type { Command } from 'commander';
import { referenceSchedule } from '../autotune/cuda/candidates.js';
import { cudaMachine, measureBandwidth } from '../autotune/cuda/costModel.js';
import { isDeviceHung } from '../autotune/cuda/timing.js';
import { CUDA_RECORDS, cudaTarget } from '../autotune/cuda/tune.js';
import { defaultDatabasePath, TuningDatabase } from '../autotune/database.js';
import { emitCudaKernel } from '../codegen/cuda/index.js';
import { cudaScheduling } from '../codegen/cuda/encoding.js';
import { UserError } from '../errors.js';
import type { Kernel } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import type { Finishing } from '../passes/fuseRowNorms.js';
import { defined } from '../system/defined.js';
import { writeAtomically } from '../system/write.js';
import { benchCommand, decimal, list, oneOf, repeated, runProgram, whole } from './command.js';
import { type GpuLab, measureReadRate, openLab } from './gpuLab.js';
import { measureKernel, measureLayer, type VendorProduct, productOf, type Variant } from './gpuMeasure.js';
import {
  benchBucket,
  type BenchModel,
  type ScheduleChoice,
  defaultChoice,
  isTrialOf,
  openBenchModel,
  parseTrial,
  rankedChoices,
  roleOf,
  type ScheduleTrial,
  trialSchedule,
  tunedChoice,
} from './gpuModel.js';
import { type GpuResults, type KernelResult, type LayerResult, renderGpuTable } from './gpuResults.js';
import { modelPath } from './inputs.js';

const READ_WARM_SECONDS = 0.5;

const note = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

async function main(options: GpuOptions): Promise<void> {
  let lab: GpuLab | undefined;
  try {
    lab = await openLab();
    const readBytesPerSecond = await measureReadRate(lab, options.rounds, READ_WARM_SECONDS);
    const { model: name, tokens, mask, precision } = options;
    const all: GpuResults[] = [];
    for (const finishing of options.finishing) {
      const model = openBenchModel(modelPath(name), lab.facts, Math.max(...tokens), mask, precision, finishing);
      const results = { ...(await runGpuBench(lab, model, options, note)), readBytesPerSecond, finishing };
      all.push(results);
      for (const line of renderGpuTable(results)) console.log(line);
    }
    if (options.json !== undefined)
      writeAtomically(options.json, [`${JSON.stringify(all.length === 1 ? all[0] : all, undefined, 1)}\n`]);
    if (all.some(({ kernels }) => kernels.some(({ failure }) => failure !== undefined))) process.exitCode = 1;
  } catch (error) {
    if (isDeviceHung(error)) {
      // A lost device releases nothing.
      note(
        `error: ${error instanceof Error ? error.message : String(error)}\n` +
          'hint: leave the kernel out that was measured last: --kernel NAME',
      );
      process.exit(1);
    }
    throw error;
  } finally {
    lab?.release();
  }
}

export interface GpuOptions {
  readonly model: string;
  /** Ascending, each once. */
  readonly tokens: readonly number[];
  readonly rounds: number;
  readonly seconds: number;
  readonly kernel: readonly string[];
  readonly try: readonly ScheduleTrial[];
  readonly all: number;
  readonly tuned?: boolean;
  readonly database?: string;
  readonly mask?: 'path' | 'tree';
  readonly precision: 'auto' | 'fp8' | 'int4';
  /** Each has a plan and a table of its own. */
  readonly finishing: readonly Finishing[];
  readonly check: boolean;
  readonly json?: string;
}

const FINISHING = ['deep', 'all'] as const satisfies readonly Finishing[];
const once = <T>(values: readonly T[]): readonly T[] => [...new Set(values)];
const tokenList = list(whole(1, 32_768));
const finishingList = list(oneOf(FINISHING));

/** Names of kernels, with commas between them, in one value or several. */
const nameList = (): ((value: string) => readonly string[]) => {
  const found: string[] = [];
  return (value) => {
    found.push(...value.split(',').filter((name) => name !== ''));
    return found;
  };
};

export const gpuCommand = (): Command =>
  benchCommand(
    'bench:gpu',
    "Each contraction of a layer, epilogue included, against cuBLASLt's best bare product, its loops, and the " +
      'layer against the sum of those products and against their sequence; all in one process, in turn. Few tokens ' +
      '(--tokens 1,8,32,64) are limited by memory: GB/s counts what a kernel must read and write, "of read" is its ' +
      'share of the rate at which a kernel of this run only reads.',
  )
    .option('--model <path>', 'folder of a config.json, or one below bench/models; weights are random', 'llama-33b')
    .option(
      '--tokens <list>',
      'sizes of micro-batches',
      (value) => [...once(tokenList(value))].sort((a, b) => a - b),
      [1024, 2048, 3840, 5760, 7680],
    )
    .option('--rounds <n>', 'turns of each side', whole(1, 1000), 20)
    .option('--seconds <s>', 'counted seconds of each side, all its turns together', decimal(0.001, 60), 0.3)
    .option(
      '--kernel <names>',
      'only kernels whose name contains one of these; head: the vocabulary; layer: the whole layer',
      nameList(),
      [],
    )
    .option(
      '--try <kernel[@tokens]:schedule>',
      'another schedule of a kernel: its key, as the table prints it, or changes such as tm=192,stages=5; with ' +
        '--kernel layer the layer runs with it; may be repeated',
      repeated(parseTrial),
      [],
    )
    .option('--all <n>', 'the schedules that the cost model ranks first, so many', whole(0, 256), 0)
    .option('--tuned', "the tuner's schedules instead of the compiler's, from its database")
    .option('--database <file>', 'the database of --tuned')
    .option(
      '--mask <form>',
      'what attention groups keys by: path, by position (as a run does), or tree, by place in the micro-batch',
      oneOf(['path', 'tree']),
    )
    .option(
      '--precision <name>',
      "what is multiplied: auto (16 bits) or fp8, against the library's products of the same numbers; int4: " +
        'weights of 4 bits in groups, of a model that stores them (llama-33b-gptq), against products of 16 bits',
      oneOf(['auto', 'fp8', 'int4']),
      'auto',
    )
    .option(
      '--finishing <list>',
      "which products finish rows for the kernel behind them: deep (the compiler's choice), all, or deep,all: " +
        'first one, then the other, a table each',
      (value) => once(finishingList(value)),
      ['deep'],
    )
    .option('--no-check', 'do not compare results with those of CUDA cores before timing')
    .option('--json <file>', 'write the results to a file');

/** The tuner's database, if its schedules are asked for. */
const databaseOf = ({ tuned, database }: GpuOptions): string | undefined =>
  database ?? (tuned === true ? defaultDatabasePath() : undefined);

/** Runs a GPU benchmark, from the choice of schedules to the results. */

const FIRST_WARM_SECONDS = 1;
const WARM_SECONDS = 0.15;

/** A kernel at one size, and the choices to compare. The compiler's or tuner's comes first. */
interface KernelCase {
  readonly kernel: Kernel;
  readonly bucket: Bucket;
  readonly choices: readonly ScheduleChoice[];
  readonly reference: ScheduleChoice;
}

function casesOf(
  lab: GpuLab,
  model: BenchModel,
  options: GpuOptions,
  note: (line: string) => void,
): readonly KernelCase[] {
  const { facts, plan } = model;
  const file = databaseOf(options);
  const database = file === undefined ? undefined : TuningDatabase.open(file, CUDA_RECORDS);
  try {
    const machine =
      options.all > 0 ? cudaMachine(facts.arch, lab.device.info, measureBandwidth(lab.addon, lab.device)) : undefined;
    const target = cudaTarget(facts, lab.device.info, lab.driverVersion, lab.compiler.build);
    const used = new Set<unknown>();
    const cases = options.tokens.flatMap((tokens) =>
      kernelsOf(model, options).map((kernel): KernelCase => {
        const bucket = benchBucket(model, tokens);
        const plain = defaultChoice(kernel, model, tokens);
        const tuned = database === undefined ? undefined : tunedChoice(kernel, model, tokens, database, target);
        if (database !== undefined && tuned === undefined)
          note(`${kernel.path} at ${tokens} tokens is not in ${file ?? ''}: its default is measured`);
        const chosen = tuned ?? plain;
        const tried = options.try
          .filter((trial) => isTrialOf(trial, kernel.path, tokens))
          .map((trial): ScheduleChoice => {
            used.add(trial);
            return { origin: 'tried', schedule: trialSchedule(trial, kernel, model, chosen.schedule) };
          });
        const ranked =
          machine === undefined || !isSelected(options, kernel)
            ? []
            : rankedChoices(kernel, model, bucket, machine, plain.schedule, options.all);
        const choices = distinct([chosen, ...tried, ...ranked]);
        return {
          kernel,
          bucket,
          choices,
          reference: { origin: 'reference', schedule: referenceSchedule(kernel, plan, facts, plain.schedule) },
        };
      }),
    );
    const unused = options.try.find((trial) => !used.has(trial));
    if (unused !== undefined) {
      const where = unused.tokens === undefined ? '' : ` at ${unused.tokens} tokens`;
      throw new UserError(
        `--try ${unused.kernel}: no kernel of the layer is called that${where}`,
        `kernels: ${model.layer.map(({ path }) => roleOf(path)).join(', ')}`,
      );
    }
    return cases;
  } finally {
    database?.close();
  }
}

/** Each schedule once, at its first position. */
function distinct(choices: readonly ScheduleChoice[]): readonly ScheduleChoice[] {
  const keys = choices.map(({ schedule }) => JSON.stringify(schedule, Object.keys(schedule).sort()));
  return choices.filter((_, i) => keys.indexOf(keys[i]!) === i);
}

/** The layer, and the head where an option names it. */
const kernelsOf = ({ layer, head }: BenchModel, options: GpuOptions): readonly Kernel[] =>
  head !== undefined && options.kernel.length > 0 && isSelected(options, head) ? [...layer, head] : layer;
const isSelected = ({ kernel: names }: GpuOptions, kernel: Kernel): boolean =>
  names.length === 0 || names.some((name) => roleOf(kernel.path).includes(name));
const wantsLayer = ({ kernel: names }: GpuOptions): boolean => names.length === 0 || names.includes('layer');

/** Compiles everything that will be measured, in parallel. */
async function compileCases(
  lab: GpuLab,
  { plan }: BenchModel,
  cases: readonly KernelCase[],
  isChecked: boolean,
): Promise<(kernel: Kernel, choice: ScheduleChoice) => Variant> {
  const emit = (kernel: Kernel, { schedule }: ScheduleChoice): Variant['text'] =>
    emitCudaKernel(kernel, plan, schedule, plan.capacity.extents);
  const texts = cases.flatMap(({ kernel, choices, reference }) =>
    [...choices, ...(isChecked ? [reference] : [])].map((choice) => emit(kernel, choice)),
  );
  const { cubins, failures } = await lab.compile([
    ...new Map(texts.map(({ symbol, source, headers }) => [symbol, { symbol, source, headers }])).values(),
  ]);
  return (kernel, choice) => {
    const text = emit(kernel, choice);
    return {
      ...choice,
      text,
      cubin: cubins.get(text.symbol) ?? failures.get(text.symbol)?.message ?? 'it was not compiled',
    };
  };
}

/**
 * Measures kernels and layers, smallest micro-batch first. Throws UserError if the options name something that does not
 * exist, CudaError if the device fails.
 */
export async function runGpuBench(
  lab: GpuLab,
  model: BenchModel,
  options: GpuOptions,
  note: (line: string) => void,
): Promise<GpuResults> {
  if (
    options.kernel.length > 0 &&
    !wantsLayer(options) &&
    !kernelsOf(model, options).some((kernel) => isSelected(options, kernel))
  ) {
    throw new UserError(
      `--kernel ${options.kernel.join(',')}: no kernel of the layer is called that`,
      `kernels: ${model.layer.map(({ path }) => roleOf(path)).join(', ')}, head, layer`,
    );
  }
  const cases = casesOf(lab, model, options, note);
  const started = performance.now();
  const variantOf = await compileCases(lab, model, cases, options.check);
  const texts = new Set(
    cases.flatMap(({ kernel, choices }) =>
      choices.map(({ schedule }) => `${kernel.path} ${cudaScheduling.key(schedule)}`),
    ),
  );
  note(`${texts.size} kernels compiled in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  const kernels: KernelResult[] = [],
    layers: LayerResult[] = [];
  let warmSeconds = FIRST_WARM_SECONDS;
  for (const tokens of options.tokens) {
    const here = cases.filter(({ bucket }) => tokensIn(bucket) === tokens);
    const products = new Map<Kernel, VendorProduct>();
    try {
      const chosen: Variant[] = [];
      for (const { kernel, bucket, choices, reference } of here) {
        const variants = choices.map((choice) => variantOf(kernel, choice));
        const product =
          wantsLayer(options) || isSelected(options, kernel) ? await productOf(lab, model, kernel, bucket) : undefined;
        if (product !== undefined) products.set(kernel, product);
        // Where the kernel itself is not measured, the layer shows what a tried schedule does beside its neighbours.
        let best: Variant | undefined = variants.find(({ origin }) => origin === 'tried') ?? variants[0];
        // Loops have their rate of memory. Attention alone has nothing to compare; its time is part of the layer's.
        const isCompared = product !== undefined || variants.length > 1 || kernel.anchor === 'loop';
        if (isSelected(options, kernel) && isCompared) {
          const found = await measureKernel({
            lab,
            model,
            kernel,
            bucket,
            variants,
            timing: { ...options, warmSeconds },
            ...defined({ product }),
            ...(options.check ? { reference: variantOf(kernel, reference) } : {}),
          });
          warmSeconds = WARM_SECONDS;
          kernels.push(...found);
          best = variants[found.findIndex(({ isBest }) => isBest)];
          const measured = found.map(
            ({ ratio, seconds, failure }) =>
              failure ?? ratio?.toFixed(3) ?? `${((seconds ?? NaN) * 1e3).toPrecision(3)} ms`,
          );
          note(`${roleOf(kernel.path)} at ${tokens} tokens: ${measured.join(', ')}`);
        }
        if (best !== undefined && typeof best.cubin !== 'string' && model.layer.includes(kernel)) chosen.push(best);
      }
      if (!wantsLayer(options)) continue;
      if (chosen.length < model.layer.length) {
        note(`the layer at ${tokens} tokens is left out: a kernel of it does not work`);
        continue;
      }
      layers.push(
        await measureLayer({
          lab,
          model,
          bucket: benchBucket(model, tokens),
          variants: chosen,
          products: model.layer.flatMap((kernel) => products.get(kernel) ?? []),
          timing: { ...options, warmSeconds },
        }),
      );
      warmSeconds = WARM_SECONDS;
    } finally {
      for (const product of products.values()) product.release();
    }
  }
  return {
    device: lab.device.info.name,
    library: lab.library.version,
    compiler: lab.compiler.name,
    model: options.model,
    rounds: options.rounds,
    kernels,
    layers,
  };
}

await runProgram(import.meta.url, gpuCommand, main);
