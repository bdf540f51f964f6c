/**
 * Which tokens of which sequences a call takes. Sequences that run come first, in order of priority and arrival: one
 * new token each, or the next piece of a prompt; then sequences that wait. Where no page is left, a sequence that is
 * paused gives its pages back, else the last of the lowest priority, and is computed again later.
 */
import { PAGE_TOKENS, type PagePool } from './pages.js';
import { type Draw, type Sequence, UNREAD } from './sequence.js';
import { filterInputs, type FilterInputs } from './tokenEntries.js';

export interface StepLimits {
  /** Most new tokens of a call. */
  readonly tokens: number;
  /** Most keys of a call: the lengths of all paths. */
  readonly keys: number;
  /** Most rows of a call. Default: as many as tokens. */
  readonly rows?: number;
  /** Most new tokens of a call in which a sequence gets its next token, which waits for all. Default: `tokens`. */
  readonly besideTokens?: number;
  /** Rows whose drawn token a call keeps for the next one, which need not wait for the host. Default: none. */
  readonly keptRows?: number;
  /** Calls that keep all stages of a pipeline busy, each with sequences of its own. Default: 1. */
  readonly groups?: number;
  /** Most filtered rows, and entries of their lists. Default: none, and the model takes no filters. */
  readonly filtered?: number;
  readonly entries?: number;
}

/** Calls of fewer tokens than this take the time of reading the weights: dividing them further gains nothing. */
const MIN_SHARE = 512;

export class Scheduler {
  readonly running: Sequence[] = [];
  readonly waiting: Sequence[] = [];
  /** Sequences that gave their pages back because others needed them. */
  preemptions = 0;
  private readonly pool: PagePool;
  private readonly limits: StepLimits;

  constructor(pool: PagePool, limits: StepLimits) {
    this.pool = pool;
    this.limits = limits;
  }

  /** The sequence must fit the pool and a call where it is alone. */
  add(sequence: Sequence): void {
    insert(this.waiting, sequence);
  }

  /** The sequence is done, or given up. */
  remove(sequence: Sequence): void {
    sequence.drop(this.pool);
    for (const list of [this.running, this.waiting]) {
      const at = list.indexOf(sequence);
      if (at >= 0) list.splice(at, 1);
    }
  }

  /** The next call; undefined where nothing is left to do. */
  next(): Step | undefined {
    const pieces: SequenceChunk[] = [];
    const isWriting = this.running.some(
      ({ computed, promptLength, pending, isPaused }) => computed >= promptLength && pending > 0 && !isPaused,
    );
    const share = this.share();
    const beside = isWriting ? (this.limits.besideTokens ?? Infinity) : Infinity;
    const budget = Math.min(beside, share.tokens, this.limits.tokens);
    let tokens = 0;
    let keys = 0;
    let rows = 0;
    let writing = 0;
    const { filtered: maxFiltered = 0, entries: maxEntries = 0 } = this.limits;
    let [filtered, entries] = [0, 0];
    /** Pages that this call fills: whoever needs them too waits for them. */
    const filling = new Set<string>();
    const take = (sequence: Sequence): boolean => {
      const isNext = sequence.computed >= sequence.promptLength;
      const most = isNext && writing >= share.sequences ? 0 : Math.min(sequence.pending, budget - tokens);
      const rowsLeft = (this.limits.rows ?? Infinity) - rows;
      const asked = rowsOf(sequence, sequence.computed, sequence.computed + most);
      const count = asked.length <= rowsLeft ? most : asked[rowsLeft]! - sequence.computed;
      const to = sequence.computed + count;
      if (count <= 0 || keys + to > this.limits.keys) return false;
      const isFiltered = sequence.isFiltered && to === sequence.tokens.length;
      const listed = isFiltered ? sequence.entryCount : 0;
      const hasRoom = filtered < maxFiltered && (filtered === 0 || entries + listed <= maxEntries);
      if (isFiltered && !hasRoom) return false;
      if (!this.reserve(sequence, to, pieces)) return false;
      pieces.push({ sequence, from: sequence.computed, to });
      for (let i = Math.floor(sequence.computed / PAGE_TOKENS); (i + 1) * PAGE_TOKENS <= to; i++)
        filling.add(sequence.content(i) ?? '');
      filtered += isFiltered ? 1 : 0;
      entries += listed;
      tokens += count;
      rows += Math.min(asked.length, rowsLeft);
      keys += to;
      if (isNext) writing++;
      return true;
    };
    for (const sequence of [...this.running]) if (!sequence.isPaused && this.running.includes(sequence)) take(sequence);
    const preempted = this.preemptions;
    for (const sequence of [...this.waiting]) {
      if (tokens >= budget || this.preemptions > preempted) break;
      if (sequence.awaited > 0 || sequence.isPaused) continue;
      sequence.adopt(this.pool);
      const next = sequence.content(Math.floor(sequence.computed / PAGE_TOKENS));
      if ((next !== undefined && filling.has(next)) || !this.mayAdmit(sequence)) {
        sequence.drop(this.pool);
        continue;
      }
      const { computed } = sequence;
      if (!take(sequence)) {
        sequence.drop(this.pool);
        break;
      }
      sequence.found ||= computed;
      this.waiting.splice(this.waiting.indexOf(sequence), 1);
      insert(this.running, sequence);
    }
    if (pieces.length === 0) return undefined;
    const step = { pieces, ...arraysOf(pieces, this.limits) };
    // Calls are executed in order, so that a later one may read what this one writes.
    for (const { sequence, to } of pieces) {
      sequence.computed = to;
      sequence.publish(this.pool);
    }
    for (const sequence of askedIn(step)) sequence.awaited++;
    return step;
  }

