/**
 * Two functions over one state and one weight, compiled from their graphs: `append` adds scaled rows to rows of the
 * state, `recall` reads rows of it back. Their extents are neither called T nor R, and each function has its own.
 */
import assert from 'node:assert/strict';
import type { Scheduling } from '../../codegen/scheduling.js';
import { type Graph, GraphBuilder, type Value } from '../../ir/graph/graph.js';
import type { Bucket, Plan } from '../../ir/plan.js';
import type { Executor } from '../../runtime/executor.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { planOf } from './plans.js';

export const STATE_ROWS = 9;
export const WIDTH = 5;
const STATE = 'kept';

const stateOf = (b: GraphBuilder, rows: number): Value => b.state(STATE, 'f32', [rows, WIDTH]);
const scaleOf = (b: GraphBuilder): Value => b.weight('scale', 'f32', [WIDTH]);

/** append(rows[Runs], slot[Runs], old[Runs]; kept): kept[slot[i]] = kept[old[i]] + rows[i] · scale. */
function appendGraph(stateRows: number): Graph {
  const b = new GraphBuilder('append', [{ name: 'Runs', counts: 'runs' }]);
  const rows = b.param('rows', 'f32', ['Runs', WIDTH]);
  const slot = b.param('slot', 'i32', ['Runs'], { kind: 'slot', state: STATE });
  const old = b.param('old', 'i32', ['Runs'], { kind: 'entry', state: STATE });
  const kept = stateOf(b, stateRows);
  return b.scope('memory', () => {
    const sum = b.scope('add', () => {
      const scaled = b.add('mul', { a: rows, b: scaleOf(b) }, {}, 'scaled');
      return b.add('add', { a: b.add('gather_rows', { x: kept, index: old }, {}, 'before'), b: scaled }, {}, 'sum');
    });
    const after = b.scope('append', () => b.add('write_rows', { x: kept, rows: sum, slot }, {}, 'after'));
    return b.finish([], [], [after]);
  });
}

/** recall(entry[Entries]; kept) -> found[Entries]: found[i] = kept[entry[i]] / scale. */
function recallGraph(stateRows: number): Graph {
  const b = new GraphBuilder('recall', [{ name: 'Entries', counts: 'entries' }]);
  const entry = b.param('entry', 'i32', ['Entries'], { kind: 'entry', state: STATE });
  const kept = stateOf(b, stateRows);
  return b.scope('memory', () =>
    b.scope('recall', () => {
      const rows = b.add('gather_rows', { x: kept, index: entry }, {}, 'rows');
      return b.finish([b.add('div', { a: rows, b: scaleOf(b) }, {}, 'found')], ['found']);
    }),
  );
}

const buckets = (extent: string, sizes: readonly number[]): readonly Bucket[] =>
  sizes.map((size) => ({ extents: { [extent]: size }, longest: 0 }));

/** With the default schedules of a target. */
export const statePlan = <S, F>(scheduling: Pick<Scheduling<S, F>, 'default'>, facts: F, rows = STATE_ROWS): Plan<S> =>
  planOf(
    [appendGraph(rows), recallGraph(rows)],
    { append: buckets('Runs', [4, 40]), recall: buckets('Entries', [16]) },
    scheduling,
    facts,
  );

export const scaleTensor = (factor: number): ReadonlyMap<string, TensorSource> =>
  new Map([['scale', { kind: 'constant', format: 'f32', shape: [WIDTH], value: factor }]]);

// What any target must do with the plan of statePlan.ts: later calls see what earlier ones wrote, and invalid calls
// are refused.

/** `count` rows that differ in every element. */
const rowsOf = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count * WIDTH }, (_, i) => seed + i / 4);

const ALL = Int32Array.from({ length: STATE_ROWS }, (_, i) => i);

/** Inputs of `append`: rows are added to what their slots hold; a row that is not kept, to whatever row 0 holds. */
const inputsOf = (rows: Float32Array, slots: readonly number[]): Parameters<Executor['call']>[1] => ({
  rows,
  slot: Int32Array.from(slots),
  old: Int32Array.from(slots, (slot) => Math.max(0, slot)),
});

