/**
 * A depth-first walk over the tree of all paths, cut into calls anywhere. Keys and values of the path on which the walk
 * stands stay in a cache from call to call, so every common beginning is computed once, however many calls its
 * continuations take: the shots of a task, or a context with many choices. The cache holds one path and one call.
 * Recurrent layers go on from rows of states, which calls leave where paths will go on (walkStates.ts).
 */
import { shuffled } from './packing.js';
import { type Before, CacheRows, NOTHING, PathCall } from './pathCall.js';
import type { OrderedPaths } from './pathOrder.js';
import type { WalkedBatch, WalkLimits } from './scorer.js';
import { commonInputs, type Path, pathLength, type ScoredToken, tokenAt } from './tree.js';
import { Continuations, type StateNode, StateRows } from './walkStates.js';

/** A token on the walk's path, and its row of the cache. */
interface Node extends StateNode {
  readonly slot: number;
}

/**
 * Beginnings of fewer tokens are not shared where layers are recurrent: they would make one tree of all that a call
 * computes, and states of trees go from token to token side by side.
 */
const LEAST_OF_STATES = 6;

export class Walk {
  private readonly limits: WalkLimits;
  private previous: Path | undefined;
  private readonly path: Node[] = [];
  private readonly rows: CacheRows;
  /** Rows of nodes that the walk has left. The call in progress may still read them. */
  private left: number[] = [];
  private call = 0;
  private current: PathCall;
  private readonly rowOf = new Map<string, number>();
  /** First token of the run that is growing: tokens that continue each other. */
  private runStart = 0;
  /** Of a model with recurrent layers. */
  private readonly stateRows: StateRows | undefined;
  /** Where the paths that were taken together go on, and which of them is being walked. */
  private continuations: Continuations | undefined;
  private index = 0;

  constructor(limits: WalkLimits) {
    this.limits = limits;
    this.rows = new CacheRows(limits.cacheRows);
    if (limits.states !== undefined) this.stateRows = new StateRows(limits.states);
    this.current = this.newCall();
  }

  /**
   * Takes paths one after another, and keeps what each has in common with the one before. Yields the calls that they
   * fill.
   */
  *take(paths: readonly Path[]): Generator<WalkedBatch> {
    const shared = paths.map((path, i) => this.sharedWith(paths[i - 1] ?? this.previous, path));
    if (this.stateRows !== undefined) this.continuations = new Continuations(paths, shared);
    for (const [i, path] of paths.entries()) {
      this.index = i;
      yield* this.takeOne(path, shared[i]!);
    }
    this.previous = paths.at(-1) ?? this.previous;
  }

  private sharedWith(before: Path | undefined, path: Path): number {
    const shared = before === undefined ? 0 : commonInputs(before, path);
    return this.stateRows !== undefined && shared < LEAST_OF_STATES ? 0 : shared;
  }

  private *takeOne(path: Path, shared: number): Generator<WalkedBatch> {
    this.leave(shared);
    const { context, continuation, question, choice } = path;
    const firstScored = context.length - 1;
    const score = (depth: number): void => {
      const index = depth - firstScored;
      this.score(this.path[depth]!.place, continuation[index]!, { question, choice, index });
    };
    let depth = Math.min(shared, firstScored);
    while (depth < shared && this.path[depth]!.call === this.call && this.current.row.length < this.limits.rows)
      score(depth++);
    // A token that an earlier call computed is computed again, with those after it: its distribution is gone.
    if (depth < shared && depth >= firstScored) this.leave(depth);
    if (this.path.length < pathLength(path)) {
      if (this.wouldFillCall()) yield this.finish();
      this.leaveToStates();
    }
    for (depth = this.path.length; depth < pathLength(path); depth++) {
      const isScored = depth >= firstScored;
      if (isScored && this.current.row.length >= this.limits.rows) yield this.finish();
      yield* this.visit(depth, tokenAt(path, depth));
      if (isScored) score(depth);
    }
  }

  /** The last call; undefined where nothing is left. */
  end(): WalkedBatch | undefined {
    this.leave(0);
    return this.current.tokens.length === 0 ? undefined : this.finish();
  }

  /** Goes back to the first `depth` tokens of the path. */
  private leave(depth: number): void {
    if (depth >= this.path.length) return;
    this.endRun();
    for (const node of this.path.splice(depth)) this.left.push(node.slot);
    this.runStart = this.current.tokens.length;
  }

