/** A whole layer as a run launches it, in turn with the vendor's products: each alone, and one after another. */
import { scaleOf } from '../autotune/cuda/compare.js';
import { strideOf } from '../autotune/cuda/fill.js';
import { interleave, warmUp, type Contender } from '../autotune/cuda/interleave.js';
import { patiently } from '../autotune/cuda/patience.js';
import { timeLaunches } from '../autotune/cuda/rival.js';
import { bucketTrees, integersFor, rolesOf, type Roles } from '../autotune/randomInputs.js';
import { median } from '../autotune/database.js';
import { parametersOf } from '../codegen/signature.js';
import type { BufferDecl, Kernel, WeightDecl } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { packedBytes, physicalToLogical } from '../ir/packing.js';
import type { Bucket } from '../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../ir/types.js';
import { bufferBytes } from '../passes/planMemory.js';
import type { CudaMemory, CudaModule, CudaProgram } from '../runtime/cuda/addon.js';
import { bindKernel, waitsForPredecessor } from '../runtime/cuda/bindProgram.js';
import { flopsOf, type Product, type Timing, type Variant } from './gpuKernel.js';
import { programContender, type GpuLab } from './gpuLab.js';
import { roleOf, type BenchModel } from './gpuModel.js';
import { compareLayer, type LayerResult } from './gpuResults.js';

/** Runs in which each launch of the layer is timed by itself. */
const PROFILES = 7;
const SAMPLE_BYTES = 1 << 16;

export interface LayerRequest {
  readonly lab: GpuLab;
  readonly model: BenchModel;
  readonly bucket: Bucket;
  /** A variant for each kernel of the layer, in its order. */
  readonly variants: readonly Variant[];
  /** The library's products of the layer's contractions. */
  readonly products: readonly Product[];
  readonly timing: Timing;
}

/** Memory of everything that a layer reads and writes, each buffer by itself: what it reads is there at every turn. */
class LayerMemory {
  readonly names: string[] = [];
  readonly memories: CudaMemory[] = [];
  private readonly request: LayerRequest;
  private readonly buffers: ReadonlyMap<string, BufferDecl>;
  private readonly weights: ReadonlyMap<string, WeightDecl>;

