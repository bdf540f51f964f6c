/**
 * Measures a whole layer as a run launches it, in turn with the vendor's products: each alone, and one after another.
 */
import { SequenceBench, type SequencePart } from '../autotune/cuda/sequence.js';
import { type Contender, interleave, patiently, warmUp } from '../autotune/cuda/timing.js';
import { timeLaunches } from '../autotune/cuda/vendorBaseline.js';
import { median } from '../autotune/records.js';
import { kernelWork, sizeOf } from '../autotune/work.js';
import type { Bucket } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import type { CudaModule } from '../runtime/cuda/nativeDevice.js';
import type { CudaProgram } from '../runtime/cuda/nativeProgram.js';
import { flopsOf, type Product, type Timing, type Variant } from './gpuKernel.js';
import { type GpuLab, programContender } from './gpuLab.js';
import { type BenchModel, roleOf } from './gpuModel.js';
import { compareLayer, type LayerResult } from './gpuResults.js';

/** Runs in which each launch of the layer is timed by itself. */
const PROFILES = 7;

export interface LayerRequest {
  readonly lab: GpuLab;
  readonly model: BenchModel;
  readonly bucket: Bucket;
  /** A variant for each kernel of the layer, in the layer's order. */
  readonly variants: readonly Variant[];
  /** The library's products of the layer's contractions. */
  readonly products: readonly Product[];
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
