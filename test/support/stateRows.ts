/**
 * Rows of recurrent states of a made-up model that is walked: each has what was computed along a path, and its length.
 * A row that is stale, of another path, or read by one tree and written by another is an error.
 */
import type { PathBatch } from '../../evaluate/scorer.js';

interface State<V> {
  readonly value: V;
  readonly length: number;
}

export class StateMemory<V> {
  private readonly count: number;
  private readonly zero: V;
  private readonly extend: (before: V, token: number, depth: number) => V;
  private readonly rows = new Map<number, State<V>>();

  constructor(count: number, zero: V, extend: StateMemory<V>['extend']) {
    this.count = count;
    this.zero = zero;
    this.extend = extend;
  }

  /** What is behind each token of a call. */
  call({ tokens, position, states }: Pick<PathBatch, 'tokens' | 'position' | 'states'>): readonly V[] {
    if (states === undefined) throw new Error('a call without states');
    const { parent, from, token, to } = states;
    const behind: State<V>[] = [];
    /** The tree of each token, and of each row that is read. */
    const trees: number[] = [];
    const readers = new Map<number, number>();
    /** Tokens from the first of a tree to the last one that was computed. */
    let path: number[] = [];
    tokens.forEach((own, t) => {
      const [before, row] = [parent[t]!, from[t]!];
      if (before >= 0) {
        if (!path.includes(before) || row >= 0) throw new Error(`token ${t} is out of depth-first order`);
        path = path.slice(0, path.indexOf(before) + 1);
      } else path = [];
      trees.push(before < 0 ? t : trees[before]!);
      if (row >= 0) {
        if (readers.has(row)) readers.set(row, -1);
        else readers.set(row, t);
      }
      const state = before >= 0 ? behind[before]! : row < 0 ? { value: this.zero, length: 0 } : this.rows.get(row);
      if (state === undefined) throw new Error(`token ${t} goes on from row ${row}, which nobody has written`);
      if (state.length !== position[t]) throw new Error(`token ${t} at ${position[t]} goes on behind ${state.length}`);
      behind.push({ value: this.extend(state.value, own, state.length), length: state.length + 1 });
      path.push(t);
    });
    if (new Set(to).size !== to.length) throw new Error('a row is written twice');
    token.forEach((t, i) => {
      const row = to[i]!;
      if (!(t > (token[i - 1] ?? -1) && t < tokens.length && row >= 0 && row < this.count))
        throw new Error(`states behind token ${t} go to row ${row}`);
      if (readers.has(row) && readers.get(row) !== trees[t]) throw new Error(`row ${row} is read, and written`);
      this.rows.set(row, behind[t]!);
    });
    return behind.map(({ value }) => value);
  }
}
