/** Tree attention on a real device: against float64, the same bits in any company, no leak between trees, and how fast. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CudaArch, CudaAttentionSchedule } from '../../ir/cuda.js';
import { cudaAvailable, loadCudaAddon, type CudaAddon, type CudaDevice, type CudaModule, type CudaProgram } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import { CASES, cut, dataOf, ends, label, MMA, reference, rowsOf, schedule, SIMT, tolerance, ZOO, EDGES, branches, chain, single, type Tree } from '../codegen/cuda/attentionCases.js';
import { generate, layOut, readOut, type AttentionData, type Emulated, type Shape } from '../codegen/cuda/attentionHarness.js';
import { randomSource } from '../codegen/harness.js';
import { randomTrees } from '../codegen/modules.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch: CudaArch = available.ok && available.devices[0]?.capability[0] === 9 ? 'sm_90a' : 'sm_80';
const compiler = available.ok ? await compilerOrReason(arch) : '';
const skip = !available.ok ? available.reason : typeof compiler === 'string' ? compiler : false;

class Bench {
  readonly cuda: CudaAddon = loadCudaAddon();
  readonly device: CudaDevice = new this.cuda.Device(0);
  private readonly modules = new Map<string, CudaModule>();

  private async module(text: string, symbol: string): Promise<CudaModule> {
    const known = this.modules.get(text);
    if (known !== undefined) return known;
    const { cubins } = await compileCubins([{ symbol, source: text }], { arch });
    const module = new this.cuda.Module(this.device, cubins.get(symbol)!);
    this.modules.set(text, module);
    return module;
  }

  /** Lays the data out on the device, calls `use` with the kernel bound to it, and reads the result. */
  async bound(s: Shape, plan: CudaAttentionSchedule, data: AttentionData, capacity: number, use: (program: CudaProgram, sizes: { tokens: number; rows: number }) => Promise<unknown>): Promise<Emulated> {
    const { text, symbol, launch, parameters } = generate(s, plan, capacity);
    const module = await this.module(text, symbol);
    const { memory, buffers } = layOut(s, data, capacity);
    const held = parameters.map((name) => {
      const bytes = memory.get(name)!;
      const target = new this.cuda.Memory(this.device, bytes.length);
      target.write(0, bytes);
      return target;
    });
    const sizes = { tokens: data.T, rows: data.inputs.get('row')?.length ?? 0 };
    const program = new this.cuda.Program({
      device: this.device, maxTokens: capacity, maxRows: Math.max(capacity, sizes.rows), inputs: [], outputs: [],
      slots: held.map((target) => ({ memory: target, offset: 0, bytes: target.sizeBytes })),
      launches: [{ name: label(s, plan), module, symbol, slots: parameters.map((_, i) => i), tensorMaps: [], launch, usesProgrammaticLaunch: false }],
    });
    await use(program, sizes);
    const result = held[parameters.indexOf('out')]!;
    const out = readOut(s, data, capacity, Buffer.from(result.read(0, result.sizeBytes)));
    for (const thing of [program, ...held]) thing.release();
    return { out, buffers };
  }

  run(s: Shape, plan: CudaAttentionSchedule, data: AttentionData, capacity = Math.max(512, data.T)): Promise<Emulated> {
    return this.bound(s, plan, data, capacity, (program, sizes) => program.run({ ...sizes, inputs: [], isSynchronous: true }));
  }

  release(): void {
    for (const module of this.modules.values()) module.release();
    this.device.release();
  }
}

/** Asserts that an answer is close to float64 everywhere. */
async function agrees(bench: Bench, s: Shape, plan: CudaAttentionSchedule, data: AttentionData): Promise<void> {
  const { out, buffers } = await bench.run(s, plan, data);
  const want = reference(s, data, buffers);
  const limit = tolerance(s, plan);
  out.forEach((x, i) => assert(Math.abs(x - want[i]!) < limit, `${label(s, plan)}: element ${i} is ${x}, not ${want[i]!} ± ${limit}`));
}

