/**
 * `node dist/test/gpu/scanTimes.js`: times of scans on a GPU, in the shapes of a layer of Qwen3.5-9B and of
 * Mamba-2 2.7B: prompts, trees of questions and answers, and steps over rows of states; share-outs of a scan beside
 * each other, all of which must have the same bits. A star: the one that a call has by default. A minute or two.
 */
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { SCAN_SHAPES, scanLaunch, scanShape, type ScanShape } from '../../codegen/cuda/recurrent/index.js';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaArch } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import { ROW_PAD, rowStride } from '../../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { loadCudaAddon } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import type { CudaMemory } from '../../runtime/cuda/native.js';
import { extentsOf } from '../codegen/cuda/emulate.js';
import { type ScanCase, scanModule } from '../codegen/recurrentCases.js';
import { deviceHere } from './device.js';

const { arch, skip } = await deviceHere();
if (typeof skip === 'string' || typeof arch !== 'string') throw new Error(String(skip));
const cuda = loadCudaAddon();
const device = new cuda.Device(0);
console.log(`${device.info.name}; µs a launch`);

const DELTA: ScanCase = {
  ...{ rule: 'delta', mask: 'column', keyHeads: 16, heads: 32, keyDim: 128, valueDim: 128, dtype: 'bf16' },
  ...{ epsilon: 1e-6, scale: 1 / Math.sqrt(128) },
};
const MAMBA: ScanCase = {
  ...{ rule: 'add', mask: 'column', keyHeads: 1, heads: 80, keyDim: 128, valueDim: 64, dtype: 'bf16', hasSkip: true },
};
const CAPACITY = { T: 16_384, R: 16_384, C: 16_384 };
/** Rows of states, of which calls in turn take others: 2 MiB each. */
const STATE_ROWS = 256;

// Where rows come from: the row above each, −1 for none.

/** `count` texts of `length` tokens. */
const texts = (count: number, length: number): number[] =>
  Array.from({ length: count * length }, (_, row) => (row % length === 0 ? -1 : row - 1));
/** Trees of a stem, of which each branch has branches of its own. */
function forest(count: number, [stem, ...branches]: readonly (readonly [count: number, length: number])[]): number[] {
  const parents: number[] = [];
  const grow = (from: number, levels: readonly (readonly [number, number])[]): void => {
    const [level, ...below] = levels;
    if (level === undefined) return;
    for (let i = 0; i < level[0]; i++) {
      let at = from;
      for (let token = 0; token < level[1]; token++) at = parents.push(at) - 1;
      grow(at, below);
    }
  };
  for (let tree = 0; tree < count; tree++) grow(-1, [stem!, ...branches]);
  return parents;
}
function linksOf(parents: readonly number[]): { readonly before: Int32Array; readonly end: Int32Array } {
  const before = Int32Array.from(parents, (parent, row) => (parent < 0 ? row : parent));
  const end = Int32Array.from(parents, (_, row) => row + 1);
  for (let row = parents.length - 1; row >= 0; row--) {
    const parent = parents[row]!;
    if (parent >= 0) end[parent] = Math.max(end[parent]!, end[row]!);
  }
  return { before, end };
}

// Data.

let seed = 1;
const random = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
const noise = Uint16Array.from(
  { length: 1 << 20 },
  () => 0x3e00 + Math.floor(random() * 256) + (random() < 0.5 ? 0x8000 : 0),
);
const factors = Float32Array.from({ length: 1 << 18 }, () => 0.9 + 0.1 * random());
function filled(bytes: number, words: Uint8Array | Uint16Array | Float32Array | Int32Array): CudaMemory {
  const memory = new cuda.Memory(device, roundUp(bytes, 256));
  for (let at = 0; at < bytes; at += words.byteLength)
    memory.write(at, new Uint8Array(words.buffer, words.byteOffset, Math.min(words.byteLength, bytes - at)));
  return memory;
}
const median = (values: Float64Array): number => [...values].sort((a, b) => a - b)[values.length >> 1]!;

