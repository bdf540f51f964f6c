/** Generated attention on a real device, one kernel at a time. */
import type { CudaArch, CudaAttentionSchedule } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import { type CudaAddon, cudaAvailable, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { cudaHeadersOf } from '../../codegen/cuda/index.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaDevice, CudaModule, CudaProgram } from '../../runtime/cuda/native.js';
import { label } from '../codegen/cuda/attentionCases.js';
import {
  type AttentionData,
  type Emulated,
  generate,
  layOut,
  readOut,
  type Shape,
  sizesOf,
} from '../codegen/cuda/attentionHarness.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch: CudaArch = available.ok && available.devices[0]?.capability[0] === 9 ? 'sm_90a' : 'sm_80';
const compiler = available.ok ? await compilerOrReason(arch) : '';
/** Why attention cannot run here, for `skip` of node:test. */
export const skip = !available.ok ? available.reason : typeof compiler === 'string' ? compiler : false;

/** Largest batch of most tests: kernels of one shape then have one text. */
const CAPACITY = 640;

export class Bench {
  readonly cuda: CudaAddon = loadCudaAddon();
  readonly device: CudaDevice = new this.cuda.Device(0);
  readonly limits = { arch, sharedBytesPerBlock: this.device.info.sharedBytesPerBlock };
  /** By text. The generator gives all kernels one name, so each is compiled under a different one. */
  private readonly loaded = new Map<string, { readonly module: CudaModule; readonly symbol: string }>();

  /** Data as it lies on a device, while the same data is used again: laying it out takes longer than a kernel. */
  private laid:
    | { readonly key: string; readonly data: AttentionData; readonly at: ReturnType<typeof layOut> }
    | undefined;

  private layOut(s: Shape, data: AttentionData, capacity: number): ReturnType<typeof layOut> {
    const key = JSON.stringify([s, capacity]);
    if (this.laid?.data !== data || this.laid.key !== key) this.laid = { key, data, at: layOut(s, data, capacity) };
    return this.laid.at;
  }

  /** Compiles the kernels that are not loaded yet, in parallel. */
  async prepare(
    list: readonly { readonly s: Shape; readonly plan: CudaAttentionSchedule }[],
    capacity = CAPACITY,
  ): Promise<void> {
    const texts = [
      ...new Map(
        list.map(({ s, plan }) => generate(s, plan, capacity)).map((kernel) => [kernel.text, kernel]),
      ).values(),
    ].filter(({ text }) => !this.loaded.has(text));
    const units = texts.map(({ text, symbol }, i) => ({
      text,
      symbol: `${symbol}_${i}`,
      source: text.replaceAll(symbol, `${symbol}_${i}`),
      headers: cudaHeadersOf(text),
    }));
    const { cubins } = await compileCubins(
      units.map(({ symbol, source, headers }) => ({ symbol, source, headers })),
      { arch },
    );
    for (const { text, symbol } of units)
      this.loaded.set(text, { symbol, module: new this.cuda.Module(this.device, cubins.get(symbol)!) });
  }

  /** A kernel that was prepared. */
  kernel(text: string): { readonly module: CudaModule; readonly symbol: string } {
    return this.loaded.get(text)!;
  }

  /** Lays the data out on the device, calls `use` with the kernel bound to it, and reads the result. */
  async bound(
    s: Shape,
    plan: CudaAttentionSchedule,
    data: AttentionData,
    capacity: number,
    use: (program: CudaProgram, sizes: { readonly extents: readonly number[] }) => Promise<unknown>,
  ): Promise<Emulated> {
    const { text, launch, parameters, tensorMaps, extents: names } = generate(s, plan, capacity);
    if (!this.loaded.has(text)) await this.prepare([{ s, plan }], capacity);
    const { module, symbol } = this.kernel(text);
    const { memory, buffers } = this.layOut(s, data, capacity);
    const held = parameters.map((name) => {
      const bytes = memory.get(name)!;
      const target = new this.cuda.Memory(this.device, bytes.length);
      // Where only time counts, queries, keys and values need not be given. They must be finite.
      if (['q', 'k', 'v'].includes(name) && !buffers.has(name)) target.fill(0);
      else target.write(0, bytes);
      return target;
    });
    const sizes = { extents: names.map((name) => extentIn(name, sizesOf(data))) };
    const program = new this.cuda.Program({
      device: this.device,
      extents: names.map((name, i) => ({ name, most: Math.max(capacity, sizes.extents[i]!) })),
      inputs: [],
      outputs: [],
      slots: held.map((target) => ({ memory: target, offset: 0, bytes: target.sizeBytes })),
      launches: [
        {
          name: label(s, plan),
          module,
          symbol,
          slots: parameters.map((_, i) => i),
          tensorMaps: tensorMaps.map(({ parameter, ...map }) => ({ slot: parameter, ...map })),
          launch,
          usesProgrammaticLaunch: false,
        },
      ],
    });
    await use(program, sizes);
    const result = held[parameters.indexOf('out')]!;
    const out = readOut(s, data, capacity, Buffer.from(result.read(0, result.sizeBytes)));
    for (const thing of [program, ...held]) thing.release();
    return { out, buffers };
  }

  run(
    s: Shape,
    plan: CudaAttentionSchedule,
    data: AttentionData,
    capacity = Math.max(CAPACITY, data.T),
  ): Promise<Emulated> {
    return this.bound(s, plan, data, capacity, (program, sizes) =>
      program.run({ ...sizes, inputs: [], isSynchronous: true }),
    );
  }

  release(): void {
    for (const { module } of this.loaded.values()) module.release();
    this.device.release();
  }
}
