/**
 * `node dist/test/gpu/microBench.js [--tokens N,N,…]`: products of experts in MXFP4 in the shapes of a model of 20
 * billion parameters (32 experts of which 4 are chosen, 2,880 columns), for each number of tokens: under the default
 * schedule and others, beside the bytes that must be read, and beside the same products with bf16 weights. Calls take
 * other experts in turn, so that weights come from memory and not from L2.
 */
import { parseArgs } from 'node:util';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import type { GemmKernel, KernelModule } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { ROW_PAD, rowStride } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { loadCudaAddon } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaMemory } from '../../runtime/cuda/native.js';
import { extentsOf } from '../codegen/cuda/emulate.js';
import { microCase } from '../codegen/cuda/microCases.js';
import { deviceHere } from './device.js';

const { arch, skip } = await deviceHere();
if (typeof skip === 'string' || typeof arch !== 'string') throw new Error(String(skip));
const { values: asked } = parseArgs({
  options: {
    tokens: { type: 'string', default: '1,8,64,128,256,1024,4096' },
    quick: { type: 'boolean', default: false },
  },
});
const MOST = 4096;
const [EXPERTS, CHOSEN] = [32, 4];
const own = microCase({}, MOST);
const cuda = loadCudaAddon();
const device = new cuda.Device(0);
const { sharedBytesPerBlock, multiprocessors, name } = device.info;
const facts = { arch, sharedBytesPerBlock, multiprocessors };
const CAPACITY = own.module.capacity.extents;
console.log(`${name}; µs a launch, and TB/s of weights or TFLOP/s`);

let seed = 1;
const random = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
const noise = Uint16Array.from(
  { length: 4 << 20 },
  () => 0x3c00 + Math.floor(random() * 256) + (random() < 0.5 ? 0x8000 : 0),
);
/** Blocks of codes, and powers of two around 2^-7. */
const blocks = Uint8Array.from({ length: 544 << 12 }, (_, at) =>
  at % 544 < 512 ? Math.floor(random() * 256) : 245 + Math.floor(random() * 2),
);
function filled(bytes: number, words: Uint8Array | Uint16Array): CudaMemory {
  const memory = new cuda.Memory(device, roundUp(bytes, 256));
  for (let at = 0; at < bytes; at += words.byteLength)
    memory.write(at, new Uint8Array(words.buffer, 0, Math.min(words.byteLength, bytes - at)));
  return memory;
}

/** Where rows of experts begin, in call `turn` of several: few tokens take other experts in every call. */
function startsOf(tokens: number, turn: number): Int32Array {
  const counts = new Int32Array(EXPERTS);
  for (let token = 0; token < tokens; token++) {
    const chosen = new Set<number>();
    while (chosen.size < CHOSEN)
      chosen.add(tokens === 1 ? (turn * CHOSEN + chosen.size) % EXPERTS : Math.floor(random() * EXPERTS));
    for (const each of chosen) counts[each]!++;
  }
  const starts = new Int32Array(EXPERTS + 1);
  counts.forEach((count, i) => (starts[i + 1] = starts[i]! + count));
  return starts;
}
const TURNS = 8;
const keyOf = (s: CudaGemmSchedule): string =>
  `${s.skeleton} ${s.mode[0]} ${s.tm}×${s.tn}×${s.tk} s${s.stages} r${s.raster}`;