  /** Goes back to where the states are known that the next token goes on from. */
  private leaveToStates(): void {
    if (this.stateRows === undefined) return;
    const known = this.path.findLastIndex(({ call, stateRow }) => call === this.call || stateRow >= 0);
    this.leave(known + 1);
  }

  /**
   * Whether all that the call has room for would be one tree, whose states go from token to token: what follows a long
   * beginning, such as the shots of many questions. In the next call they are trees of their own behind a row.
   */
  private wouldFillCall(): boolean {
    const last = this.path.at(-1);
    if (this.continuations === undefined || last?.call !== this.call) return false;
    const room = this.limits.tokens - this.current.tokens.length;
    return this.continuations.tokensBehind(this.index, this.path.length) >= room;
  }

  /** What the next token goes on from. */
  private before(): Before {
    const last = this.path.at(-1);
    if (last === undefined) return NOTHING;
    return last.call === this.call ? { parent: last.place, from: -1 } : { parent: -1, from: last.stateRow };
  }

  private mayReadStates(): boolean {
    const { from } = this.before();
    return from < 0 || this.stateRows!.mayRead(from);
  }

  /** Computes the token at `depth`, all before which are on the path. */
  private *visit(depth: number, token: number): Generator<WalkedBatch> {
    const isNewRun = this.runStart === this.current.tokens.length;
    const keys = this.current.key.length + (isNewRun ? 0 : this.path.length) + 1 + (isNewRun ? depth : 0);
    const isFull = this.current.tokens.length >= this.limits.tokens || keys > this.limits.keys || this.rows.free === 0;
    if (isFull || !this.mayReadStates()) yield this.finish();
    const slot = this.rows.take();
    if (slot === undefined)
      throw new RangeError(`a path of ${depth + 1} tokens needs more than ${this.limits.cacheRows} rows of cache`);
    const before = this.before();
    if (before.from >= 0) this.stateRows!.read(before.from);
    this.path.push({ slot, call: this.call, place: this.current.tokens.length, stateRow: -1 });
    this.current.add(token, depth, slot, before);
  }

  private score(place: number, target: number, of: Omit<ScoredToken, 'row'>): void {
    const pair = `${place} ${target}`;
    let row = this.rowOf.get(pair);
    if (row === undefined) {
      row = this.current.row.length;
      this.rowOf.set(pair, row);
      this.current.row.push(place);
      this.current.target.push(target);
    }
    this.current.scored.push({ row, ...of });
  }

  /** The tokens since `runStart` see the path as it is now. */
  private endRun(): void {
    if (this.runStart === this.current.tokens.length) return;
    const begin = this.current.key.length;
    for (const { slot } of this.path) this.current.key.push(slot);
    while (this.current.begin.length < this.current.tokens.length) this.current.begin.push(begin);
    this.runStart = this.current.tokens.length;
  }

  private finish(): WalkedBatch {
    this.endRun();
    this.keepStates();
    const walked = this.current.batch();
    this.rows.giveBack(this.left);
    this.left = [];
    this.current = this.newCall();
    this.rowOf.clear();
    this.runStart = 0;
    this.call++;
    return walked;
  }

  /** The states that later calls go on from go to rows. */
  private keepStates(): void {
    const { path, stateRows } = this;
    if (stateRows === undefined) return;
    const depths = this.continuations?.depths(this.index, path.length) ?? [];
    for (const { place, stateRow } of stateRows.endCall(path, depths, this.call))
      this.current.keepStates(place, stateRow);
  }

  private newCall(): PathCall {
    return new PathCall(this.stateRows !== undefined);
  }
}

/** The calls that score every token of every choice, in the order in which they must be computed. */
export function* walk(paths: readonly Path[], limits: WalkLimits): Generator<WalkedBatch> {
  const current = new Walk(limits);
  yield* current.take(paths);
  const last = current.end();
  if (last !== undefined) yield last;
}

/** What walks over a question set would compute, without a model: exact for one device, and for equally fast ones. */

export interface WalkPlan {
  /** Tokens of each device, the shared beginnings that it computes for itself included. */
  readonly tokens: readonly number[];
  readonly calls: number;
}