/** A share-out, and how many rows a block's window has at least. */
interface Variant extends ScanShape {
  readonly window?: number;
}
function scanOf(own: ScanCase) {
  const module = scanModule({ ...own, states: STATE_ROWS });
  return { module, kernel: module.kernels[1]! as Extract<(typeof module.kernels)[number], { anchor: 'scan' }> };
}

/** Kernels of some share-outs: fields of their Config and their launches are all that differs. */
async function kernelsOf(own: ScanCase, shapes: readonly Variant[]) {
  const { module, kernel } = scanOf(own);
  const text = emitCudaKernel(kernel, module, { kind: 'loop', threads: 128 }, CAPACITY);
  const units = shapes.map((shape, i) => {
    const { threads, lines, sharedBytes } = scanLaunch(kernel, shape);
    const fields = { lanes: shape.lanes, chunk_rows: shape.chunkRows, threads };
    const source = Object.entries({ ...fields, kept: shape.kept }).reduce(
      (all, [name, value]) => all.replace(new RegExp(`\\.${name} = \\d+,`), `.${name} = ${value},`),
      text.source.replace(/__launch_bounds__\(\d+, \d+\)/, `__launch_bounds__(${threads}, ${shape.blocks})`),
    );
    const symbol = `${text.symbol}_${i}`;
    const gridX = { ...text.launch.gridX, per: shape.window ?? 1 };
    const launch = { ...text.launch, threads, sharedBytes, gridX, gridY: { kind: 'constant', count: lines } as const };
    return { symbol, source: source.replaceAll(text.symbol, symbol), headers: text.headers, launch };
  });
  const { cubins } = await compileCubins(
    units.map(({ symbol, source, headers }) => ({ symbol, source, headers })),
    { arch: arch as CudaArch },
  );
  return units.map(({ symbol, launch }) => ({
    ...{ module, text, launch, symbol },
    loaded: new cuda.Module(device, cubins.get(symbol)!),
  }));
}
type Made = Awaited<ReturnType<typeof kernelsOf>>[number];

/** Rows of a call: where they come from, and of steps which rows of states they read and write. */
interface Call {
  readonly name: string;
  readonly own: ScanCase;
  readonly parents: readonly number[];
  /** What the least work takes, µs. */
  readonly floor: number;
  /** Calls that take turns, with rows of states of their own. */
  readonly turns?: number;
  /** Most new tokens of a path, if it is a step that only goes on. */
  readonly run?: number;
  /** Of a turn's row, the rows of states that it goes on from and to. */
  readonly rowsOf?: (turn: number, row: number) => { readonly from: number; readonly to: number };
}

function memoryOf({ module, text }: Made, { parents, turns = 1, rowsOf }: Call) {
  const rows = parents.length;
  const { before, end } = linksOf(parents);
  const memory = new Map<string, CudaMemory>();
  for (const name of text.parameters) {
    const buffer = module.buffers.find((each) => each.name === name)!;
    if (name === 'from' || name === 'to') continue;
    const ints = { before_1: before, subtree_end: end, also: new Int32Array(rows).fill(-1) }[name];
    const stride = rowStride(buffer, CAPACITY, DTYPE_BYTES[buffer.dtype]);
    const held = typeof buffer.rows === 'number' ? buffer.rows : roundUp(rows, ROW_PAD);
    const bytes = roundUp(held * stride * DTYPE_BYTES[buffer.dtype], 256);
    if (ints !== undefined) memory.set(name, filled(roundUp(rows, ROW_PAD) * 4, ints));
    else if (name === 'out' || name === 'state') memory.set(name, filled(bytes, new Uint8Array(1 << 22)));
    else memory.set(name, filled(bytes, buffer.dtype === 'f32' ? factors : noise));
  }
  for (let turn = 0; turn < turns && rowsOf !== undefined; turn++)
    for (const name of ['from', 'to'] as const)
      memory.set(
        `${name}_${turn}`,
        filled(
          roundUp(rows, ROW_PAD) * 4,
          Int32Array.from(parents, (_, row) => rowsOf(turn, row)[name]),
        ),
      );
  return memory;
}

