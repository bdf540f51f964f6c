/**
 * Measures one kernel of the layer, in one or several schedules, in turn with the vendor's library on the bare product.
 */
import { SequenceBench, type SequencePart } from '../autotune/cuda/sequence.js';
import { type Contender, interleave, type InterleaveOptions, patiently, warmUp } from '../autotune/cuda/timing.js';
import { type BareContraction, contractionOf, BaselineBench, timeLaunches } from '../autotune/cuda/vendorBaseline.js';
import { CudaWorkbench } from '../autotune/cuda/workbench.js';
import { median } from '../autotune/records.js';
import { kernelWork, sizeOf } from '../autotune/work.js';
import { cudaScheduling } from '../codegen/cuda/encoding.js';
import type { CudaKernelText } from '../ir/cuda.js';
import type { Kernel } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import { isCudaError } from '../runtime/cuda/addon.js';
import type { CudaModule, CudaProgram } from '../runtime/cuda/native.js';
import { defined } from '../system/defined.js';
import { type GpuLab, programContender } from './gpuLab.js';
import { type BenchModel, type ScheduleChoice, roleOf } from './gpuModel.js';
import { compareLayer, compareRounds, type KernelResult, type LayerResult } from './gpuResults.js';
import { at } from '../system/at.js';

/** A choice as machine code. */
export interface Variant extends ScheduleChoice {
  readonly text: CudaKernelText;
  /** The reason why there is no machine code. */
  readonly cubin: Uint8Array | string;
}

export interface Timing extends InterleaveOptions {
  /** Seconds of load before each comparison. */
  readonly warmSeconds: number;
}

/** The library's fastest algorithm for a product, and its operands. */
export interface VendorProduct {
  readonly contraction: BareContraction;
  readonly algorithm: string;
  readonly contender: Contender;
  /** Enqueues one product. */
  launch(): void;
  release(): void;
}

export const flopsOf = ({ m, n, k }: BareContraction): number => 2 * m * n * k;

const CHOOSING: InterleaveOptions = { rounds: 3, seconds: 0.015 };
const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** The fastest of the algorithms that the library names, found in a first round in turn. Throws if none works. */
async function chooseProduct(lab: GpuLab, contraction: BareContraction): Promise<VendorProduct> {
  const bench = await BaselineBench.create(contraction, {
    addon: lab.addon,
    device: lab.device,
    library: lab.library,
    fill: lab.tools.fill,
  });
  try {
    const problems: string[] = [];
    const usable: { readonly index: number; readonly contender: Contender }[] = [];
    for (const [index, name] of bench.algorithms.entries()) {
      const contender: Contender = {
        name,
        time: (shape) =>
          Promise.resolve(
            timeLaunches(
              lab,
              () => {
                bench.launch(index);
              },
              shape,
            ),
          ),
      };
      try {
        await contender.time({ warmup: 0, repeats: 1, perSample: 1 });
        usable.push({ index, contender });
      } catch (error) {
        if (isCudaError(error)) throw error;
        problems.push(reasonOf(error));
      }
    }
    const times = (
      await interleave(
        usable.map(({ contender }) => contender),
        CHOOSING,
      )
    ).map(median);
    const best = usable[times.indexOf(Math.min(...times))];
    if (best === undefined)
      throw new Error(
        `cuBLASLt ${lab.library.version} has no algorithm ` +
          `that works for ${contraction.m}×${contraction.n}×${contraction.k}: ${problems[0] ?? 'none'}`,
      );
    return {
      contraction,
      algorithm: best.contender.name,
      contender: best.contender,
      launch: () => {
        bench.launch(best.index);
      },
      release: () => {
        bench.release();
      },
    };
  } catch (error) {
    bench.release();
    throw error;
  }
}

export interface KernelRequest {
  readonly lab: GpuLab;
  readonly model: BenchModel;
  readonly kernel: Kernel;
  readonly bucket: Bucket;
  readonly variants: readonly Variant[];
  /** What results are compared with before they are timed; absent to skip the comparison. */
  readonly reference?: Variant;
  readonly product?: VendorProduct;
  readonly timing: Timing;
}

/** A variant that computes correct results, ready to be timed. */
interface ReadyVariant {
  readonly variant: Variant;
  readonly program: CudaProgram;
}

/**
 * Times the variants and the library in turn. The result of a variant that fails contains the reason; a lost device
 * throws CudaError.
 */
