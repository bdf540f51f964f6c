/**
 * A depth-first walk over the tree of all paths, cut into calls anywhere. Keys and values of the path on which the walk
 * stands stay in a cache from call to call, so every common beginning is computed once, however many calls its
 * continuations take: the shots of a task, or a context with many choices. The cache holds one path and one call.
 */
import { CacheRows } from './cacheRows.js';
import { commonInputs, type Path, pathLength, type ScoredToken, tokenAt } from './tree.js';

/** Inputs of a call that continues paths (the function `step`), by name. */
export interface PathBatch {
  /** i32[T] token ids. */
  readonly tokens: Int32Array;
  /** i32[T] depth of each token on its path. */
  readonly position: Int32Array;
  /** i32[T] row of the cache that a token's key and value go to. */
  readonly slot: Int32Array;
  /** i32[T] where the list of a token's path begins in `key`. */
  readonly begin: Int32Array;
  /** i32[C] rows of the cache: paths in order of position, one behind another. */
  readonly key: Int32Array;
  /** i32[R] token whose next-token distribution is scored. */
  readonly row: Int32Array;
  /** i32[R] the next token whose log-probability is computed. */
  readonly target: Int32Array;
}

export interface WalkedBatch {
  readonly batch: PathBatch;
  readonly scored: readonly ScoredToken[];
}

export interface WalkLimits {
  /** Most new tokens, keys and rows of a call. */
  readonly tokens: number;
  readonly keys: number;
  readonly rows: number;
  /** Rows of the cache: at least those of the longest path and one more. */
  readonly cacheRows: number;
}

/** A token on the walk's path: its row of the cache, and the call and place where it was computed. */
interface Node {
  readonly slot: number;
  readonly call: number;
  readonly place: number;
}

export class Walk {
  private readonly limits: WalkLimits;
  private previous: Path | undefined;
  private readonly path: Node[] = [];
  private readonly rows: CacheRows;
  /** Rows of nodes that the walk has left. The call in progress may still read them. */
  private left: number[] = [];
  private call = 0;
  private tokens: number[] = [];
  private position: number[] = [];
  private slot: number[] = [];
  private begin: number[] = [];
  private key: number[] = [];
  private row: number[] = [];
  private target: number[] = [];
  private scored: ScoredToken[] = [];
  private readonly rowOf = new Map<string, number>();
  /** First token of the run that is growing: tokens that continue each other. */
  private runStart = 0;

  constructor(limits: WalkLimits) {
    this.limits = limits;
    this.rows = new CacheRows(limits.cacheRows);
  }

  /** Takes a path, and keeps what it has in common with the one before. Yields the calls that it fills. */
  *take(path: Path): Generator<WalkedBatch> {
    const shared = this.previous === undefined ? 0 : commonInputs(this.previous, path);
    this.previous = path;
    this.leave(shared);
    const { context, continuation, question, choice } = path;
    const firstScored = context.length - 1;
    const score = (depth: number): void => {
      const index = depth - firstScored;
      this.score(this.path[depth]!.place, continuation[index]!, { question, choice, index });
    };
    let depth = Math.min(shared, firstScored);
    while (depth < shared && this.path[depth]!.call === this.call && this.row.length < this.limits.rows) score(depth++);
    // A token that an earlier call computed is computed again, with those after it: its distribution is gone.
    if (depth < shared && depth >= firstScored) this.leave(depth);
    for (depth = this.path.length; depth < pathLength(path); depth++) {
      const isScored = depth >= firstScored;
      if (isScored && this.row.length >= this.limits.rows) yield this.finish();
      yield* this.visit(depth, tokenAt(path, depth));
      if (isScored) score(depth);
    }
  }

  /** The last call; undefined where nothing is left. */
  end(): WalkedBatch | undefined {
    this.leave(0);
    return this.tokens.length === 0 ? undefined : this.finish();
  }

  /** Goes back to the first `depth` tokens of the path. */
  private leave(depth: number): void {
    if (depth >= this.path.length) return;
    this.endRun();
    for (const node of this.path.splice(depth)) this.left.push(node.slot);
    this.runStart = this.tokens.length;
  }

  /** Computes the token at `depth`, all before which are on the path. */
  private *visit(depth: number, token: number): Generator<WalkedBatch> {
    const isNewRun = this.runStart === this.tokens.length;
    const keys = this.key.length + (isNewRun ? 0 : this.path.length) + 1 + (isNewRun ? depth : 0);
    if (this.tokens.length >= this.limits.tokens || keys > this.limits.keys || this.rows.free === 0)
      yield this.finish();
    const slot = this.rows.take();
    if (slot === undefined)
      throw new RangeError(`a path of ${depth + 1} tokens needs more than ${this.limits.cacheRows} rows of cache`);
    this.path.push({ slot, call: this.call, place: this.tokens.length });
    this.tokens.push(token);
    this.position.push(depth);
    this.slot.push(slot);
  }

  private score(place: number, target: number, of: Omit<ScoredToken, 'row'>): void {
    const pair = `${place} ${target}`;
    let row = this.rowOf.get(pair);
    if (row === undefined) {
      row = this.row.length;
      this.rowOf.set(pair, row);
      this.row.push(place);
      this.target.push(target);
    }
    this.scored.push({ row, ...of });
  }

  /** The tokens since `runStart` see the path as it is now. */
  private endRun(): void {
    if (this.runStart === this.tokens.length) return;
    const begin = this.key.length;
    for (const { slot } of this.path) this.key.push(slot);
    while (this.begin.length < this.tokens.length) this.begin.push(begin);
    this.runStart = this.tokens.length;
  }

  private finish(): WalkedBatch {
    this.endRun();
    const batch = {
      tokens: Int32Array.from(this.tokens),
      position: Int32Array.from(this.position),
      slot: Int32Array.from(this.slot),
      begin: Int32Array.from(this.begin),
      key: Int32Array.from(this.key),
      row: Int32Array.from(this.row),
      target: Int32Array.from(this.target),
    };
    const { scored } = this;
    this.rows.giveBack(this.left);
    [this.left, this.tokens, this.position, this.slot] = [[], [], [], []];
    [this.begin, this.key, this.row, this.target, this.scored] = [[], [], [], [], []];
    this.rowOf.clear();
    this.runStart = 0;
    this.call++;
    return { batch, scored };
  }
}

/** The calls that score every token of every choice, in the order in which they must be computed. */
export function* walk(paths: Iterable<Path>, limits: WalkLimits): Generator<WalkedBatch> {
  const current = new Walk(limits);
  for (const path of paths) yield* current.take(path);
  const last = current.end();
  if (last !== undefined) yield last;
}