/** Scales must be powers of two: then every sum is exact, and the state divided by the scale is what was added. */
export async function checkStateCalls(executor: Executor): Promise<void> {
  const wanted = new Float32Array(STATE_ROWS * WIDTH);
  const append = async (slots: readonly number[], seed: number): Promise<void> => {
    const rows = rowsOf(slots.length, seed);
    slots.forEach((slot, r) => {
      for (let c = 0; slot >= 0 && c < WIDTH; c++) wanted[slot * WIDTH + c]! += rows[r * WIDTH + c]!;
    });
    const { outputs } = await executor.call('append', inputsOf(rows, slots));
    assert.deepEqual(outputs, {});
  };
  const recall = async (entry: Int32Array): Promise<Float32Array> => {
    const { found } = (await executor.call('recall', { entry })).outputs;
    assert(found instanceof Float32Array);
    return found;
  };
  assert.deepEqual(await recall(ALL), wanted, 'a state is zero at first');
  // In the small bucket, in the large one, into rows that hold something, and beyond the rows in use.
  await append([3, 0], 1);
  await append([8, 3, -1, 5, 1], 10);
  assert.deepEqual(await recall(ALL), wanted);
  await append([], 100);
  await append(
    Array.from({ length: 40 }, (_, i) => (i < STATE_ROWS ? i : -1)),
    1000,
  );
  assert.deepEqual(await recall(ALL), wanted);
  assert.deepEqual(
    await recall(Int32Array.of(8, 8, 0)),
    Float32Array.from([8, 8, 0].flatMap((row) => [...wanted.subarray(row * WIDTH, (row + 1) * WIDTH)])),
  );
  // Requested at once, executed in the order of the calls.
  const both = [append([2], 7), recall(Int32Array.of(2)), append([2], 9), recall(Int32Array.of(2))];
  const expected = wanted.slice(2 * WIDTH, 3 * WIDTH);
  const found = await Promise.all(both);
  assert.deepEqual(found[3], expected);
  assert.deepEqual(
    found[1],
    expected.map((value, c) => value - (9 + c / 4)),
  );

  const refused = (name: string, inputs: Parameters<Executor['call']>[1], message: RegExp): Promise<void> =>
    assert.rejects(() => executor.call(name, inputs), message);
  await refused('score', {}, /no function score; there is append, recall/);
  await refused('recall', { entry: Int32Array.of(STATE_ROWS) }, /entry\[0\] = 9 lies outside 0 to 8/);
  await refused('recall', { entry: Int32Array.of(-1) }, /entry\[0\] = -1 lies outside/);
  await refused('recall', { entry: new Float32Array(1) }, /recall takes entry, an array of i32/);
  await refused('recall', { entry: Int32Array.of(0), row: Int32Array.of(0) }, /recall takes no row/);
  await refused('recall', { entry: new Int32Array(17) }, /No bucket holds 17 Entries; the largest has 16 Entries/);
  await refused(
    'append',
    { ...inputsOf(rowsOf(2, 0), [0, 1]), slot: Int32Array.of(0) },
    /slot has 1 entries, not 2, by rows/,
  );
  await refused('append', inputsOf(rowsOf(1, 0).subarray(1), [0]), /rows has 4 entries, not 0/);
  await refused('append', inputsOf(rowsOf(1, 0), [-2]), /slot\[0\] = -2 lies outside -1 to 8/);
  await refused('append', inputsOf(rowsOf(2, 0), [4, 4]), /slot\[1\] = 4, as slot\[0\] is already/);
  await refused('append', { slot: Int32Array.of(0), old: Int32Array.of(0) }, /append takes rows, an array of f32/);

  // A profile and a search are calls.
  const { bucket, launches } = await executor.profile('append', inputsOf(rowsOf(5, 0), [0, 1, 2, 3, 4]));
  assert.deepEqual(bucket.extents, { Runs: 40 });
  assert.deepEqual(
    launches.map(({ path }) => path),
    ['memory.add', 'memory.append'],
  );
  assert.equal(await executor.diagnose('recall', { entry: ALL }), undefined);
  // A value in a state that is not finite is found by the function that reads it. The call that wrote it is not
  // repeated.
  const bad = rowsOf(1, 0).fill(Infinity, 2, 3);
  await executor.call('append', inputsOf(bad, [4]));
  await assert.rejects(
    () => executor.call('recall', { entry: Int32Array.of(1, 4) }),
    (error: unknown) =>
      error instanceof Error && error.name === 'NonFiniteError' && 'where' in error && error.where === 'memory.recall',
  );
  assert.deepEqual(await executor.diagnose('recall', { entry: Int32Array.of(1, 4) }), {
    path: 'memory.recall',
    buffer: 'found',
    row: 1,
    column: 2,
  });
}

// A state that is reserved: memory comes and goes while the others' values stay.

/** Bytes of a row: 32 columns, as narrow ones are padded. */
export const ROW_BYTES = 32 * 4;

/** Of the plan with RESERVED_ROWS rows, opened with no memory behind them. The scale is 1. */
export async function checkResize(executor: Executor): Promise<void> {
  const piece = executor.pieces.tokens;
  const append = (slot: number, value: number): Promise<unknown> =>
    executor.call('append', inputsOf(new Float32Array(WIDTH).fill(value), [slot]));
  const recall = async (entry: number): Promise<number> => {
    const { found } = (await executor.call('recall', { entry: Int32Array.of(entry) })).outputs;
    return found![0]!;
  };
  const refused = (entry: number, most: number): Promise<void> =>
    assert.rejects(() => recall(entry), new RegExp(`entry\\[0\\] = ${entry} lies outside 0 to ${most}\\.`));

  await assert.rejects(() => recall(0), /entry\[0\] = 0 lies outside/);
  assert.equal(await executor.resize(5 * piece), 5 * piece);
  assert.equal(await recall(5 * piece - 1), 0, 'new memory is zero');
  await refused(5 * piece, 5 * piece - 1);
  await append(0, 1);
  await append(4 * piece, 2);

  // What goes is refused at once, in whatever order memory changes; what is asked for before it goes still has it.
  const last = recall(4 * piece);
  const smaller = executor.resize(2 * piece);
  await refused(2 * piece, 2 * piece - 1);
  const larger = executor.resize(5 * piece);
  await refused(2 * piece, 2 * piece - 1);
  assert.equal(await last, 2);
  assert.deepEqual([await smaller, await larger], [2 * piece, 5 * piece]);
  assert.equal(await recall(0), 1, 'what stays keeps its values');
  assert.equal(await recall(4 * piece), 0, 'what comes back is zero');

  // A search looks at no rows that are not there.
  await append(1, 3);
  assert.equal(await executor.diagnose('append', inputsOf(new Float32Array(WIDTH).fill(1), [2])), undefined);
  assert.equal(await executor.resize(0), 0);
  await assert.rejects(() => append(0, 1), /slot\[0\] = 0 lies outside/);
  await assert.rejects(() => executor.resize(-1), /-1 is no number of tokens/);
  assert.equal(await executor.resize(1), 1);
}