/** Runs a call once and gives what it leaves behind; then times it. */
async function timeOf(made: Made, call: Call, memory: ReadonlyMap<string, CudaMemory>) {
  const { turns = 1 } = call;
  const { text, launch, loaded, symbol } = made;
  const names = [...memory.keys()];
  const extents = extentsOf(text);
  const rows = call.parents.length;
  const sizes = { T: rows, R: rows, C: rows };
  const program = new cuda.Program({
    device,
    extents: extents.map((name) => ({ name, most: extentIn(name, CAPACITY) })),
    inputs: [],
    outputs: [],
    slots: names.map((name) => ({ memory: memory.get(name)!, offset: 0, bytes: memory.get(name)!.sizeBytes })),
    launches: Array.from({ length: turns }, (_, turn) => ({
      name: `scan_${turn}`,
      module: loaded,
      symbol,
      slots: text.parameters.map((name) => names.indexOf(name === 'from' || name === 'to' ? `${name}_${turn}` : name)),
      tensorMaps: [],
      launch,
      usesProgrammaticLaunch: true,
    })),
  });
  try {
    const own = extents.map((name) => extentIn(name, sizes));
    for (const name of ['out', 'state']) memory.get(name)?.fill(0);
    await program.run({ extents: own, inputs: [], isSynchronous: true });
    const bits = ['out', 'state'].flatMap((name) => {
      const held = memory.get(name);
      return held === undefined ? [] : [Buffer.from(held.read(0, Math.min(held.sizeBytes, 128 << 20)))];
    });
    const request = {
      extents: own,
      launches: Array.from({ length: turns }, (_, turn) => turn),
      ...{ warmup: 2, repeats: 12, perSample: turns },
    };
    return { bits, us: (1000 * median(await program.time(request))) / turns };
  } finally {
    program.release();
  }
}

/** What the arithmetic of states takes on CUDA cores, µs: four operations an element, or three. */
const floorOf = (own: ScanCase, rows: number): number =>
  (rows * own.heads * own.keyDim * own.valueDim * (own.rule === 'delta' ? 4 : 3)) / (132 * 128 * 1.755e3);
const callOf = (name: string, own: ScanCase, parents: readonly number[]): Call => ({
  ...{ name, own, parents },
  floor: floorOf(own, parents.length),
});
const step = (count: number, own: ScanCase): Call => ({
  ...{ name: `step of ${count}`, own: { ...own, isKept: true }, parents: texts(count, 1) },
  floor: (count * own.heads * own.keyDim * own.valueDim * 8) / 4.4e6,
  ...{ turns: Math.floor(STATE_ROWS / count), run: 1 },
  rowsOf: (turn, row) => ({ from: turn * count + row, to: turn * count + row }),
});
/** Prompts in a step: each leaves a state behind its last token. */
const prompts = (count: number, length: number, own: ScanCase): Call => ({
  ...callOf(`prompts in a step, ${count} × ${length}`, { ...own, isKept: true }, texts(count, length)),
  rowsOf: (_, row) => ({ from: -1, to: row % length === length - 1 ? Math.floor(row / length) : -1 }),
});
const CALLS: readonly Call[] = [
  callOf('64 × 128', DELTA, texts(64, 128)),
  callOf('8 × 1024', DELTA, texts(8, 1024)),
  callOf('1 × 8192', DELTA, texts(1, 8192)),
  callOf(
    '45 trees: 80, 4 of 25',
    DELTA,
    forest(45, [
      [1, 80],
      [4, 25],
    ]),
  ),
  callOf(
    '6 trees: 500, 5 of 80, 4 of 15',
    DELTA,
    forest(6, [
      [1, 500],
      [5, 80],
      [4, 15],
    ]),
  ),
  callOf('Mamba, 64 × 128', MAMBA, texts(64, 128)),
  callOf(
    'Mamba, 45 trees',
    MAMBA,
    forest(45, [
      [1, 80],
      [4, 25],
    ]),
  ),
  step(1, DELTA),
  step(16, DELTA),
  step(64, DELTA),
  prompts(64, 128, DELTA),
  prompts(32, 512, DELTA),
  step(1, MAMBA),
  step(64, MAMBA),
];