  /** What a call may take, so that as much is left for the other stages of a pipeline. */
  private share(): { readonly tokens: number; readonly sequences: number } {
    const { groups = 1 } = this.limits;
    if (groups === 1) return { tokens: Infinity, sequences: Infinity };
    const pending = [...this.running, ...this.waiting].reduce((sum, each) => sum + each.pending, 0);
    const writing = this.running.filter(({ computed, promptLength }) => computed >= promptLength).length;
    return {
      tokens: Math.max(MIN_SHARE, Math.ceil(pending / groups)),
      sequences: Math.max(1, Math.ceil(writing / groups)),
    };
  }

  /** The call has begun: the tokens that it draws can be used by the next one, unread. */
  foresee({ asked }: Step): void {
    const { keptRows = 0 } = this.limits;
    asked.forEach(({ sequence, kind }, row) => {
      if (kind === 'next' && row < keptRows && sequence.isForeseen) sequence.foresee(row);
    });
  }

  /** The tokens that were drawn have been read. */
  read(step: Step): void {
    for (const sequence of askedIn(step)) sequence.awaited--;
    for (const { sequence } of step.pieces) if (this.running.includes(sequence)) sequence.publish(this.pool);
  }

  /** The call failed. Calls that were planned after it must have been taken back before. */
  rewind(step: Step): void {
    for (const sequence of askedIn(step)) sequence.awaited--;
    for (const { sequence, from } of step.pieces) sequence.rewind(from);
  }

  /** The memory of the device is lost, or nobody knows what is in it: everything is computed again. */
  reset(): void {
    for (const sequence of this.running.splice(0).reverse()) insert(this.waiting, sequence, true);
    for (const sequence of this.waiting) {
      sequence.drop(this.pool);
      sequence.rewind(0);
      sequence.awaited = 0;
    }
    this.pool.clear();
  }

  /** The sequence begins again, as the first of those that wait. */
  restart(sequence: Sequence): void {
    this.remove(sequence);
    sequence.rewind(0);
    insert(this.waiting, sequence, true);
  }

  /** Admission: pages for the whole sequence, and for the next token where one will follow. */
  private mayAdmit(sequence: Sequence): boolean {
    const next = sequence.tokens.length < sequence.longest ? 1 : 0;
    const needed = Math.ceil((sequence.pending + next) / PAGE_TOKENS);
    while (needed > this.pool.available) {
      const victim = this.running.findLast(({ isPaused }) => isPaused);
      if (victim === undefined) return false;
      this.preempt(victim);
    }
    return true;
  }

  /** Pages for the first `length` tokens, taken from the sequence that came last where none is left. */
  private reserve(sequence: Sequence, length: number, pieces: readonly SequenceChunk[]): boolean {
    while (!sequence.reserve(length, this.pool)) {
      const victim = this.running.findLast(({ isPaused }) => isPaused) ?? this.running.at(-1);
      if (victim === undefined || victim === sequence || pieces.some((piece) => piece.sequence === victim))
        return false;
      this.preempt(victim);
    }
    return true;
  }

