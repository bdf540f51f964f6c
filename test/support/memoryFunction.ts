/**
 * A function with state, as a graph and as a compiled plan: it adds its rows to rows of a memory that outlives calls,
 * and reads rows of the memory back. Its extents are neither called T nor R.
 */
import assert from 'node:assert/strict';
import type { Scheduling } from '../../codegen/scheduling.js';
import type { Extents } from '../../ir/extents.js';
import { type Graph, GraphBuilder, moduleOf } from '../../ir/graph/graph.js';
import type { Bucket, Plan } from '../../ir/plan.js';
import { type LoweredFunctions, lowerModule, optimize } from '../../passes/runPasses.js';
import type { Executor } from '../../runtime/executor.js';
import { NUMERICS, planOf } from './plans.js';

export const MEMORY = 'memory';
export const MEMORY_ROWS = 64;
export const MEMORY_COLUMNS = 8;

/**
 * remember(rows[N], slot[N], old[N], entry[Q]; memory) -> (found[Q]; memory): memory[slot[i]] = memory[old[i]] +
 * rows[i], every row as it was before the call; then found[j] = memory[entry[j]]. A slot of −1 writes nothing.
 */
export function memoryGraph(): Graph {
  const b = new GraphBuilder('remember', [
    { name: 'N', counts: 'new' },
    { name: 'Q', counts: 'queries' },
  ]);
  const rows = b.param('rows', 'f32', ['N', MEMORY_COLUMNS]);
  const slot = b.param('slot', 'i32', ['N'], { kind: 'slot', state: MEMORY });
  const old = b.param('old', 'i32', ['N'], { kind: 'entry', state: MEMORY });
  const entry = b.param('entry', 'i32', ['Q'], { kind: 'entry', state: MEMORY });
  const memory = b.state(MEMORY, 'f32', [MEMORY_ROWS, MEMORY_COLUMNS]);
  return b.scope('memory', () => {
    const before = b.scope('read', () => b.add('gather_rows', { x: memory, index: old }, {}, 'before'));
    const sum = b.scope('read', () => b.add('add', { a: before, b: rows }, {}, 'sum'));
    const after = b.scope('write', () => b.add('write_rows', { x: memory, rows: sum, slot }, {}, 'after'));
    const found = b.scope('find', () => b.add('gather_rows', { x: after, index: entry }, {}, 'found'));
    return b.finish([found], ['found'], [after]);
  });
}

/** Its kernels, through the product's passes. */
export const memoryKernels = (): LoweredFunctions => lowerModule(moduleOf(optimize(memoryGraph(), NUMERICS)), NUMERICS);

/** Calls of up to 8 and up to 40 new rows, with as many queries. */
const BUCKETS: readonly Bucket[] = [8, 40].map((size) => ({ extents: { N: size, Q: size }, longest: 0 }));

/** Its plan, with the default schedules of a target. */
export const memoryPlan = <S, F>(scheduling: Pick<Scheduling<S, F>, 'default'>, facts: F): Plan<S> =>
  planOf([memoryGraph()], { remember: BUCKETS }, scheduling, facts);

/** The inputs of a call. */
export interface MemoryCall {
  readonly rows: readonly (readonly number[])[];
  readonly slot: readonly number[];
  readonly old: readonly number[];
  readonly entry: readonly number[];
}

/** A call by the names of its inputs. Integer inputs have arrays of whole numbers. */
export const memoryInputs = ({ rows, slot, old, entry }: MemoryCall): ReadonlyMap<string, Float64Array> =>
  new Map(
    Object.entries({ rows: rows.flat(), slot, old, entry }).map(([name, data]) => [name, Float64Array.from(data)]),
  );

export const memorySizes = ({ slot, entry }: MemoryCall): Extents => ({ N: slot.length, Q: entry.length });

/**
 * What the function means, in plain loops: changes `memory`, an array for each of its rows, and returns what is found.
 */
export function remember(memory: number[][], { rows, slot, old, entry }: MemoryCall): number[][] {
  const before = memory.map((row) => [...row]);
  rows.forEach((row, i) => {
    if (slot[i]! >= 0) memory[slot[i]!] = row.map((value, c) => value + before[old[i]!]![c]!);
  });
  return entry.map((at) => [...memory[at]!]);
}

export const emptyMemory = (): number[][] =>
  Array.from({ length: MEMORY_ROWS }, () => new Array<number>(MEMORY_COLUMNS).fill(0));

const rowsFrom = (start: number, count: number): readonly (readonly number[])[] =>
  Array.from({ length: count }, (_, i) => Array.from({ length: MEMORY_COLUMNS }, (_v, c) => start + i + c / 8));

/** Calls in a row: the second builds on what the first left, swaps two rows, and skips one. */
export const MEMORY_CALLS: readonly MemoryCall[] = [
  { rows: rowsFrom(1, 5), slot: [3, 63, -1, 0, 17], old: [3, 63, 0, 0, 17], entry: [63, 3, 1] },
  { rows: rowsFrom(10, 4), slot: [3, 0, -1, 63], old: [0, 3, 5, 63], entry: [0, 3, 3, 63, 17, 1] },
  { rows: rowsFrom(-7, 1), slot: [-1], old: [17], entry: [17] },
];

// What any target must do with the compiled plan of memoryFunction.ts: every call sees what earlier ones left.

export async function checkMemoryCalls(executor: Executor): Promise<void> {
  const memory = emptyMemory();
  for (const call of MEMORY_CALLS) {
    const { outputs } = await executor.call('remember', {
      rows: Float32Array.from(call.rows.flat()),
      slot: Int32Array.from(call.slot),
      old: Int32Array.from(call.old),
      entry: Int32Array.from(call.entry),
    });
    assert.deepEqual(outputs, { found: Float32Array.from(remember(memory, call).flat()) });
  }
}