describe('attention', { skip }, () => {
  it('agrees with float64 on adversarial and on random trees', async () => {
    const bench = new Bench();
    for (const [i, { s, plan, trees }] of CASES.entries()) {
      await agrees(bench, s, plan, dataOf(s, ends(trees), i));
      for (let seed = 1; seed <= 3; seed++) await agrees(bench, s, plan, dataOf(s, randomTrees(40 + 150 * seed, seed, 20 * seed).subtreeEnd, seed));
    }
    const gathered: Shape = { heads: 2, kvHeads: 1, headDim: 48, dtype: 'f16', hasQueryRow: true };
    const random = randomSource(3);
    const end = ends([...ZOO, ...EDGES]);
    const row = Array.from({ length: 200 }, () => Math.floor((random() + 1) / 2 * end.length * 0.999));
    for (const plan of [MMA, SIMT]) await agrees(bench, gathered, plan, dataOf(gathered, end, 6, row));
    bench.release();
  });

  it('has the same bits alone, in any company, under every schedule, and whatever other trees hold', async () => {
    const bench = new Bench();
    const company: readonly Tree[] = [branches(9, [3, 4]), chain(50), branches(33, [20, 40, 7, 20]), single, chain(170), branches(61, [30, 30, 30, 30])];
    const starts = company.map((_, i) => company.slice(0, i).reduce((sum, tree) => sum + tree.length, 0));
    for (const [headDim, dtype] of [[48, 'bf16'], [64, 'f16'], [128, 'bf16'], [256, 'f16']] as const) {
      const s: Shape = { heads: 2, kvHeads: 1, headDim, dtype, out: 'f32' };
      const width = 2 * headDim;
      const together = dataOf(s, ends(company), headDim);
      const poisoned = new Map([...together.inputs].map(([name, x]) => [name, x.slice()]));
      for (const name of ['q', 'k', 'v']) poisoned.get(name)!.fill(NaN, starts[2]! * poisoned.get(name)!.length / together.T, starts[3]! * poisoned.get(name)!.length / together.T);
      const whole = (await bench.run(s, MMA, together)).out;
      for (const queries of [16, 32, 128]) assert.deepEqual((await bench.run(s, schedule('mma', queries), together)).out, whole, `${queries} queries`);
      for (const i of [1, 2, 4, 5]) {
        const [from, to] = [starts[i]!, starts[i]! + company[i]!.length];
        assert.deepEqual((await bench.run(s, MMA, cut(together, from, to))).out, rowsOf(whole, width, from, to), `tree ${i} alone, heads of ${headDim}`);
      }
      const beside = (await bench.run(s, MMA, { T: together.T, inputs: poisoned })).out;
      assert.deepEqual(rowsOf(beside, width, 0, starts[2]!), rowsOf(whole, width, 0, starts[2]!));
      assert.deepEqual(rowsOf(beside, width, starts[3]!, together.T), rowsOf(whole, width, starts[3]!, together.T));
    }
    bench.release();
  });

  it('takes little of a layer of LLaMA-33B', async () => {
    const bench = new Bench();
    const s: Shape = { heads: 52, kvHeads: 52, headDim: 128, dtype: 'bf16' };
    const random = randomSource(5);
    const below = (n: number): number => Math.floor((random() + 1) / 2 * n * 0.999);
    for (const T of [1024, 3840, 7680]) {
      const trees: Tree[] = [];
      for (let left = T; left > 0;) {
        const stem = Math.min(left, 15 + below(60));
        const lengths = [0, 1, 2, 3].map(() => 5 + below(30)).map((length, i, all) => Math.max(0, Math.min(length, left - stem - all.slice(0, i).reduce((a, b) => a + b, 0))));
        trees.push(branches(stem, lengths.filter((length) => length > 0)));
        left -= trees.at(-1)!.length;
      }
      const width = 52 * 128;
      const values = new Float64Array(T * width).map(() => random());
      const data: AttentionData = { T, inputs: new Map([['q', values], ['k', values], ['v', values], ['subtreeEnd', ends(trees)]]) };
      for (const queries of [32, 64, 128]) {
        await bench.bound(s, schedule('mma', queries), data, T, async (program, sizes) => {
          const times = [...await program.time({ ...sizes, launches: [0], warmup: 5, repeats: 21, flushBytes: 2 * bench.device.info.l2Bytes })].sort((a, b) => a - b);
          const gigabytes = 4 * T * width * 2 / 1e9;
          console.log(`T ${T}, ${trees.length} trees, ${queries} queries a block: ${(1000 * times[10]!).toFixed(1)} µs, ${(gigabytes / times[10]! * 1000).toFixed(0)} GB/s`);
          assert(times[10]! > 0 && times[10]! < 10);
        });
      }
    }
    bench.release();
  });
});
