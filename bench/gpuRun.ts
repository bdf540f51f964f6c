/** Runs a GPU benchmark, from the choice of schedules to the results. */
import { referenceSchedule } from '../autotune/cuda/candidates.js';
import { cudaMachine, measureBandwidth } from '../autotune/cuda/costModel.js';
import { CUDA_RECORDS, cudaTarget } from '../autotune/cuda/tune.js';
import { TuningDatabase } from '../autotune/database.js';
import { emitCudaKernel } from '../codegen/cuda/index.js';
import { cudaScheduling } from '../codegen/cuda/scheduling.js';
import { UserError } from '../errors.js';
import type { Kernel } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import { defined } from '../system/defined.js';
import { measureKernel, type Product, productOf, type Variant } from './gpuKernel.js';
import type { GpuLab } from './gpuLab.js';
import { measureLayer } from './gpuLayer.js';
import { benchBucket, type BenchModel, roleOf } from './gpuModel.js';
import type { GpuOptions } from './gpuOptions.js';
import type { GpuResults, KernelResult, LayerResult } from './gpuResults.js';
import { type Choice, defaultChoice, isTrialOf, rankedChoices, trialSchedule, tunedChoice } from './gpuSchedules.js';

const FIRST_WARM_SECONDS = 1;
const WARM_SECONDS = 0.15;

/** A kernel at one size, and the choices to compare. The compiler's or tuner's comes first. */
interface Case {
  readonly kernel: Kernel;
  readonly bucket: Bucket;
  readonly choices: readonly Choice[];
  readonly reference: Choice;
}

function casesOf(lab: GpuLab, model: BenchModel, options: GpuOptions, note: (line: string) => void): readonly Case[] {
  const { facts, plan } = model;
  const database = options.database === undefined ? undefined : TuningDatabase.open(options.database, CUDA_RECORDS);
  try {
    const machine =
      options.all > 0 ? cudaMachine(facts.arch, lab.device.info, measureBandwidth(lab.addon, lab.device)) : undefined;
    const target = cudaTarget(facts, lab.device.info, lab.driverVersion, lab.compiler.build);
    const used = new Set<unknown>();
    const cases = options.tokens.flatMap((tokens) =>
      kernelsOf(model, options).map((kernel): Case => {
        const bucket = benchBucket(model, tokens);
        const plain = defaultChoice(kernel, model, tokens);
        const tuned = database === undefined ? undefined : tunedChoice(kernel, model, tokens, database, target);
        if (database !== undefined && tuned === undefined)
          note(`${kernel.path} at ${tokens} tokens is not in ${options.database ?? ''}: its default is measured`);
        const chosen = tuned ?? plain;
        const tried = options.trials
          .filter((trial) => isTrialOf(trial, kernel.path, tokens))
          .map((trial): Choice => {
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
    const unused = options.trials.find((trial) => !used.has(trial));
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
function distinct(choices: readonly Choice[]): readonly Choice[] {
  const keys = choices.map(({ schedule }) => JSON.stringify(schedule, Object.keys(schedule).sort()));
  return choices.filter((_, i) => keys.indexOf(keys[i]!) === i);
}

/** The layer, and the head where an option names it. */
const kernelsOf = ({ layer, head }: BenchModel, options: GpuOptions): readonly Kernel[] =>
  head !== undefined && options.kernels.length > 0 && isSelected(options, head) ? [...layer, head] : layer;
const isSelected = ({ kernels }: GpuOptions, kernel: Kernel): boolean =>
  kernels.length === 0 || kernels.some((text) => roleOf(kernel.path).includes(text));
const wantsLayer = ({ kernels }: GpuOptions): boolean => kernels.length === 0 || kernels.includes('layer');

/** Compiles everything that will be measured, in parallel. */
async function compileCases(
  lab: GpuLab,
  { plan }: BenchModel,
  cases: readonly Case[],
  isChecked: boolean,
): Promise<(kernel: Kernel, choice: Choice) => Variant> {
  const emit = (kernel: Kernel, { schedule }: Choice): Variant['text'] =>
    emitCudaKernel(kernel, plan, schedule, plan.capacity.extents);
  const texts = cases.flatMap(({ kernel, choices, reference }) =>
    [...choices, ...(isChecked ? [reference] : [])].map((choice) => emit(kernel, choice)),
  );
  const { cubins, failures } = await lab.compile([
    ...new Map(texts.map(({ symbol, source }) => [symbol, { symbol, source }])).values(),
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
    options.kernels.length > 0 &&
    !wantsLayer(options) &&
    !kernelsOf(model, options).some((kernel) => isSelected(options, kernel))
  ) {
    throw new UserError(
      `--kernel ${options.kernels.join(',')}: no kernel of the layer is called that`,
      `kernels: ${model.layer.map(({ path }) => roleOf(path)).join(', ')}, head, layer`,
    );
  }
  const cases = casesOf(lab, model, options, note);
  const started = performance.now();
  const variantOf = await compileCases(lab, model, cases, options.isChecked);
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
    const products = new Map<Kernel, Product>();
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
            ...(options.isChecked ? { reference: variantOf(kernel, reference) } : {}),
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