export async function measureKernel(request: KernelRequest): Promise<readonly KernelResult[]> {
  const { lab, model, kernel, bucket, variants, product, timing } = request;
  const { addon, device, tools } = lab;
  const bench = new CudaWorkbench({
    kernel,
    module: model.plan,
    bucket,
    capacity: model.plan.capacity,
    addon,
    device,
    fill: tools.fill,
    compare: tools.compare,
  });
  const made: { release(): void }[] = [bench];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  const programOf = ({ text, cubin }: Variant): CudaProgram => {
    if (typeof cubin === 'string') throw new Error(cubin);
    return own(bench.program(text, own(new addon.Module(device, cubin))));
  };
  const failures = new Map<Variant, string>();
  try {
    await bench.fill();
    if (request.reference !== undefined) await patiently(bench.learnReference(programOf(request.reference)));
    const ready: ReadyVariant[] = [];
    for (const variant of variants) {
      try {
        const program = programOf(variant);
        const difference = request.reference === undefined ? undefined : await patiently(bench.difference(program));
        if (difference !== undefined) throw new Error(difference);
        // A first launch, so that failures are found before anything is timed in turn.
        await programContender(lab, '', program, [0], 1, bench.sizes).time({ warmup: 0, repeats: 1, perSample: 1 });
        ready.push({ variant, program });
      } catch (error) {
        if ((isCudaError(error) && error.isContextDead) || !(error instanceof Error)) throw error;
        failures.set(variant, error.message);
      }
    }
    const ours = ready.map(({ variant, program }) =>
      programContender(lab, cudaScheduling.key(variant.schedule), program, bench.launches, 1, bench.sizes),
    );
    const contenders = [...ours, ...(product === undefined ? [] : [product.contender])];
    if (ours[0] !== undefined) await warmUp(ours[0], timing.warmSeconds);
    const rounds = ours.length === 0 ? [] : await interleave(contenders, timing);
    const rival =
      product === undefined || ours.length === 0
        ? undefined
        : { algorithm: product.algorithm, seconds: at(rounds, ours.length) };
    const work = kernelWork(kernel, model.plan, sizeOf(bucket));
    const flops = product === undefined ? work.flops : flopsOf(product.contraction);
    const medians = ours.map((_, i) => median(at(rounds, i)));
    const best = medians.indexOf(Math.min(...medians));
    return variants.map((variant): KernelResult => {
      const place = ready.findIndex((each) => each.variant === variant);
      const failure = failures.get(variant);
      return {
        kernel: roleOf(kernel.path),
        tokens: tokensIn(bucket),
        origin: variant.origin,
        schedule: cudaScheduling.key(variant.schedule),
        isBest: place >= 0 && place === best,
        bytes: work.bytes,
        ...(place < 0 ? {} : compareRounds(at(rounds, place), flops, rival)),
        ...defined({ failure }),
      };
    });
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}

/** The library's product for a kernel; undefined if it has none. */
export async function productOf(
  lab: GpuLab,
  { plan }: BenchModel,
  kernel: Kernel,
  bucket: Bucket,
): Promise<VendorProduct | undefined> {
  const contraction = contractionOf(kernel, plan, bucket);
  return contraction === undefined ? undefined : chooseProduct(lab, contraction);
}

/**
 * Measures a whole layer as a run launches it, in turn with the vendor's products: each alone, and one after another.
 */

/** Runs in which each launch of the layer is timed by itself. */
const PROFILES = 7;

export interface LayerRequest {
  readonly lab: GpuLab;
  readonly model: BenchModel;
  readonly bucket: Bucket;
  /** A variant for each kernel of the layer, in the layer's order. */
  readonly variants: readonly Variant[];
  /** The library's products of the layer's contractions. */
  readonly products: readonly VendorProduct[];
  readonly timing: Timing;
}

/** The variants' machine code, each module once. */
function partsOf(
  { lab: { addon, device }, variants }: LayerRequest,
  own: <T extends { release(): void }>(resource: T) => T,
): SequencePart[] {
  const modules = new Map<string, CudaModule>();
  return variants.map(({ text, cubin }) => {
    if (typeof cubin === 'string') throw new Error(cubin);
    const module = modules.get(text.symbol) ?? own(new addon.Module(device, cubin));
    modules.set(text.symbol, module);
    return { text, module };
  });
}

/** Seconds of each launch of the layer, medians of several runs. */
async function profile(
  program: CudaProgram,
  { model: { layer } }: LayerRequest,
  sizes: readonly number[],
): Promise<LayerResult['parts']> {
  const runs: Float64Array[] = [];
  for (let i = 0; i < PROFILES; i++) {
    const { launchMilliseconds } = await patiently(program.run({ extents: sizes, inputs: [], isTimed: true }));
    if (launchMilliseconds !== undefined) runs.push(launchMilliseconds);
  }
  return layer.map((kernel, i) => ({
    kernel: roleOf(kernel.path),
    seconds: median(runs.map((ms) => ms[i] ?? NaN)) * 1e-3,
  }));
}

/** Times the layer, the library's sequence and each of its products, in turn. Throws if a variant does not work. */
export async function measureLayer(request: LayerRequest): Promise<LayerResult> {
  const {
    lab,
    model: { layer },
    bucket,
    products,
    timing,
  } = request;
  const { plan } = request.model;
  const bench = new SequenceBench({
    addon: lab.addon,
    device: lab.device,
    fill: lab.tools.fill,
    module: plan,
    kernels: layer,
    bucket,
    capacity: plan.capacity,
  });
  const made: { release(): void }[] = [bench];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  try {
    await bench.fill();
    const program = own(bench.program(partsOf(request, own)));
    await patiently(program.run({ extents: bench.sizes, inputs: [] }));
    await bench.requireNumbers();
    const whole = programContender(
      lab,
      'layer',
      program,
      layer.map((_, i) => i),
      layer.length,
      bench.sizes,
    );
    const inSequence = (): void => {
      for (const product of products) product.launch();
    };
    const sequence: Contender = {
      name: 'sequence',
      time: (shape) => Promise.resolve(timeLaunches(lab, inSequence, shape)),
    };
    await warmUp(whole, timing.warmSeconds);
    const [ours = [], theirs = [], ...each] = await interleave(
      [whole, sequence, ...products.map(({ contender }) => contender)],
      timing,
    );
    const flops = products.reduce((sum, { contraction }) => sum + flopsOf(contraction), 0);
    const bytes = layer.reduce((sum, kernel) => sum + kernelWork(kernel, plan, sizeOf(bucket)).bytes, 0);
    return {
      ...compareLayer(tokensIn(bucket), flops, ours, theirs, each, await profile(program, request, bench.sizes)),
      bytes,
    };
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
