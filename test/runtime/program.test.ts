/** Programs of tiny kernels: walking, barriers, counters, inputs and outputs, checks, timing, refusals. */
import { beforeAll, describe, expect, it } from 'vitest';
import { loadAddon } from '../../runtime/addon.js';
import type {
  LaunchBinding,
  NativeLibrary,
  NativeMemory,
  NativePool,
  NativeProgram,
  PortBinding,
  ProgramBinding,
  ProgramExtent,
} from '../../runtime/native.js';
import { extentsTR, vector } from '../support/interface.js';
import { loadKernels, temporaryFolder } from './kernels.js';

const CAPACITY = 1000;
const cacheDir = temporaryFolder();
let library: NativeLibrary;
beforeAll(async () => {
  library = await loadKernels(cacheDir);
});

/** Slots: 0 tokens, 1 rows (inputs), 2 and 3 f32[T], 4 f32[R], 5 i32[R], 6 f32[64]. */
function slotsOf(memory: NativeMemory): ProgramBinding['slots'] {
  return Array.from({ length: 7 }, (_, i) => ({ memory, offset: i * 8192, bytes: 4096 }));
}

const launch = (symbol: string, slots: number[], writes: LaunchBinding['writes'] = []): LaunchBinding => ({
  name: symbol,
  library,
  symbol,
  slots,
  writes,
});
const floats = (slot: number): LaunchBinding['writes'][number] => ({
  slot,
  dtype: 'f32',
  rows: 'T',
  columns: 1,
  stride: 1,
  allowsNegativeInfinity: false,
});

interface Made {
  readonly program: NativeProgram;
  readonly memory: NativeMemory;
  readonly pool: NativePool;
}

function make(threads: number, launches: readonly LaunchBinding[], change: Partial<ProgramBinding> = {}): Made {
  const { Memory, Pool, Program } = loadAddon();
  const memory = new Memory(7 * 8192 + threads * 4096);
  const pool = new Pool(threads);
  const program = new Program({
    pool,
    extents: extentsTR(CAPACITY, CAPACITY),
    scratchBytes: 4096,
    scratch: { memory, offset: 7 * 8192, bytes: threads * 4096 },
    slots: slotsOf(memory),
    launches,
    inputs: [vector(0, 'T'), vector(1, 'R')],
    outputs: [vector(4, 'R', 'f32'), vector(5, 'R', 'i32')],
    ...change,
  });
  return { program, memory, pool };
}

const range = (n: number, offset = 0): Int32Array => Int32Array.from({ length: n }, (_, i) => i + offset);
const request = (tokens: number, rows = 1) => ({ extents: [tokens, rows], inputs: [range(tokens), range(rows)] });
const f32 = (memory: NativeMemory, slot: number, count: number): number[] => [
  ...new Float32Array(memory.read(slot * 8192, count * 4)),
];

describe.each([1, 2, 3])('a program on %i threads', (threads) => {
  it('runs launches in order with a barrier after each, and starts every work counter at 0', async () => {
    const { program, memory } = make(threads, [
      launch('tw_index', [0, 2]),
      launch('tw_fill', [2, 3]),
      launch('tw_double', [3]),
      launch('tw_fill', [3, 2]),
    ]);
    for (const tokens of [1, 7, CAPACITY, 500]) {
      await program.run(request(tokens));
      expect(f32(memory, 2, tokens)).toEqual(Array.from({ length: tokens }, (_, i) => 2 * (i + 1) + 1));
    }
  });

  it('keeps its order over thousands of barriers', async () => {
    const { program, memory } = make(threads, [
      launch('tw_index', [0, 2]),
      ...Array.from({ length: 2000 }, (_, i) => launch('tw_fill', i % 2 === 0 ? [2, 3] : [3, 2])),
    ]);
    await program.run(request(5));
    expect(f32(memory, 2, 5)).toEqual([2000, 2001, 2002, 2003, 2004]);
  });

  it('copies outputs out', async () => {
    const { program } = make(threads, [launch('tw_out', [1, 4, 5])]);
    const { outputs } = await program.run({ extents: [3, 4], inputs: [range(3), range(4, 10)] });
    expect([...new Float32Array(outputs[0]!)]).toEqual([-10, -11, -12, -13]);
    expect([...new Int32Array(outputs[1]!)]).toEqual([0, 1, 0, 1]);
  });

  it('gives each worker scratch of its own', async () => {
    const { program, memory } = make(threads, [launch('tw_scratch', [6])]);
    await program.run(request(1));
    expect(f32(memory, 6, threads)).toEqual(Array.from({ length: threads }, (_, i) => i + 1));
  });

  it('times each launch, and a single launch', async () => {
    const { program } = make(threads, [launch('tw_index', [0, 2]), launch('tw_fill', [2, 3])]);
    const { launchNs } = await program.run({ ...request(CAPACITY), isTimed: true });
    expect(launchNs).toHaveLength(2);
    for (const ns of launchNs!) expect(ns).toBeGreaterThan(0);
    const seconds = await program.timeLaunch({ launch: 1, extents: [CAPACITY, 1], repeats: 5 });
    expect(seconds).toHaveLength(5);
    for (const s of seconds) expect(s).toBeGreaterThan(0);
  });
});

