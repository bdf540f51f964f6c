/**
 * `node dist/test/gpu/adapterBench.js [RANK] [--rows N,N,…] [--group N]`: what adapters cost the contractions of a
 * layer of about 8B weights, with the schedules that a plan would choose. `--group`: weights of 4 bits in groups of 32,
 * 64 or 128; default: bf16. For each number of rows: the layer without adapters; with room for them and none in use;
 * all rows with one; rows with as many as there are. Shares are of what the bytes alone would take. Where rows are few
 * also with products that shrink their rows themselves; their results are compared, bit by bit. So is what shrink
 * kernels of very many rows leave, with tiles of fewer rows.
 */
import { createHash } from 'node:crypto';
import { parseArgs } from 'node:util';
import { defaultCudaSchedule, emitCudaKernel, shrinkingSchedule } from '../../codegen/cuda/index.js';
import { SHRINK_ROWS } from '../../ir/cuda.js';
import { GROUP_SIZES } from '../../ir/groups.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical, slotBytes } from '../../ir/packing.js';
import { rowStride } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { loadCudaAddon } from '../../runtime/cuda/addon.js';
import { bindKernel } from '../../runtime/cuda/bindProgram.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaMemory } from '../../runtime/cuda/native.js';
import { type AdapterCase, withAdapters } from '../codegen/cuda/adapterCases.js';
import { inGroups, layerGemm } from '../codegen/cuda/wgmmaKernels.js';
import { deviceHere } from './device.js';

const SHAPE = { hidden: 4096, inter: 14_336, headDim: 128 } as const;
const SLOTS = 64;
const CAPACITY = { T: 8192, R: 8192 };
const WHICH = ['qkv', 'o', 'gateUp', 'down'] as const;

const { arch, skip } = await deviceHere();
if (typeof skip === 'string' || typeof arch !== 'string') throw new Error(String(skip));

const { positionals, values: asked } = parseArgs({
  allowPositionals: true,
  options: { rows: { type: 'string', default: '1,8,64,1024,8192' }, group: { type: 'string' } },
});
const group = GROUP_SIZES.find((each) => String(each) === asked.group);
if (group === undefined && asked.group !== undefined)
  throw new Error(`--group ${asked.group}: one of ${GROUP_SIZES.join(', ')}`);
const rank = Number(positionals[0] ?? 16);
const sizes = asked.rows.split(',').map(Number);
if (!sizes.every((rows) => Number.isInteger(rows) && rows > 0 && rows <= CAPACITY.T))
  throw new Error(`--rows ${asked.rows}: numbers from 1 to ${CAPACITY.T}`);
const cuda = loadCudaAddon();
const device = new cuda.Device(0);
const { sharedBytesPerBlock, multiprocessors, name } = device.info;
const facts = { arch, sharedBytesPerBlock, multiprocessors };
const stored = group === undefined ? 'bf16' : `4 bits in groups of ${group}`;
console.log(`${name}, weights of ${stored}, rank ${rank}, ${SLOTS} slots`);

/** Numbers of bf16 around 1/64, the same words again and again. */
const noise = Uint16Array.from(
  { length: 8 << 20 },
  () => 0x3c00 + Math.floor(Math.random() * 256) + (Math.random() < 0.5 ? 0x8000 : 0),
);
const floats = Float32Array.from({ length: 1 << 20 }, () => Math.random() / 64);

interface Prepared {
  readonly own: AdapterCase;
  readonly memories: ReadonlyMap<string, CudaMemory>;
}

const bytesOf = (module: KernelModule, each: string): number => {
  const weight = module.weights.find((w) => w.name === each);
  if (weight !== undefined) return packedBytes(weight, physicalToLogical(weight).length);
  const buffer = module.buffers.find((b) => b.name === each)!;
  const rows = buffer.space === 'weight' ? Number(buffer.rows) : roundUp(CAPACITY.T, 64);
  return rows * rowStride(buffer, CAPACITY, DTYPE_BYTES[buffer.dtype]) * DTYPE_BYTES[buffer.dtype];
};

function prepare(which: (typeof WHICH)[number]): Prepared {
  const layer = layerGemm(which, SHAPE.hidden, SHAPE.inter, SHAPE.headDim);
  const own = withAdapters(group === undefined ? layer : inGroups(layer, group), { slots: SLOTS, rank });
  const memories = new Map<string, CudaMemory>();
  for (const { name: each, ...decl } of [...own.module.weights, ...own.module.buffers]) {
    const bytes = bytesOf(own.module, each);
    const memory = new cuda.Memory(device, roundUp(bytes, 256));
    const type = 'format' in decl ? decl.format : decl.dtype;
    const words = type === 'f32' ? floats : noise;
    for (let at = 0; at < bytes; at += words.byteLength)
      memory.write(at, new Uint8Array(words.buffer, 0, Math.min(words.byteLength, bytes - at)));
    memories.set(each, memory);
  }
  return { own, memories };
}