  constructor(request: LayerRequest) {
    this.request = request;
    const { lab: { addon, device }, model: { plan, layer } } = request;
    this.buffers = new Map(plan.buffers.map((buffer) => [buffer.name, buffer]));
    this.weights = new Map(plan.weights.map((weight) => [weight.name, weight]));
    try {
      for (const name of new Set(layer.flatMap((kernel) => parametersOf(kernel, plan)))) {
        this.memories.push(new addon.Memory(device, roundUp(this.bytesOf(name), 256)));
        this.names.push(name);
      }
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    for (const memory of this.memories) memory.release();
  }

  /** Index of a buffer or weight. */
  of(name: string): number {
    const index = this.names.indexOf(name);
    if (index < 0) throw new Error(`The layer does not use ${name}.`);
    return index;
  }

  /** Weights and what comes from before the layer are random; what the layer itself writes is NaN until it has. */
  async fill(): Promise<void> {
    const { lab: { tools: { fill } }, model: { plan, layer } } = this.request;
    const written = new Set<string>();
    const readers = new Map<string, Kernel>();
    for (const kernel of layer) {
      for (const name of kernelReads(kernel)) if (!written.has(name) && !readers.has(name)) readers.set(name, kernel);
      for (const name of kernelWrites(kernel)) written.add(name);
    }
    for (const [i, name] of this.names.entries()) {
      const memory = this.memories[i]!, weight = this.weights.get(name), reader = readers.get(name);
      if (weight !== undefined) await fill.weight(memory, weight, 1 + 31 * i, 1 / Math.sqrt(Math.max(1, weight.k)));
      else if (reader !== undefined) await this.fillInput(memory, this.bufferOf(name), reader, rolesOf(reader, plan, () => undefined), 1 + 31 * i);
      else memory.fill(0xff);
    }
  }

  /** Throws where the layer's last kernel has left no numbers: then its time says nothing. */
  async requireNumbers(): Promise<void> {
    const { model: { plan, layer } } = this.request;
    for (const name of kernelWrites(layer.at(-1)!)) {
      const buffer = this.bufferOf(name);
      const stride = strideOf(buffer, plan.capacity);
      const sample = await this.memories[this.of(name)]!.readAsync(0, Math.min(SAMPLE_BYTES, this.bytesOf(name)));
      if (scaleOf(sample, buffer.dtype, typeof buffer.columns === 'number' ? buffer.columns : stride, stride) === 0) throw new Error(`The layer leaves no numbers in ${name}: its time would say nothing.`);
    }
  }

  private bufferOf(name: string): BufferDecl {
    const buffer = this.buffers.get(name);
    if (buffer === undefined) throw new Error(`The layer uses ${name}, which the plan does not declare.`);
    return buffer;
  }

  bytesOf(name: string): number {
    const weight = this.weights.get(name);
    if (weight !== undefined) return packedBytes(weight, physicalToLogical(weight).length);
    const buffer = this.bufferOf(name);
    const { bucket, model: { plan } } = this.request;
    return bufferBytes(buffer, buffer.columns === 'T' ? { ...bucket, tokens: plan.capacity.tokens } : bucket);
  }

  private async fillInput(memory: CudaMemory, buffer: BufferDecl, reader: Kernel, roles: Roles, seed: number): Promise<void> {
    const { lab: { tools: { fill } }, model: { plan }, bucket } = this.request;
    const rows = buffer.rows === 'T' ? bucket.tokens : buffer.rows === 'R' ? bucket.rows : buffer.rows;
    if (buffer.dtype === 'i32') {
      memory.fill(0);
      memory.write(0, integersFor(roles.integers.get(buffer.name) ?? { kind: 'position' }, bucketTrees(bucket), rows, seed));
      return;
    }
    if (buffer.dtype === 'bool') throw new Error(`${buffer.name} holds booleans, which no layer reads.`);
    memory.fill(0xff);
    const stride = strideOf(buffer, plan.capacity);
    // Parts of Σx² of k numbers of unit variance add up to k.
    const isParts = roles.positive.has(buffer.name) && reader.anchor === 'gemm' && typeof buffer.columns === 'number';
    const most = Math.floor(memory.sizeBytes / (stride * DTYPE_BYTES[buffer.dtype]));
    await fill.matrix(memory, buffer.dtype, Math.min(rows, most), stride, isParts ? { kind: 'constant', value: reader.k / Number(buffer.columns) } : { kind: 'random', seed, scale: 1 });
  }
}

function layerProgram({ lab: { addon, device }, model: { layer }, bucket, variants }: LayerRequest, memory: LayerMemory, own: <T extends { release(): void }>(resource: T) => T): CudaProgram {
  const modules = new Map<string, CudaModule>();
  const moduleOf = ({ text, cubin }: Variant): CudaModule => {
    if (typeof cubin === 'string') throw new Error(cubin);
    const module = modules.get(text.symbol) ?? own(new addon.Module(device, cubin));
    modules.set(text.symbol, module);
    return module;
  };
  return own(new addon.Program({
    device, maxTokens: bucket.tokens, maxRows: bucket.rows, inputs: [], outputs: [],
    slots: memory.names.map((name, i) => ({ memory: memory.memories[i]!, offset: 0, bytes: memory.bytesOf(name) })),
    launches: layer.map((kernel, i) => bindKernel(kernel.path, variants[i]!.text, moduleOf(variants[i]!), waitsForPredecessor(variants[i]!.text), (name) => memory.of(name))),
  }));
}

/** Seconds of each launch of the layer, medians of several runs. */
async function profile(program: CudaProgram, { model: { layer }, bucket: { tokens, rows } }: LayerRequest): Promise<LayerResult['parts']> {
  const runs: Float64Array[] = [];
  for (let i = 0; i < PROFILES; i++) {
    const { launchMilliseconds } = await patiently(program.run({ tokens, rows, inputs: [], isTimed: true }));
    if (launchMilliseconds !== undefined) runs.push(launchMilliseconds);
  }
  return layer.map((kernel, i) => ({ kernel: roleOf(kernel.path), seconds: median(runs.map((ms) => ms[i] ?? NaN)) * 1e-3 }));
}

/** Times the layer, the library's sequence and each of its products, in turn. Throws where a variant does not work. */
export async function measureLayer(request: LayerRequest): Promise<LayerResult> {
  const { lab, model: { layer }, bucket, products, timing } = request;
  const memory = new LayerMemory(request);
  const made: { release(): void }[] = [memory];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  try {
    await memory.fill();
    const program = layerProgram(request, memory, own);
    await patiently(program.run({ tokens: bucket.tokens, rows: bucket.rows, inputs: [] }));
    await memory.requireNumbers();
    const whole = programContender(lab, 'layer', program, layer.map((_, i) => i), layer.length, bucket);
    const inSequence = (): void => { for (const product of products) product.launch(); };
    const sequence: Contender = { name: 'sequence', time: (shape) => Promise.resolve(timeLaunches(lab, inSequence, shape)) };
    await warmUp(whole, timing.warmSeconds);
    const [ours = [], theirs = [], ...each] = await interleave([whole, sequence, ...products.map(({ contender }) => contender)], timing);
    const flops = products.reduce((sum, { contraction }) => sum + flopsOf(contraction), 0);
    return compareLayer(bucket.tokens, flops, ours, theirs, each, await profile(program, request));
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