describe('a checked run', () => {
  const launches = (): LaunchBinding[] => [
    launch('tw_index', [0, 2], [floats(2)]),
    launch('tw_fill', [2, 3], [floats(3)]),
    launch('tw_poison', [3], [floats(3)]),
    launch('tw_fill', [3, 2], [floats(2)]),
  ];

  it('names the first launch whose result is not finite, and the place', async () => {
    const { program } = make(2, launches());
    const { nonFinite } = await program.run({ ...request(77), isChecked: true });
    expect(nonFinite).toEqual({ launch: 2, write: 0, row: 76, column: 0 });
  });

  it('checks only valid rows', async () => {
    const { program, memory } = make(2, launches().slice(0, 2));
    for (const slot of [2, 3]) memory.write(slot * 8192 + 5 * 4, new Float32Array([NaN]));
    const { nonFinite } = await program.run({ ...request(5), isChecked: true });
    expect(nonFinite).toBeUndefined();
  });

  it('accepts −∞ only in buffers that may hold it', async () => {
    for (const allowsNegativeInfinity of [true, false]) {
      const { program, memory } = make(1, [launch('tw_double', [2], [{ ...floats(2), allowsNegativeInfinity }])]);
      memory.write(2 * 8192, new Float32Array([1, -Infinity, 3]));
      const { nonFinite } = await program.run({ ...request(3), isChecked: true });
      expect(nonFinite).toEqual(allowsNegativeInfinity ? undefined : { launch: 0, write: 0, row: 1, column: 0 });
    }
  });

  it('reads bf16 and f16', async () => {
    for (const [dtype, bad] of [
      ['bf16', 0x7fc0],
      ['f16', 0x7e00],
    ] as const) {
      const { program, memory } = make(1, [
        launch('tw_out', [1, 4, 5], [{ ...floats(2), dtype, rows: 2, columns: 3, stride: 4 }]),
      ]);
      memory.write(2 * 8192, new Uint16Array([0, 0, 0, bad, 0, 0x3f80, bad]));
      const { nonFinite } = await program.run({ ...request(2), isChecked: true });
      expect(nonFinite).toEqual({ launch: 0, write: 0, row: 1, column: 2 });
    }
  });
});