const cases = WHICH.map(prepare);

for (const rows of sizes) {
  const bucket = scoringBucket({ tokens: rows, rows, longest: rows });
  const emit = (kernel: Kernel, module: KernelModule) =>
    emitCudaKernel(kernel, module, defaultCudaSchedule(kernel, module, facts, bucket), CAPACITY);
  /** The product that shrinks its rows, if it can. */
  const shrinkingOf = ({ kernel, module }: AdapterCase) => {
    const schedule = defaultCudaSchedule(kernel, module, facts, bucket);
    const shrinking = schedule.kind === 'gemm' ? shrinkingSchedule(kernel, module, schedule, rows) : undefined;
    return shrinking === undefined ? [] : [emitCudaKernel(kernel, module, shrinking, CAPACITY)];
  };
  /** The shrink kernel with tiles of fewer rows, where the default has the most. */
  const otherShrinks = ({ shrink, module }: AdapterCase) => {
    const schedule = defaultCudaSchedule(shrink, module, facts, bucket);
    if (schedule.kind !== 'loop' || schedule.rows !== SHRINK_ROWS.at(-1)) return [];
    return ([64, 8] as const).map((tile) => emitCudaKernel(shrink, module, { ...schedule, rows: tile }, CAPACITY));
  };
  let list;
  try {
    list = cases.map(({ own, memories }) => ({
      own,
      memories,
      base: [emit(own.base.kernel, own.base.module)],
      with: [own.shrink, own.kernel].map((kernel) => emit(kernel, own.module)),
      inside: shrinkingOf(own),
      otherShrinks: otherShrinks(own),
    }));
  } catch (error) {
    console.log(`${rows} rows: ${error instanceof Error ? error.message : String(error)}`);
    continue;
  }
  const texts = list.flatMap((each) => [...each.base, ...each.with, ...each.inside, ...each.otherShrinks]);
  const { cubins } = await compileCubins(
    [...new Map(texts.map((text) => [text.symbol, text])).values()].map(({ symbol, source, headers }) => ({
      symbol,
      source,
      headers,
    })),
    { arch },
  );
  const modules = new Map([...cubins].map(([symbol, cubin]) => [symbol, new cuda.Module(device, cubin)]));
  const slots: { memory: CudaMemory; offset: number; bytes: number }[] = [];
  const launches: ReturnType<typeof bindKernel>[] = [];
  const numbers = list.map(({ own, memories, base, with: adapted, inside, otherShrinks: others }) => {
    const from = slots.length;
    const names = [...memories.keys()];
    for (const each of names) slots.push({ memory: memories.get(each)!, offset: 0, bytes: bytesOf(own.module, each) });
    const add = (text: (typeof base)[number]): number =>
      launches.push(bindKernel(text.symbol, text, modules.get(text.symbol)!, (each) => from + names.indexOf(each))) - 1;
    return { base: base.map(add), with: adapted.map(add), inside: inside.map(add), otherShrinks: others.map(add) };
  });
  const program = new cuda.Program({
    device,
    extents: [
      { name: 'T', most: CAPACITY.T },
      { name: 'R', most: CAPACITY.R },
    ],
    inputs: [],
    outputs: [],
    slots,
    launches,
  });
  const time = async (which: readonly number[]): Promise<number> => {
    const rounds = rows > 512 ? 4 : 16;
    const request = { extents: [rows, rows], launches: which, warmup: 3, repeats: 9, perSample: which.length * rounds };
    const samples = [...(await program.time(request))].sort((a, b) => a - b);
    return (1000 * samples[4]!) / rounds;
  };
  const use = (slotOf: (row: number) => number): void => {
    for (const { memories } of list)
      memories.get('adapter')!.write(
        0,
        Int32Array.from({ length: CAPACITY.T }, (_, row) => slotOf(row)),
      );
  };
  /** What products have written of these rows, as a hash; and memory without it. */
  const outputs = (which: typeof list) =>
    which.flatMap(({ own, memories }) =>
      own.kernel.segments.flatMap((segment) =>
        segment.outputs.map(({ buffer }) => ({ memory: memories.get(buffer)!, bytes: bytesOf(own.module, buffer) })),
      ),
    );
  const first = (bytes: number): number => Math.floor((bytes / roundUp(CAPACITY.T, 64)) * rows);
  const resultsOf = (which: typeof list): string => {
    const hash = createHash('sha256');
    for (const { memory, bytes } of outputs(which)) hash.update(new Uint8Array(memory.read(0, first(bytes))));
    return hash.digest('hex');
  };
  const clear = (which: typeof list): void => {
    for (const { memory, bytes } of outputs(which)) memory.write(0, new Uint8Array(first(bytes)).fill(0xff));
  };
  const many = Math.min(rows, SLOTS);
  const states: readonly (readonly [string, number, (row: number) => number])[] = [
    ['none', 0, () => -1],
    ['one', 1, () => 5],
    // Neighbours of a sequence have one adapter, as a prompt's tokens do.
    [`${many}`, many, (row) => Math.floor((row * many) / rows)],
  ];
  console.log(`\n${rows} rows            without   ${states.map(([label]) => label.padEnd(28)).join('')}`);
  const lines = [
    ...list.map(({ own }, i) => ({ label: own.kernel.name, ...numbers[i]!, cases: [list[i]!] })),
    {
      label: 'all',
      base: numbers.flatMap((each) => each.base),
      with: numbers.flatMap((each) => each.with),
      inside: numbers.flatMap((each) => each.inside),
      cases: list,
    },
  ];
  for (const line of lines) {
    const weightBytes = line.cases.reduce(
      (sum, { own }) =>
        sum + own.base.module.weights.reduce((all, w) => all + packedBytes(w, physicalToLogical(w).length), 0),
      0,
    );
    const perAdapter = line.cases.reduce(
      (sum, { own }) =>
        sum +
        own.module.weights
          .filter((w) => w.slots !== undefined)
          .reduce((all, w) => all + slotBytes(w, physicalToLogical(w).length), 0),
      0,
    );
    const base = await time(line.base);
    const cells: string[] = [];
    const insideCells: string[] = [];
    const productCells: string[] = [];
    for (const [, distinct, slotOf] of states) {
      use(slotOf);
      const floor = 1 + (distinct * perAdapter) / weightBytes;
      // A GPU that has become hot is slower: what is compared with was timed last.
      const cell = async (which: readonly number[]): Promise<string> => {
        const [us, plain] = [await time(which), await time(line.base)];
        const [more, least] = [us / plain - 1, floor - 1].map((share) => `${(100 * share).toFixed(1)} %`);
        return `${us.toFixed(1)} µs ${more} (${least})`.padEnd(28);
      };
      productCells.push(await cell(line.with.filter((_, i) => i % 2 === 1)));
      if (line.inside.length > 0) clear(line.cases);
      const us = await cell(line.with);
      cells.push(us);
      if (line.inside.length === 0) continue;
      await time(line.with);
      const wanted = resultsOf(line.cases);
      clear(line.cases);
      insideCells.push(await cell(line.inside));
      await time(line.inside);
      if (resultsOf(line.cases) !== wanted) console.log(`${line.label}, ${distinct} adapters: OTHER BITS`);
    }
    const rate = (weightBytes / base / 1000).toFixed(0);
    console.log(
      `${line.label.padEnd(10)} ${base.toFixed(1).padStart(8)} µs ${rate.padStart(5)} GB/s  ${cells.join('')}`,
    );
    console.log(`${'  without shrink kernels'.padEnd(35)}${productCells.join('')}`);
    if (insideCells.length > 0) console.log(`${'  shrinking itself'.padEnd(35)}${insideCells.join('')}`);
  }
  // Slots of the last state come in runs that end within tiles, and rows between them have none.
  const mixed = (row: number): number => (row % 100 === 99 ? -1 : Math.floor(row / 150) % SLOTS);
  for (const [state, slotOf] of [
    ...states.map(([label, , slotOf]) => [label, slotOf] as const),
    ['mixed', mixed] as const,
  ])
    for (const [i, { with: adapted, otherShrinks: others }] of numbers.entries()) {
      const { own, memories } = list[i]!;
      use(slotOf);
      const out = memories.get(own.shrink.out)!;
      const bytes = first(bytesOf(own.module, own.shrink.out));
      const hashes: string[] = [];
      for (const launch of others.length === 0 ? [] : [adapted[0]!, adapted[0]!, ...others]) {
        out.write(0, new Uint8Array(bytes).fill(0xff));
        await time([launch]);
        hashes.push(
          createHash('sha256')
            .update(new Uint8Array(out.read(0, bytes)))
            .digest('hex'),
        );
      }
      if (hashes.length > 0)
        console.log(
          `shrink of ${own.kernel.name}, ${state}: ${new Set(hashes).size === 1 ? 'same bits' : 'OTHER BITS'}`,
        );
    }
  // Alone: what shrink kernels take.
  for (const [label, , slotOf] of states) {
    use(slotOf);
    const each: string[] = [];
    for (const [i, { with: adapted }] of numbers.entries())
      each.push(`${list[i]!.own.kernel.name} ${(await time([adapted[0]!])).toFixed(1)} µs`);
    console.log(`shrink alone, ${label}: ${each.join(', ')}`);
  }
  program.release();
  for (const module of modules.values()) module.release();
}