const { whole, steps, fewRows } = SCAN_SHAPES;
const SHAPES: readonly Variant[] = [
  whole,
  { ...whole, chunkRows: 8, blocks: 2 },
  { ...whole, chunkRows: 8, kept: 1 },
  { ...whole, lanes: 4, kept: 1, blocks: 2 },
];
const STEP_SHAPES: readonly Variant[] = [
  steps,
  fewRows,
  { ...fewRows, chunkRows: 4 },
  { ...fewRows, warps: 2, blocks: 4 },
  { ...fewRows, window: 4 },
  { ...fewRows, window: 8 },
];
const labelOf = ({ lanes, warps, chunkRows, kept, blocks, window = 1 }: Variant): string =>
  `${lanes} lanes, ${warps} warps, ${chunkRows} rows, ${kept} kept, ${blocks} blocks, window of ${window}`;
/** The share-out that a call's schedule chooses. */
function defaultOf({ own, parents, run }: Call): ScanShape {
  const { module, kernel } = scanOf(own);
  const bucket = { extents: { T: parents.length, R: parents.length }, longest: 1024, ...defined({ run }) };
  const schedule = cudaScheduling.default(kernel, module, TYPICAL_FACTS[arch as CudaArch], bucket);
  return scanShape(kernel, schedule.kind === 'loop' ? schedule : {});
}

const table: string[] = [];
let differences = 0;
for (const isKept of [false, true])
  for (const rule of ['delta', 'add'] as const) {
    const calls = CALLS.filter(({ own }) => own.rule === rule && (own.isKept === true) === isKept);
    if (calls.length === 0) continue;
    const shapes = isKept ? STEP_SHAPES : SHAPES;
    const kernels = (await kernelsOf(calls[0]!.own, shapes)).map((made, i) => {
      const { registers, localBytes } = made.loaded.function(made.symbol);
      const blocks = made.loaded.blocksPerMultiprocessor(made.symbol, made.launch.threads, made.launch.sharedBytes);
      const label = `${labelOf(shapes[i]!)}; ${registers} registers, ${localBytes} B, ${blocks} resident`;
      return [label, made, shapes[i]!] as const;
    });
    for (const call of calls) {
      const memory = memoryOf(kernels[0]![1], call);
      let wanted: readonly Buffer[] | undefined;
      table.push(`${call.name}, ${call.parents.length} rows, floor ${call.floor.toFixed(1)}`);
      const own = defaultOf(call);
      for (const [label, made, shape] of kernels) {
        const { bits, us } = await timeOf(made, call, memory);
        wanted ??= bits;
        const isSame = bits.every((each, i) => each.equals(wanted![i]!));
        const isZero = bits.every((each) => each.every((byte) => byte === 0));
        if (!isSame || isZero) differences++;
        const problem = `${isSame ? '' : ' — OTHER BITS'}${isZero ? ' — ALL ZEROS' : ''}`;
        table.push(`${us.toFixed(1).padStart(10)} ${shape === own ? '*' : ' '}${label}${problem}`);
      }
      for (const each of memory.values()) each.release();
    }
    for (const [, made] of kernels) made.loaded.release();
  }
device.release();
console.log(table.join('\n'));
console.log(differences === 0 ? 'all have the same bits' : `${differences} RESULTS DIFFER`);
