/**
 * Times of prefill's contractions with adapters on a Hopper GPU, in the shapes of Llama-3 8B with full heads:
 * `node dist/test/gpu/adapterTimes.js [rows]`. Each under its default schedule, beside the same without adapters.
 */
import { defaultCudaSchedule, emitCudaKernel } from '../../codegen/cuda/index.js';
import { physicalToLogical, packedBytes } from '../../ir/packing.js';
import { ROW_PAD, rowStride } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { cudaAvailable, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaMemory } from '../../runtime/cuda/native.js';
import { withAdapters } from '../codegen/cuda/adapters.js';
import { extentsOf } from '../codegen/cuda/emulate.js';
import { layerGemm, type WgmmaCase } from '../codegen/cuda/wgmmaKernels.js';
import { archOf } from './launcher.js';

const ROWS = Number(process.argv[2] ?? 8192);
const [HIDDEN, INTER, RANK, SLOTS] = [4096, 14_336, 16, 8];
/** Rounds that are timed, and launches of each. */
const [ROUNDS, LAUNCHES] = [20, 10];

const available = cudaAvailable();
const arch = archOf(available);
if (typeof arch !== 'string') throw new Error(arch.reason);
const cuda = loadCudaAddon();
const device = new cuda.Device(0);
const { sharedBytesPerBlock, multiprocessors } = device.info;
const facts = { arch, sharedBytesPerBlock, multiprocessors };
const capacity = { T: ROWS, R: ROWS };

/** bf16 numbers of ±[½, 2) in every place, also where two of them are read as f32. */
const NOISE = Buffer.alloc(1 << 20);
for (let i = 0, x = 1; i < NOISE.length; i += 2) {
  x = (x * 48_271) % 2_147_483_647;
  NOISE.writeUInt16LE((x & 0x80ff) | 0x3f00, i);
}

/** Slots of rows by what a call has. */
const CALLS: readonly (readonly [what: string, slotOf: (row: number) => number])[] = [
  ['base rows', () => -1],
  ['one adapter', () => 3],
  ['8 adapters, in runs', (row) => Math.floor((row * SLOTS) / ROWS)],
  ['8 adapters, row by row', (row) => row % SLOTS],
];

/** Milliseconds of a launch for each call. */
async function timesOf({ kernel, module }: WgmmaCase, calls: typeof CALLS): Promise<{ key: string; times: number[] }> {
  const bucket = scoringBucket({ tokens: ROWS, rows: ROWS, longest: ROWS });
  const schedule = defaultCudaSchedule(kernel, module, facts, bucket);
  const text = emitCudaKernel(kernel, module, schedule, capacity);
  const { symbol, source, headers, parameters, tensorMaps, launch } = text;
  const { cubins } = await compileCubins([{ symbol, source, headers }], { arch: facts.arch });
  const loaded = new cuda.Module(device, cubins.get(symbol)!);
  const made: CudaMemory[] = [];
  const make = (name: string): CudaMemory => {
    const weight = module.weights.find((each) => each.name === name);
    const buffer = module.buffers.find((each) => each.name === name);
    const bytes =
      weight !== undefined
        ? packedBytes(weight, physicalToLogical(weight).length)
        : roundUp(ROWS, ROW_PAD) *
          rowStride(buffer!, capacity, DTYPE_BYTES[buffer!.dtype]) *
          DTYPE_BYTES[buffer!.dtype];
    const memory = new cuda.Memory(device, bytes);
    for (let at = 0; at < bytes; at += NOISE.length)
      memory.write(at, NOISE.subarray(0, Math.min(NOISE.length, bytes - at)));
    made.push(memory);
    return memory;
  };
  const held = parameters.map(make);
  const extents = extentsOf(text);
  const program = new cuda.Program({
    device,
    extents: extents.map((name) => ({ name, most: ROWS })),
    inputs: [],
    outputs: [],
    slots: held.map((memory) => ({ memory, offset: 0, bytes: memory.sizeBytes })),
    launches: [
      {
        name: symbol,
        module: loaded,
        symbol,
        slots: parameters.map((_, i) => i),
        tensorMaps: tensorMaps.map(({ parameter, ...map }) => ({ ...map, slot: parameter })),
        launch,
        usesProgrammaticLaunch: true,
      },
    ],
  });
  const times: number[] = [];
  for (const [, slotOf] of calls) {
    const at = parameters.indexOf('slot');
    if (at >= 0) held[at]!.write(0, Buffer.from(Int32Array.from({ length: ROWS }, (_, row) => slotOf(row)).buffer));
    const request = {
      extents: extents.map(() => ROWS),
      launches: [0],
      warmup: 5,
      repeats: ROUNDS,
      perSample: LAUNCHES,
    };
    const sorted = [...(await program.time(request))].sort((a, b) => a - b);
    times.push(sorted[sorted.length >> 1]! / LAUNCHES);
  }
  program.release();
  loaded.release();
  for (const memory of made) memory.release();
  const key =
    schedule.kind === 'gemm'
      ? `${schedule.skeleton} ${schedule.mode} ${schedule.tm}×${schedule.tn} s${schedule.stages} c${schedule.cluster}`
      : schedule.kind;
  return { key, times };
}

console.log(`${device.info.name}: ${ROWS} rows, rank ${RANK}, ${SLOTS} slots; ms a launch, and beside no adapters`);
const sums = new Map<string, number>();
const add = (what: string, ms: number): number => {
  sums.set(what, (sums.get(what) ?? 0) + ms);
  return ms;
};
for (const which of ['qkv', 'o', 'gateUp', 'down'] as const) {
  const plain = layerGemm(which, HIDDEN, INTER);
  const before = await timesOf(plain, CALLS.slice(0, 1));
  const own = await timesOf(withAdapters(plain, { slots: SLOTS, rank: RANK }), CALLS);
  const after = await timesOf(plain, CALLS.slice(0, 1));
  const base = (before.times[0]! + after.times[0]!) / 2;
  add('without adapters', base);
  console.log(`${which}: without adapters ${base.toFixed(4)} (${before.key}); with room for them: ${own.key}`);
  for (const [i, [what]] of CALLS.entries()) {
    const ms = add(what, own.times[i]!);
    console.log(`  ${what}: ${ms.toFixed(4)}, +${(100 * (ms / base - 1)).toFixed(2)} %`);
  }
}
const base = sums.get('without adapters')!;
console.log(`all four: without adapters ${base.toFixed(4)}`);
for (const [what] of CALLS)
  console.log(`  ${what}: ${sums.get(what)!.toFixed(4)}, +${(100 * (sums.get(what)! / base - 1)).toFixed(2)} %`);
device.release();
