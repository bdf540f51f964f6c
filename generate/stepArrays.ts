/** A call's arrays: what the function `step` reads for pieces of sequences. */
import { filterInputs, type FilterInputs } from './filterRows.js';
import { UNREAD, type Draw, type Sequence } from './sequence.js';

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
