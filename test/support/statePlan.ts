/**
 * Two functions over one state and one weight, compiled from their graphs: `append` adds scaled rows to rows of the
 * state, `recall` reads rows of it back. Their extents are neither called T nor R, and each function has its own.
 */
import type { Scheduling } from '../../codegen/scheduling.js';
import { GraphBuilder, type Graph, type Value } from '../../ir/graph/graph.js';
import type { Bucket, Plan } from '../../ir/plan.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { planOf } from './planOf.js';

export const STATE_ROWS = 9;
export const WIDTH = 5;
const STATE = 'kept';

const stateOf = (b: GraphBuilder): Value => b.state(STATE, 'f32', [STATE_ROWS, WIDTH]);
const scaleOf = (b: GraphBuilder): Value => b.weight('scale', 'f32', [WIDTH]);

/** append(rows[Runs], slot[Runs], old[Runs]; kept): kept[slot[i]] = kept[old[i]] + rows[i] · scale. */
function appendGraph(): Graph {
  const b = new GraphBuilder('append', [{ name: 'Runs', counts: 'runs' }]);
  const rows = b.param('rows', 'f32', ['Runs', WIDTH]);
  const slot = b.param('slot', 'i32', ['Runs'], { kind: 'slot', state: STATE });
  const old = b.param('old', 'i32', ['Runs'], { kind: 'entry', state: STATE });
  const kept = stateOf(b);
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
function recallGraph(): Graph {
  const b = new GraphBuilder('recall', [{ name: 'Entries', counts: 'entries' }]);
  const entry = b.param('entry', 'i32', ['Entries'], { kind: 'entry', state: STATE });
  const kept = stateOf(b);
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
export const statePlan = <S, F>(scheduling: Pick<Scheduling<S, F>, 'default'>, facts: F): Plan<S> =>
  planOf(
    [appendGraph(), recallGraph()],
    { append: buckets('Runs', [4, 40]), recall: buckets('Entries', [16]) },
    scheduling,
    facts,
  );

export const scaleTensor = (factor: number): ReadonlyMap<string, TensorSource> =>
  new Map([['scale', { kind: 'constant', format: 'f32', shape: [WIDTH], value: factor }]]);