/** Each subtree goes to the device that has computed the least so far. */
export function planWalks(paths: OrderedPaths, limits: WalkLimits, lanes = 1): WalkPlan {
  const walks = Array.from({ length: lanes }, () => new Walk(limits));
  const tokens = walks.map(() => 0);
  let calls = 0;
  const count = (lane: number, walked: Iterable<WalkedBatch>): void => {
    for (const { batch } of walked) {
      tokens[lane]! += batch.tokens.length;
      calls++;
    }
  };
  const taken = walks.map(() => 0);
  for (const subtree of cutSubtrees(paths, lanes)) {
    const lane = taken.indexOf(Math.min(...taken));
    taken[lane]! += subtree.tokens;
    count(lane, walks[lane]!.take(subtree.paths));
  }
  walks.forEach((walk, lane) => {
    const last = walk.end();
    if (last !== undefined) count(lane, [last]);
  });
  return { tokens, calls };
}

/** Cuts all paths, in lexicographic order, into subtrees that can be walked in any order and on any device. */

/** Paths that are walked one after another. Its first one is computed from its first token. */
export interface Subtree {
  readonly paths: readonly Path[];
  /** Tokens where every common beginning within is computed once. */
  readonly tokens: number;
}

/** Devices that share the work take the largest subtree first, and finish together if there are a few for each. */
const SUBTREES_PER_LANE = 4;

/** Subtrees in the order in which devices take them: several take the largest first, one takes them shuffled. */
export function cutSubtrees(ordered: OrderedPaths, lanes = 1): Subtree[] {
  const cutter = new Cutter(ordered.paths.map(pathLength), ordered.shared);
  const most = lanes === 1 ? Infinity : cutter.tokens / (lanes * SUBTREES_PER_LANE);
  const subtrees = cutter
    .cheapRuns()
    .flatMap((run) => [...cutter.halved(run, most)])
    .map((run): Subtree => ({ paths: ordered.paths.slice(run.from, run.to), tokens: cutter.tokensOf(run) }));
  return lanes === 1 ? shuffled(subtrees) : subtrees.sort((a, b) => b.tokens - a.tokens);
}

/** Cuts an order of paths into runs, where neighbours have little in common. */

/**
 * Cuts between paths that have little in common cost at most this part of all tokens. They let questions be scored in
 * shuffled order, so that running accuracy and time left describe all of them.
 */
const CHEAP_CUTS = 0.005;
/** Entries [from, to) of an order. */
export interface Run {
  readonly from: number;
  readonly to: number;
}

/** Cuts a list of paths, or of groups of them, each of which has a beginning in common with the one before. */
export class Cutter {
  /** i32[n] */
  private readonly shared: Int32Array;
  /** f64[n + 1] tokens of all entries before each, common beginnings once. */
  private readonly before: Float64Array;

  /** `sizes`: tokens of each entry; `shared`: those that it has in common with the one before, 0 for the first. */
  constructor(sizes: readonly number[], shared: Int32Array) {
    this.shared = shared;
    this.before = new Float64Array(sizes.length + 1);
    sizes.forEach((size, i) => (this.before[i + 1] = this.before[i]! + size - shared[i]!));
  }

  get tokens(): number {
    return this.before.at(-1)!;
  }

  tokensOf({ from, to }: Run): number {
    return this.before[to]! - this.before[from]! + (this.shared[from] ?? 0);
  }

  /** The order in runs, cut where neighbours have the least in common. */
  cheapRuns(): Run[] {
    const { shared } = this;
    const gaps = Array.from({ length: Math.max(0, shared.length - 1) }, (_, i) => i + 1);
    let left = CHEAP_CUTS * this.tokens;
    const cuts = gaps
      .sort((a, b) => shared[a]! - shared[b]!)
      .filter((gap) => (left -= shared[gap]!) >= 0)
      .sort((a, b) => a - b);
    return [0, ...cuts].map((from, i) => ({ from, to: cuts[i] ?? shared.length })).filter(({ from, to }) => to > from);
  }

  /** Halves what is longer than `most`, each time where the least is lost in its middle half. */
  *halved(run: Run, most: number): Generator<Run> {
    const { shared } = this;
    const tokens = this.tokensOf(run);
    const start = this.before[run.from]!;
    let cut: number | undefined;
    for (let gap = run.from + 1; gap < run.to; gap++) {
      const at = (this.before[gap]! - start) / tokens;
      if (at < 0.25 || at > 0.75) continue;
      if (cut === undefined || shared[gap]! < shared[cut]!) cut = gap;
    }
    // A cut that computes much again saves no time.
    if (tokens <= most || cut === undefined || shared[cut]! * 4 > tokens) return yield run;
    yield* this.halved({ from: run.from, to: cut }, most);
    yield* this.halved({ from: cut, to: run.to }, most);
  }
}