/** Microseconds of a launch under each schedule. */
async function timesOf(
  kernel: GemmKernel,
  module: KernelModule,
  tokens: number,
  all: readonly CudaGemmSchedule[],
): Promise<readonly (readonly [CudaGemmSchedule, number])[]> {
  const legal = all.filter((each) => isLegalCuda(kernel, module, each, facts) === true);
  const texts = legal.map((each) => emitCudaKernel(kernel, module, each, CAPACITY));
  const { cubins } = await compileCubins(
    texts.map(({ symbol, source, headers }) => ({ symbol, source, headers })),
    { arch: facts.arch },
  );
  const memories = new Map<string, CudaMemory>();
  for (const each of texts[0]!.parameters) {
    const weight = module.weights.find((one) => one.name === each);
    if (weight !== undefined) {
      const bytes = packedBytes(weight, physicalToLogical(weight).length);
      memories.set(each, filled(bytes, weight.layout === 'microscaled' ? blocks : noise));
      continue;
    }
    const buffer = module.buffers.find((one) => one.name === each)!;
    const rows = typeof buffer.rows === 'number' ? buffer.rows : roundUp(extentIn(buffer.rows, CAPACITY), ROW_PAD);
    // Experts of pairs are all the first, whose biases are as good as others.
    const words = buffer.dtype === 'i32' ? new Uint8Array(1 << 16) : noise;
    memories.set(each, filled(rows * rowStride(buffer, CAPACITY, DTYPE_BYTES[buffer.dtype]) * 4, words));
  }
  const turns = Array.from({ length: TURNS }, (_, turn) => {
    const memory = new cuda.Memory(device, 256);
    memory.write(0, new Uint8Array(startsOf(tokens, turn).buffer));
    return memory;
  });
  const sizes = { T: tokens, R: tokens, C: tokens };
  const found: [CudaGemmSchedule, number][] = [];
  for (const [i, text] of texts.entries()) {
    const module = new cuda.Module(device, cubins.get(text.symbol)!);
    const { parameters } = text;
    const held = [...memories].map(([each, memory]) => ({ each, memory }));
    const at = (each: string): number => held.findIndex((one) => one.each === each);
    const extents = extentsOf(text);
    const program = new cuda.Program({
      device,
      extents: extents.map((each) => ({ name: each, most: extentIn(each, CAPACITY) })),
      inputs: [],
      outputs: [],
      slots: [...held.map(({ memory }) => memory), ...turns].map((memory) => ({
        memory,
        offset: 0,
        bytes: memory.sizeBytes,
      })),
      launches: turns.map((_, turn) => ({
        name: `${text.symbol}_${turn}`,
        module,
        symbol: text.symbol,
        slots: parameters.map((each) => (each === kernel.experts!.starts ? held.length + turn : at(each))),
        tensorMaps: text.tensorMaps.map(({ parameter, ...map }) => ({ ...map, slot: at(parameters[parameter]!) })),
        launch: text.launch,
        usesProgrammaticLaunch: true,
      })),
    });
    const request = {
      extents: extents.map((each) => extentIn(each, sizes)),
      launches: turns.map((_, turn) => turn),
      warmup: 2,
      repeats: 10,
      perSample: TURNS,
    };
    const times = [...(await program.time(request))].sort((a, b) => a - b);
    found.push([legal[i]!, (1000 * times[times.length >> 1]!) / TURNS]);
    program.release();
    module.release();
  }
  for (const memory of [...memories.values(), ...turns]) memory.release();
  return found.sort(([, a], [, b]) => a - b);
}

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
for (const tokens of asked.tokens.split(',').map(Number))
  for (const [i, kernel] of own.products.entries()) {
    const columns = i === 0 ? 5760 : 2880;
    const rows = tokens * CHOSEN;
    const used = EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** tokens);
    const bytes = Math.round(tokens === 1 ? CHOSEN : used) * columns * 2880 * (4.25 / 8);
    const flops = 2 * rows * columns * 2880;
    const bucket = scoringBucket({ tokens, rows: tokens, longest: tokens });
    const isGemm = (s: unknown): s is CudaGemmSchedule => (s as CudaGemmSchedule).kind === 'gemm';
    const first = [defaultCudaSchedule(kernel, own.module, facts, bucket)].filter(isGemm);
    const [{ tm }] = first as [CudaGemmSchedule];
    const [heights, widths, depths] =
      tm < 64
        ? [
            [tm],
            [48, 64, 80, 96, 128, 144, 176, 192, 240, 256],
            [
              [64, 8],
              [64, 14],
              [128, 4],
              [192, 3],
              [192, 5],
            ],
          ]
        : [
            tokens < 512 ? [64, 128] : [128],
            [64, 128, 192],
            [
              [128, 3],
              [128, 4],
              [128, 6],
            ],
          ];
    const near = heights.flatMap((height) =>
      widths.flatMap((tn) =>
        depths.flatMap(([tk, stages]) =>
          (tm < 64 ? [1, 2] : [1]).map((raster): CudaGemmSchedule => ({
            ...GEMM,
            ...{ skeleton: 'micro', tm: height, tn, tk: tk!, stages: stages!, raster },
          })),
        ),
      ),
    );
    const [[, own0]] = (await timesOf(kernel, own.module, tokens, first)) as [[CudaGemmSchedule, number]];
    const rate = (us: number): string =>
      `${us.toFixed(1)} µs, ${(bytes / us / 1e6).toFixed(2)} TB/s, ${(flops / us / 1e6).toFixed(0)} TFLOP/s`;
    console.log(`${i === 0 ? 'gate, up' : 'down'}, ${tokens} tokens: ${rate(own0)} by default (${keyOf(first[0]!)})`);
    if (!asked.quick)
      for (const [schedule, us] of (await timesOf(kernel, own.module, tokens, near)).slice(0, 4))
        console.log(`    ${rate(us)}: ${keyOf(schedule)}`);
    const decoded = [defaultCudaSchedule(kernel, own.decoded, facts, bucket)].filter(isGemm);
    const [[schedule, us]] = (await timesOf(kernel, own.decoded, tokens, decoded)) as [[CudaGemmSchedule, number]];
    console.log(`    bf16 weights: ${us.toFixed(1)} µs (${keyOf(schedule)})`);
  }
device.release();
