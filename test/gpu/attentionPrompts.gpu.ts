/** Attention of long prompts on a real device: how fast, by the registers of threads that load and multiply. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { cudaHeadersOf } from '../../codegen/cuda/index.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaMemory, CudaModule, CudaProgram } from '../../runtime/cuda/native.js';
import { attentionModule, generate, type Shape } from '../codegen/cuda/attentionHarness.js';
import { rowStride } from '../../ir/plan.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import { Bench, skip } from './attentionBench.js';

const [HEADS, KV_HEADS, WIDTH] = [32, 8, 128];
const MOST = 32_768;
const S: Shape = { heads: HEADS, kvHeads: KV_HEADS, headDim: WIDTH, dtype: 'bf16', mask: 'path', cacheRows: MOST };
const PLAN: CudaAttentionSchedule = { kind: 'attention', skeleton: 'wgmma', queries: 32, keys: 32 };
const ROUNDS = 7;

/** Fields behind `is_kept` of the Config. */
const VARIANTS: Readonly<Record<string, string>> = {
  '40 and 232': '.loader_registers = 40, .product_registers = 232',
  '56 and 224': '.loader_registers = 56, .product_registers = 224',
  '24 and 240': '.loader_registers = 24, .product_registers = 240',
};

/** Bits of bf16 numbers of about normal distribution, the same in every run. */
function noise(bytes: number): Buffer {
  const values = new Uint16Array(bytes / 2);
  const float = new Float32Array(1);
  const word = new Uint32Array(float.buffer);
  let state = 1;
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  for (let i = 0; i < values.length; i++) {
    float[0] = 2 * (next() + next() + next());
    values[i] = word[0]! >>> 16;
  }
  return Buffer.from(values.buffer);
}

describe('attention of long prompts on a device', { skip }, () => {
  let bench: Bench;
  before(() => {
    bench = new Bench();
  });
  after(() => {
    bench.release();
  });

  it('has the same bits however registers are divided, and is timed', async (test) => {
    if (bench.limits.arch !== 'sm_90a') {
      test.skip('it takes sm_90a');
      return;
    }
    const { text, symbol, launch, parameters, tensorMaps, extents: names } = generate(S, PLAN, MOST);
    const units = Object.entries(VARIANTS).map(([name, fields], i) => {
      const source = text
        .replace('.is_kept = true,', `.is_kept = true, ${fields},`)
        .replaceAll(symbol, `${symbol}_${i}`);
      assert(source.includes(fields));
      return { name, symbol: `${symbol}_${i}`, source, headers: cudaHeadersOf(source) };
    });
    const { cubins } = await compileCubins(units, { arch: bench.limits.arch });
    const { module: ir } = attentionModule(S);
    const held: (CudaMemory | CudaModule | CudaProgram)[] = [];
    const hold = <T extends (typeof held)[number]>(thing: T): T => {
      held.push(thing);
      return thing;
    };
    const block = noise(1 << 20);
    const memories = new Map(
      parameters.map((name) => {
        const decl = ir.buffers.find((each) => each.name === name)!;
        const sizes = { T: MOST, R: MOST, C: MOST };
        const width = DTYPE_BYTES[decl.dtype];
        const bytes = extentIn(decl.rows, sizes) * rowStride(decl, sizes, width) * width;
        const memory = hold(new bench.cuda.Memory(bench.device, bytes));
        if (['q', 'k', 'v'].includes(name)) {
          // Other bytes of the same noise for each, so that no queries are equal to keys.
          const turned = Buffer.concat([block, block]).subarray(4096 * name.charCodeAt(0));
          for (let at = 0; at < bytes; at += 1 << 20)
            memory.write(at, turned.subarray(0, Math.min(1 << 20, bytes - at)));
        }
        return [name, memory];
      }),
    );
    const programs = units.map(({ symbol: own }) =>
      hold(
        new bench.cuda.Program({
          device: bench.device,
          extents: names.map((name) => ({ name, most: MOST })),
          inputs: [],
          outputs: [],
          slots: parameters.map((name) => {
            const memory = memories.get(name)!;
            return { memory, offset: 0, bytes: memory.sizeBytes };
          }),
          launches: [
            {
              name: own,
              module: hold(new bench.cuda.Module(bench.device, cubins.get(own)!)),
              symbol: own,
              slots: parameters.map((_, i) => i),
              tensorMaps: tensorMaps.map(({ parameter, ...map }) => ({ slot: parameter, ...map })),
              launch,
              usesProgrammaticLaunch: false,
            },
          ],
        }),
      ),
    );
    const ints = (name: string, of: (i: number) => number): void => {
      const list = Int32Array.from({ length: MOST }, (_, i) => of(i));
      memories.get(name)!.write(0, Buffer.from(list.buffer));
    };
    for (const length of [2048, 8192, MOST]) {
      // All of one path, whose keys lie in order.
      ints('begin', () => 0);
      ints('position', (i) => i % length);
      ints('key', (i) => i);
      const extents = names.map((name) => extentIn(name, { T: length, R: 0, C: length }));
      let want: string | undefined;
      for (const [i, program] of programs.entries()) {
        const out = memories.get('out')!;
        out.fill(0xff);
        await program.run({ extents, inputs: [], isSynchronous: true });
        const bits = createHash('sha256')
          .update(new Uint8Array(out.read(0, out.sizeBytes)))
          .digest('hex');
        want ??= bits;
        assert.equal(bits, want, `${units[i]!.name}, ${length} keys`);
      }
      const times = programs.map((): number[] => []);
      for (let round = 0; round < ROUNDS; round++)
        for (const [i, program] of programs.entries())
          times[i]!.push(...(await program.time({ extents, launches: [0], warmup: 1, repeats: 3, flushBytes: 0 })));
      const flops = 4 * ((length * (length + 1)) / 2) * HEADS * WIDTH;
      for (const [i, all] of times.entries()) {
        const milliseconds = all.toSorted((a, b) => a - b)[all.length >> 1]!;
        console.log(
          `${length} keys, ${units[i]!.name}: ${milliseconds.toFixed(3)} ms, ` +
            `${(flops / milliseconds / 1e9).toFixed(0)} TFLOP/s`,
        );
        assert(milliseconds > 0);
      }
    }
    for (const thing of held.toReversed()) thing.release();
  });
});