  /** The sequence gives its pages back, to be computed again. */
  private preempt(victim: Sequence): void {
    this.running.splice(this.running.indexOf(victim), 1);
    victim.drop(this.pool);
    insert(this.waiting, victim, true);
    this.preemptions++;
  }
}

/** Puts a sequence behind those that go before it, or before others of its priority. */
function insert(list: Sequence[], sequence: Sequence, isFirst = false): void {
  const { priority } = sequence;
  const at = list.findIndex((each) => (isFirst ? each.priority >= priority : each.priority > priority));
  list.splice(at < 0 ? list.length : at, 0, sequence);
}

/** The sequences that a call will say something about. */
const askedIn = ({ asked }: Step): ReadonlySet<Sequence> => new Set(asked.map(({ sequence }) => sequence));

/** A call's arrays: what the function `step` reads for pieces of sequences. */

/** Inputs of the function `step`, by name. Those of filtered rows are there where the model chooses from logits. */
export interface StepInputs extends Partial<FilterInputs> {
  /** New tokens; any number where `isFed` is 1: the token is then the one kept in row `feed` of `drawn`. */
  readonly tokens: Int32Array;
  readonly isFed?: Int32Array;
  readonly feed?: Int32Array;
  /** Where the token that a row draws is kept for the next call; −1: nowhere. */
  readonly keep?: Int32Array;
  readonly position: Int32Array;
  readonly slot: Int32Array;
  readonly begin: Int32Array;
  readonly key: Int32Array;
  readonly row: Int32Array;
  readonly target: Int32Array;
  /** What the next token of each row is drawn with (ir/gumbel): 0 takes the most likely one. */
  readonly inverseTemperature: Float32Array;
  readonly keyLow: Int32Array;
  readonly keyHigh: Int32Array;
  /** The same as `keep`, for tokens that are chosen from logits: those of the first rows. */
  readonly keepFiltered?: Int32Array;
}

/** The tokens [from, to) of a sequence. */
export interface SequenceChunk {
  readonly sequence: Sequence;
  readonly from: number;
  readonly to: number;
}

/** A row of a call, and what it is for: the score of a token of the prompt, or the next token. */
export interface AskedRow {
  readonly sequence: Sequence;
  readonly kind: 'score' | 'next';
  /** Place of the token that is scored or drawn. */
  readonly at: number;
}

export interface Step {
  readonly pieces: readonly SequenceChunk[];
  readonly inputs: StepInputs;
  readonly asked: readonly AskedRow[];
}

/** The tokens in [from, to) whose successors are asked for. */
export function rowsOf(sequence: Sequence, from: number, to: number): readonly number[] {
  const found: number[] = [];
  for (let i = from; i < to; i++) {
    const isScored = i + 1 >= sequence.nextScore && i + 1 < sequence.promptLength;
    if (isScored || i + 1 === sequence.tokens.length) found.push(i);
  }
  return found;
}

const GREEDY: Draw = { inverseTemperature: 0, low: 0, high: 0 };