describe('refusals', () => {
  it('refuses a micro-batch over capacity', () => {
    const { program } = make(1, [launch('tw_index', [0, 2])]);
    expect(() => program.run(request(CAPACITY + 1))).toThrow(/T must be an integer from 0 to 1000/);
    expect(() => program.run({ extents: [-1, 1], inputs: [] })).toThrow(/T must be/);
    expect(() => program.run({ extents: [1], inputs: [] })).toThrow(/has 2 extents, not 1/);
    expect(() => program.run(request(3.5))).toThrow();
    expect(() => program.run({ extents: [1, CAPACITY + 1], inputs: [range(1), range(CAPACITY + 1)] })).toThrow(
      /R must be/,
    );
  });

  it('refuses inputs of the wrong length or kind', () => {
    const { program } = make(1, [launch('tw_index', [0, 2])]);
    expect(() => program.run({ extents: [3, 1], inputs: [range(2), range(1)] })).toThrow(
      /inputs\[0\] has 2 entries, not 3/,
    );
    expect(() => program.run({ extents: [3, 1], inputs: [range(3)] })).toThrow(/takes 2 inputs/);
    const wrong: unknown = new Float32Array(3);
    expect(() => program.run({ extents: [3, 1], inputs: [wrong as Int32Array, range(1)] })).toThrow(/wrong kind/);
  });

  it('runs one job at a time and is free again afterwards', async () => {
    const { program, pool } = make(1, [launch('tw_index', [0, 2])]);
    const first = program.run(request(5));
    expect(pool.isBusy).toBe(true);
    expect(() => program.run(request(5))).toThrow(/running another job/);
    expect(() => pool.release()).toThrow(/running a job/);
    await first;
    expect(pool.isBusy).toBe(false);
    await program.run(request(5));
  });

  it('stops at the next launch when asked to', async () => {
    const { program, pool, memory } = make(2, [launch('tw_gate', [6]), launch('tw_index', [0, 2])]);
    memory.write(0, new Int32Array(7 * 2048));
    const run = program.run(request(CAPACITY));
    pool.stop();
    memory.write(6 * 8192, Int32Array.of(1));
    await expect(run).rejects.toThrow(/Stopped/);
    expect(f32(memory, 2, CAPACITY)).toEqual(new Array(CAPACITY).fill(0));
  });

  it('refuses slots, writes and scratch that reach outside their memory', () => {
    const { Memory, Pool, Program } = loadAddon();
    const memory = new Memory(4096);
    const pool = new Pool(2);
    const base: ProgramBinding = {
      pool,
      extents: extentsTR(4, 4),
      scratchBytes: 0,
      slots: [],
      launches: [],
      inputs: [],
      outputs: [],
    };
    const tryWith = (change: Partial<ProgramBinding>) => () => new Program({ ...base, ...change });
    expect(tryWith({ slots: [{ memory, offset: 4090, bytes: 8 }] })).toThrow(/outside a memory of 4096 bytes/);
    expect(tryWith({ slots: [{ memory, offset: 8, bytes: Number.MAX_SAFE_INTEGER }] })).toThrow(/outside/);
    expect(tryWith({ slots: [{ memory, offset: -8, bytes: 8 }] })).toThrow(/offset must be an integer/);
    expect(tryWith({ slots: [{ memory, offset: NaN, bytes: 8 }] })).toThrow(/offset must be an integer/);
    const slots = [{ memory, offset: 0, bytes: 15 }];
    expect(tryWith({ slots, inputs: [vector(0, 'T')] })).toThrow(/needs 16 bytes at full capacity, its slot has 15/);
    expect(tryWith({ slots, inputs: [vector(1, 'T')] })).toThrow(/slot must be an integer from 0 to 0/);
    expect(tryWith({ slots, launches: [launch('tw_double', [1])] })).toThrow(/slots\[0\] must be an integer/);
    expect(tryWith({ slots, launches: [launch('tw_double', [0], [floats(0)])] })).toThrow(/needs 16 bytes/);
    expect(tryWith({ slots, launches: [launch('missing', [0])] })).toThrow(/No symbol missing/);
    expect(tryWith({ scratchBytes: 64, scratch: { memory, offset: 0, bytes: 64 } })).toThrow(/the workers need 128/);
    expect(tryWith({ scratchBytes: 65, scratch: { memory, offset: 0, bytes: 4096 } })).toThrow(/aligned/);
  });

  it('refuses extents that are not distinct names with a size, and names that are not among them', () => {
    const { Memory, Pool, Program } = loadAddon();
    const memory = new Memory(4096);
    const pool = new Pool(1);
    const tryWith = (change: Partial<ProgramBinding>) => () =>
      new Program({ pool, extents: [], scratchBytes: 0, slots: [], launches: [], inputs: [], outputs: [], ...change });
    const extent = (name: string, most = 4): ProgramExtent => ({ name, most });
    expect(tryWith({ extents: [extent('N'), extent('N')] })).toThrow('extents names N twice');
    expect(tryWith({ extents: [extent('')] })).toThrow('extents[0].name must be an identifier');
    expect(tryWith({ extents: [extent('a-b')] })).toThrow('extents[0].name must be an identifier');
    expect(tryWith({ extents: [extent('x'.repeat(65))] })).toThrow('extents[0].name must be an identifier');
    for (const most of [0, -1, 2 ** 31, 1.5, NaN])
      expect(tryWith({ extents: [extent('N', most)] })).toThrow(/extents\[0\].most must be an integer/);
    expect(tryWith({ extents: Array.from({ length: 13 }, (_, i) => extent(`N${i}`)) })).toThrow(/at most 12/);
    const slots = [{ memory, offset: 0, bytes: 4096 }];
    const port = { ...vector(0, 'N'), dtype: 'f32' } as const;
    const inputs = (change: Partial<PortBinding>) =>
      tryWith({ extents: [extent('N')], slots, inputs: [{ ...port, ...change }] });
    expect(inputs({})).not.toThrow();
    expect(inputs({ rows: 'M' })).toThrow('inputs[0].rows is M, which is no extent of the program');
    expect(inputs({ columns: 3, stride: 2 })).toThrow(/inputs\[0\].stride must be an integer from 3/);
    expect(inputs({ columns: 257, stride: 257 })).toThrow('needs 4112 bytes at full capacity');
    expect(inputs({ columns: 2 ** 31, stride: 2 ** 31, rows: 2 ** 31 })).toThrow('too large');
    const lies: unknown = 'i8';
    expect(inputs({ dtype: lies as 'f32' })).toThrow('inputs[0].dtype must be f32, f16, bf16 or i32, not i8');
  });

  it('copies matrices in and out by rows, whatever lies between them, and passes every extent to kernels', async () => {
    const { Memory, Pool, Program } = loadAddon();
    const memory = new Memory(8192);
    memory.write(0, new Uint8Array(8192).fill(7));
    const slots = [
      { memory, offset: 0, bytes: 512 },
      { memory, offset: 4096, bytes: 512 },
    ];
    const matrix: PortBinding = { slot: 0, dtype: 'f32', rows: 'Runs', columns: 3, stride: 8 };
    const program = new Program({
      pool: new Pool(2),
      extents: [
        { name: 'Pages', most: 16 },
        { name: 'Runs', most: 4 },
      ],
      scratchBytes: 0,
      slots,
      launches: [launch('tw_sizes', [1])],
      inputs: [matrix],
      outputs: [matrix, { slot: 1, dtype: 'i32', rows: 2, columns: 1, stride: 1 }],
    });
    const data = Float32Array.from({ length: 6 }, (_, i) => i);
    const { outputs } = await program.run({ extents: [11, 2], inputs: [data] });
    expect([...new Float32Array(outputs[0]!)]).toEqual([...data]);
    expect([...new Int32Array(outputs[1]!)]).toEqual([11, 2]);
    expect([...new Float32Array(memory.read(32, 12))]).toEqual([3, 4, 5]);
    // Rows beyond those of the call are zero up to a multiple of 128 bytes; padding between rows stays.
    expect([...new Uint8Array(memory.read(64, 64))]).toEqual(new Array(64).fill(0));
    expect([...new Uint8Array(memory.read(12, 20))]).toEqual(new Array(20).fill(7));
    expect(() => program.run({ extents: [11, 5], inputs: [data] })).toThrow(/Runs must be an integer from 0 to 4/);
    expect(() => program.run({ extents: [11, 2], inputs: [new Float32Array(5)] })).toThrow('5 entries, not 6');
    expect(() => program.run({ extents: [11, 2], inputs: [new Int32Array(6)] })).toThrow('wrong kind');
    expect((await program.run({ extents: [0, 0], inputs: [new Float32Array(0)] })).outputs[0]!.byteLength).toBe(0);
  });

  it('refuses objects of another kind and released objects', () => {
    const { Memory, Pool, Program } = loadAddon();
    const memory = new Memory(64);
    const pool = new Pool(1);
    const stranger: unknown = { sizeBytes: 64 };
    const base: ProgramBinding = {
      pool,
      extents: extentsTR(4, 4),
      scratchBytes: 0,
      slots: [],
      launches: [],
      inputs: [],
      outputs: [],
    };
    expect(() => new Program({ ...base, slots: [{ memory: stranger as NativeMemory, offset: 0, bytes: 1 }] })).toThrow(
      /must be a Memory/,
    );
    const crossed: unknown = pool;
    expect(() => new Program({ ...base, slots: [{ memory: crossed as NativeMemory, offset: 0, bytes: 1 }] })).toThrow(
      /must be a Memory/,
    );
    memory.release();
    expect(() => new Program({ ...base, slots: [{ memory, offset: 0, bytes: 1 }] })).toThrow(/released/);
  });

  it('keeps what a program uses although the handles were released', async () => {
    const { Library, Memory, Pool, Program } = loadAddon();
    const own = await loadKernels(cacheDir);
    const memory = new Memory(8192);
    const pool = new Pool(2);
    const program = new Program({
      pool,
      extents: extentsTR(4, 4),
      scratchBytes: 0,
      slots: [
        { memory, offset: 0, bytes: 64 },
        { memory, offset: 4096, bytes: 64 },
      ],
      launches: [{ name: 'x', library: own, symbol: 'tw_out', slots: [0, 1, 0], writes: [] }],
      inputs: [vector(0, 'R')],
      outputs: [vector(1, 'R', 'f32')],
    });
    memory.release();
    own.release();
    pool.release();
    const { outputs } = await program.run({ extents: [1, 2], inputs: [range(2, 5)] });
    expect(new Float32Array(outputs[0]!)[0]).toBe(-5);
    expect(() => new Library('kernels.so')).toThrow(/full path/);
    expect(() => new Library('/nonexistent/kernels.so')).toThrow(/Cannot load/);
  });
});
