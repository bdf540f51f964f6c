/**
 * Calls of the native addon with random arguments, in a process that may crash: node addonCalls.mjs ADDON SEED CALLS.
 * The addon should throw errors. Guard bytes around the used range of every memory must stay unchanged.
 */
import { createRequire } from 'node:module';

const [, , path, seed, calls] = process.argv;
const addon = createRequire(import.meta.url)(path);
let state = Number(seed) >>> 0;
const random = () => {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};
const pick = (list) => list[Math.floor(random() * list.length)];

const SIZE = 4096;
const memories = [new addon.Memory(SIZE), new addon.Memory(SIZE), new addon.Memory(process.execPath)];
const pools = [new addon.Pool(1), new addon.Pool(2)];
const released = new addon.Memory(64);
released.release();

const NUMBERS = [0, 1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 63, 64, 100, 256, 1000, 4032, 4095, 4096, 4097];
const ODD = [-1, 0.5, NaN, Infinity, 2 ** 31, 2 ** 32, 2 ** 40, 2 ** 53, -(2 ** 53), 1e300];
const ODDER = [undefined, null, '', 'x', 'T', {}, [], () => 1, 5n, 2n ** 70n, Symbol.iterator, new Proxy({}, {})];
const number = () => (random() < 0.85 ? pick(NUMBERS) : random() < 0.7 ? pick(ODD) : pick(ODDER));
const small = () => (random() < 0.9 ? Math.floor(random() * 5) : number());
const maybe = (value) => (random() < 0.97 ? value : pick([...ODD, ...ODDER]));
const memory = () => maybe(random() < 0.97 ? pick(memories) : pick([released, pools[0], addon]));
const list = (most, make) => maybe(Array.from({ length: Math.floor(random() * (most + 1)) }, make));
const array = () =>
  pick([Float32Array, Int32Array, Uint16Array, Uint8Array, Float64Array, BigInt64Array, DataView]) === DataView
    ? pick(ODDER)
    : new (pick([Float32Array, Int32Array, Uint16Array, Uint8Array, Float64Array]))(pick(NUMBERS));
const slot = () => maybe({ memory: memory(), offset: maybe(pick([0, 64, 128, 4032, number()])), bytes: number() });
const extent = () => (random() < 0.5 ? pick(['T', 'R', 'X']) : number());
const port = () => ({
  slot: small(),
  dtype: maybe(pick(['f32', 'i32', 'f16', 'bf16'])),
  rows: extent(),
  columns: number(),
  stride: number(),
});
const source = () =>
  maybe({
    kind: maybe(pick(['memory', 'random', 'constant'])),
    format: small(),
    rows: number(),
    memory: memory(),
    offset: number(),
    seed: maybe(7n),
    scale: maybe(0.5),
    value: maybe(1),
  });

/** Near the end of a memory, or at its beginning, or anywhere. */
const placed = (bytes) => ({ memory: memory(), offset: maybe(pick([SIZE - bytes, SIZE - bytes + 1, 0, number()])) });
const PLACES = { 4: [0, 4, 1, 5, 2, 6, 3, 7], 8: [0, 1, 2, 3], 2: [...Array(16).keys()] };
const grid = (bits) => ({
  type: maybe(`u${bits}`),
  wordBytes: maybe(4),
  along: maybe(pick(['row', 'column'])),
  isTransposed: maybe(random() < 0.5),
  places: maybe(PLACES[bits]),
});
/** Matrices whose parts mostly lie inside their memories. */
const encoded = (k) => {
  const rows = pick([1, 7, 16, 32, 33]);
  const bits = pick([2, 4, 8]);
  const inWord = 32 / bits;
  const group = pick([1, 8, 32, 64]);
  const [codes, zeros] = [grid(bits), grid(bits)];
  const sizeOf = ({ along }, columns) =>
    along === 'row' ? 4 * rows * Math.ceil(columns / inWord) : 4 * Math.ceil(rows / inWord) * columns;
  const groups = Math.ceil(k / group);
  const block = pick(['q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k']);
  const isBlock = random() < 0.2;
  return maybe({
    kind: 'encoded',
    format: 0,
    rows: maybe(rows),
    k: maybe(k),
    name: maybe('t'),
    encoding: maybe(
      isBlock
        ? { kind: 'blocks', block: maybe(block) }
        : {
            kind: maybe('codes'),
            codes,
            scales: {
              type: maybe(pick(['f32', 'f16', 'bf16', 'e8m0'])),
              blockRows: maybe(pick([1, 16, rows])),
              blockColumns: maybe(group),
              isTransposed: maybe(random() < 0.5),
            },
            zero: maybe(
              pick([
                { kind: 'constant', value: small() },
                { kind: 'stored', codes: zeros, added: small() },
              ]),
            ),
            hasGroups: maybe(random() < 0.1),
          },
    ),
    parts: maybe({
      codes: placed(sizeOf(codes, k)),
      scales: placed(4 * rows * groups),
      zeros: placed(sizeOf(zeros, groups)),
      groups: placed(4 * k),
      blocks: placed(rows * Math.ceil(k / 256) * 210),
    }),
  });
};
const packEncoded = () => {
  const k = pick([1, 8, 31, 32, 100, 256]);
  return addon.pack(pick(pools), {
    layout: pick(['rows', 'panels', 'vnni']),
    format: pick([0, 2]),
    k,
    rowMap: Int32Array.from({ length: pick([1, 16, 32]) }, (_, i) => pick([i, i, i, 0, -1])),
    sources: [encoded(k), encoded(k)],
    target: slot(),
  });
};

const CALLS = {
  packEncoded,
  read: () => memory().read(number(), number()),
  write: () => memories[Math.floor(random() * 2)].write(number(), array()),
  advise: () => memory().advise(maybe(pick(['willneed', 'dontneed'])), number(), number()),
  allocate: () =>
    new addon.Memory(random() < 0.5 ? pick(NUMBERS) : pick([...ODD.filter((n) => !(n > 4096)), ...ODDER])).release(),
  library: () => new addon.Library(pick(['', '/', '/dev/null', 'x\0y', process.execPath, ...ODDER])),
  pack: () =>
    addon.pack(maybe(pick(pools)), {
      layout: maybe(pick(['rows', 'panels', 'vnni'])),
      format: small(),
      k: number(),
      rowMap: maybe(Int32Array.from({ length: pick([0, 1, 2, 16, 32, 64]) }, () => Math.floor(random() * 40) - 2)),
      sources: list(3, source),
      ...(random() < 0.3 ? { columnScale: source() } : {}),
      target: slot(),
    }),
  program: async () => {
    const program = new addon.Program({
      pool: maybe(pick(pools)),
      extents: maybe([
        { name: maybe('T'), most: number() },
        { name: maybe('R'), most: number() },
      ]),
      scratchBytes: maybe(pick([0, 64, number()])),
      ...(random() < 0.3 ? { scratch: slot() } : {}),
      slots: list(5, slot),
      launches: maybe([]),
      inputs: list(3, port),
      outputs: list(3, port),
    });
    await program.run({
      extents: maybe([number(), number()]),
      inputs: list(3, array),
      isTimed: maybe(true),
      isChecked: maybe(true),
    });
    await program.timeLaunch({ launch: small(), extents: [number(), number()], repeats: small() });
    program.release();
    if (random() < 0.1) await program.run({ extents: [1, 1], inputs: [] });
  },
};

let admitted = 0;
for (let i = 0; i < Number(calls); i++) {
  try {
    await CALLS[pick(Object.keys(CALLS))]();
    admitted++;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
  }
}
process.stdout.write(`${admitted}`);