/** A call's arrays. The paths of its sequences stand one behind another in the list of keys. */
export function arraysOf(
  pieces: readonly SequenceChunk[],
  { keptRows = 0, filtered: maxFiltered }: { readonly keptRows?: number; readonly filtered?: number },
): Pick<Step, 'inputs' | 'asked'> {
  const count = pieces.reduce((sum, { from, to }) => sum + to - from, 0);
  const keys = pieces.reduce((sum, { to }) => sum + to, 0);
  const [tokens, position, slot, begin] = [0, 0, 0, 0].map(() => new Int32Array(count)) as [
    Int32Array,
    Int32Array,
    Int32Array,
    Int32Array,
  ];
  const [isFed, feed] = [new Int32Array(count), new Int32Array(count)];
  const key = new Int32Array(keys);
  const found: (AskedRow & { readonly row: number; readonly target: number })[] = [];
  let at = 0;
  let path = 0;
  for (const { sequence, from, to } of pieces) {
    sequence.copySlots(to, key, path);
    for (let i = from; i < to; i++, at++) {
      const token = sequence.tokens[i]!;
      tokens[at] = Math.max(0, token);
      if (token === UNREAD) [isFed[at], feed[at]] = [1, sequence.drawnRow];
      position[at] = i;
      slot[at] = sequence.slot(i);
      begin[at] = path;
    }
    for (const i of rowsOf(sequence, from, to)) {
      const isLast = i + 1 === sequence.tokens.length;
      found.push({
        sequence,
        kind: isLast ? 'next' : 'score',
        at: i + 1,
        row: at - to + i,
        target: isLast ? 0 : sequence.tokens[i + 1]!,
      });
    }
    path += to;
  }
  const isFiltered = ({ sequence, kind }: AskedRow): boolean => kind === 'next' && sequence.isFiltered;
  const filtered = found.filter(isFiltered);
  const asked = filtered.length === 0 ? found : [...filtered, ...found.filter((each) => !isFiltered(each))];
  const draws = asked.map(({ sequence, kind }) => (kind === 'next' ? sequence.draw : undefined) ?? GREEDY);
  // A token that is chosen from logits is kept in place of the one that the head has drawn.
  const kept = asked.map(({ kind }, i) => (kind === 'next' && i < keptRows ? i : -1));
  const inputs = {
    tokens,
    ...(keptRows === 0
      ? {}
      : { isFed, feed, keep: Int32Array.from(kept.keys(), (i) => (i < filtered.length ? -1 : kept[i]!)) }),
    position,
    slot,
    begin,
    key,
    row: Int32Array.from(asked, ({ row }) => row),
    target: Int32Array.from(asked, ({ target }) => target),
    inverseTemperature: Float32Array.from(draws, (draw) => draw.inverseTemperature),
    keyLow: Int32Array.from(draws, (draw) => draw.low),
    keyHigh: Int32Array.from(draws, (draw) => draw.high),
    ...(maxFiltered === undefined ? {} : filterInputs(filtered.map(({ sequence }) => sequence.filterRow))),
    ...(maxFiltered === undefined || keptRows === 0
      ? {}
      : { keepFiltered: Int32Array.from(kept.slice(0, filtered.length)) }),
  };
  return { inputs, asked };
}

/** A model on its devices, as generation sees it: one function, whose calls take turns. */

/** What a call of `step` returns, a number for each row. */
export interface StepOutputs {
  readonly logProb: Float32Array;
  readonly isArgmax: Int32Array;
  /** A token drawn from the row, and its log-probability at temperature 1. */
  readonly nextToken: Int32Array;
  readonly nextTokenLogProb: Float32Array;
  /** The tokens of the first rows, chosen from their logits, where the model does that. */
  readonly filtered?: FilteredOutputs;
  /** f32[R, N]: what a head of N classes gives, before any softmax. */
  readonly classLogits?: Float32Array;
}

/** For each filtered row. Log-probabilities are those at temperature 1, of unchanged logits. */
export interface FilteredOutputs {
  readonly token: Int32Array;
  readonly logProb: Float32Array;
  /** The most likely tokens, as many numbers a row as the model finds at most; those past topCount are 0. */
  readonly topTokens: Int32Array;
  readonly topLogProbs: Float32Array;
}

export interface Stepper {
  readonly limits: StepLimits;
  /** Tokens whose keys and values there is room for. */
  readonly cacheTokens: number;
  /** Longest context of the model, in tokens. */
  readonly maxLength: number;
  /** `step` chooses tokens from whole rows of logits: tokens of its vocabulary. Absent: it does not. */
  readonly vocab?: number | undefined;
  /** Classes of its head, where that is none of a vocabulary. */
  readonly classes?: number | undefined;
  /**
   * Calls are executed in the order in which they are made. Rejects with StateLost where the device and all keys and
   * values are gone; with an error that has `rows` where only some rows could not be computed.
   */
  step(inputs: StepInputs): Promise<StepOutputs>;
  /** Whether keys and values are gone already, so that the next call would reject with StateLost. */
  isLost?(): boolean;
  /** After StateLost: settles when another device is ready; rejects where there will be none. */
  recovered?(): Promise<void>;
}

/** The device ended, and the keys and values in its memory with it. */
export class StateLost extends Error {
  /** Whether it may have been computing the call when it ended. */
  readonly wasAsked: boolean;

  constructor(message: string, wasAsked = true) {
    super(message);
    this.wasAsked = wasAsked;
  }
}
