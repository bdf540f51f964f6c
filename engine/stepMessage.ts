/** What a step says to the device: pieces of sequences, as changes of what the device knows of them. */
import type { Draw } from '../ir/gumbel.js';
import type { DraftBranches, StateRows, StepLimits, StepMessage } from './device.js';
import { depthOf, type DraftTree } from './draftTree.js';
import { type PageCopy, type Sequence, UNREAD } from './sequence.js';
import type { TokenFact } from './pageFacts.js';
import type { PartRows } from './stateSteps.js';
import { filterInputs, type FilterRow } from './tokenEntries.js';

/** The tokens [from, to) of a sequence, and drafts behind its last one, with a page for each of their branches. */
export interface SequenceChunk {
  readonly sequence: Sequence;
  readonly from: number;
  readonly to: number;
  readonly drafts: DraftTree;
  readonly branchPages: readonly number[];
  /** Of a model with recurrent states. */
  readonly rows?: PartRows | undefined;
}

/** A row of a step, and what it is for: one that is asked for of the prompt, or the next token. */
export interface AskedRow {
  readonly sequence: Sequence;
  readonly kind: 'score' | 'next';
  /** Place of the token that follows: the one that is drawn. */
  readonly at: number;
  /** Which of the rows that are asked for of the prompt it is. */
  readonly ask?: number;
  /** Of a token that is drawn, the drafts of the step, and the one that it follows; −1: the last token of the text. */
  readonly drafts?: DraftTree;
  readonly node?: number;
}

/** Rows of a sequence that were answered by what lies beside pages, from its first that was not answered on. */
export interface FoundAnswers {
  readonly sequence: Sequence;
  readonly facts: readonly TokenFact[];
  /** Tokens from this place on are in pages of its own. */
  readonly ownFrom: number;
}

export interface Step {
  readonly pieces: readonly SequenceChunk[];
  readonly message: StepMessage;
  /** In the order of the message's rows. */
  readonly asked: readonly AskedRow[];
  /** What need not be computed. */
  readonly answers: readonly FoundAnswers[];
}

/** The sequences that a step will say something about. */
export const askedIn = ({ asked }: Step): ReadonlySet<Sequence> => new Set(asked.map(({ sequence }) => sequence));

/** The rows that are asked for of the tokens in [from, to), as a range, and whether the token behind them is drawn. */
function rowsIn({ asks, isDrawing, tokens }: Sequence, from: number, to: number) {
  return { first: asks.from(from), end: asks.from(to), isLast: isDrawing && to === tokens.length };
}

/** How many rows the tokens in [from, to) have, and how many of them are filtered. */
export function rowCount(sequence: Sequence, from: number, to: number): { readonly rows: number; filtered: number } {
  const { first, end, isLast } = rowsIn(sequence, from, to);
  return {
    rows: end - first + (isLast ? 1 : 0),
    filtered: sequence.asks.topsIn(first, end) + (isLast && sequence.isFiltered ? 1 : 0),
  };
}

/** As many of the tokens in [from, to) as have `most` rows, of which `filtered` are filtered. */
export function withinRows(sequence: Sequence, from: number, to: number, most: number, filtered: number): number {
  const all = rowCount(sequence, from, to);
  if (all.rows <= most && all.filtered <= filtered) return to;
  const { asks } = sequence;
  const { first, end } = rowsIn(sequence, from, to);
  let fitting = Math.min(end, first + Math.max(0, most));
  while (fitting > first && asks.topsIn(first, fitting) > filtered) fitting--;
  // All rows of a token are in one step.
  return fitting < end ? Math.max(from, asks.positions[fitting]!) : to - 1;
}

interface FoundRow extends AskedRow {
  /** The new token after which it stands. */
  readonly row: number;
  readonly target: number;
}

/** The rows of all pieces, those that are filtered first. */
function findRows(pieces: readonly SequenceChunk[]): readonly FoundRow[] {
  const filtered: FoundRow[] = [];
  const others: FoundRow[] = [];
  let begin = 0;
  let beginOfBranches = pieces.reduce((sum, { from, to, drafts }) => sum + to - from + drafts.chain, 0);
  for (const { sequence, from, to, drafts } of pieces) {
    const { first, end, isLast } = rowsIn(sequence, from, to);
    const { positions, targets, tops } = sequence.asks;
    for (let ask = first; ask < end; ask++) {
      const at = positions[ask]! + 1;
      const target = Math.max(0, targets[ask]!);
      const row = { sequence, kind: 'score', at, ask, row: begin + at - 1 - from, target } as const;
      (tops[ask]! > 0 ? filtered : others).push(row);
    }
    begin += to - from;
    if (isLast)
      for (let node = -1; node < drafts.tokens.length; node++) {
        const depth = depthOf(drafts, node);
        const row = node < drafts.chain ? begin + node : beginOfBranches + node - drafts.chain;
        const next = { sequence, kind: 'next', at: to + depth, row, target: 0, drafts, node } as const;
        (sequence.isFilteredAfter(depth) ? filtered : others).push(next);
      }
    begin += drafts.chain;
    beginOfBranches += drafts.tokens.length - drafts.chain;
  }
  return filtered.length === 0 ? others : [...filtered, ...others];
}

/** In the order of findRows. */
const filterRowsOf = ({ sequence, from, to, drafts }: SequenceChunk): readonly FilterRow[] => [
  ...sequence.askedFilters(from, to),
  ...(sequence.isDrawing && to === sequence.tokens.length ? sequence.filterRows(drafts) : []),
];

const GREEDY: Draw = { inverseTemperature: 0, low: 0, high: 0 };

/** What the device is told of the branches of all pieces; undefined where there are none. */
function branchesOf(pieces: readonly SequenceChunk[]): DraftBranches | undefined {
  const told = { of: [] as number[], from: [] as number[], count: [] as number[], page: [] as number[] };
  pieces.forEach(({ to, drafts, branchPages }, part) => {
    const before = told.of.length;
    drafts.branches.forEach((branch, i) => {
      told.of.push(branch.of < 0 ? part : pieces.length + before + branch.of);
      told.from.push(to + branch.depth);
      told.count.push(branch.end - branch.first);
      told.page.push(branchPages[i]!);
    });
  });
  if (told.of.length === 0) return undefined;
  return {
    of: Int32Array.from(told.of),
    from: Int32Array.from(told.from),
    count: Int32Array.from(told.count),
    page: Int32Array.from(told.page),
  };
}

/** The rows of states that all pieces read and write; undefined where the model has none. */
function statesOf(pieces: readonly SequenceChunk[]): StateRows | undefined {
  if (pieces[0]?.rows === undefined) return undefined;
  const [token, to] = [[] as number[], [] as number[]];
  let begin = 0;
  for (const { rows, from, to: end, drafts } of pieces) {
    const { snapshots, own, drafts: ofDrafts } = rows!;
    const written = [...snapshots, { at: end, row: own }, ...ofDrafts.map((row, i) => ({ at: end + 1 + i, row }))];
    for (const { at, row } of written) {
      token.push(begin + at - 1 - from);
      to.push(row);
    }
    begin += end - from + drafts.chain;
  }
  const from = Int32Array.from(pieces, ({ rows }) => rows!.from);
  return { from, token: Int32Array.from(token), to: Int32Array.from(to) };
}

/** Zeros, `count` at a time. */
const arrays = (count: number) => (): Int32Array => new Int32Array(count);

/**
 * The message for pieces whose sequences have numbers, and pages for all their tokens. The device knows those pages
 * from then on.
 */
export function stepOf(
  pieces: readonly SequenceChunk[],
  ended: readonly number[],
  copies: readonly PageCopy[],
  { keptRows = 0, filtered: maxFiltered }: Pick<StepLimits, 'keptRows' | 'filtered'>,
): Omit<Step, 'answers'> {
  const ofPart = arrays(pieces.length);
  const parts = { sequence: ofPart(), keptPages: ofPart(), newPages: ofPart(), from: ofPart(), count: ofPart() };
  const pages: number[] = [];
  const tokens: number[] = [];
  pieces.forEach(({ sequence, from, to, drafts }, i) => {
    const { knownPages, pages: own } = sequence;
    parts.sequence[i] = sequence.number;
    parts.keptPages[i] = knownPages;
    parts.newPages[i] = own.length - knownPages;
    parts.from[i] = from;
    parts.count[i] = to - from + drafts.chain;
    for (let page = knownPages; page < own.length; page++) pages.push(own[page]!);
    sequence.knownPages = own.length;
    for (let at = from; at < to; at++) {
      const token = sequence.tokens[at]!;
      tokens.push(token === UNREAD ? -1 - sequence.drawnRow : token);
    }
    tokens.push(...drafts.tokens.slice(0, drafts.chain));
  });
  for (const { drafts } of pieces) if (drafts.branches.length > 0) tokens.push(...drafts.tokens.slice(drafts.chain));
  const branches = branchesOf(pieces);
  const states = statesOf(pieces);
  const rows = findRows(pieces);
  const ofRow = arrays(rows.length);
  const [row, target, keyLow, keyHigh, keep] = [ofRow(), ofRow(), ofRow(), ofRow(), ofRow()] as const;
  const inverseTemperature = new Float32Array(rows.length);
  rows.forEach((each, i) => {
    row[i] = each.row;
    target[i] = each.target;
    if (each.kind !== 'next') return;
    const draw = each.sequence.drawAt(each.at) ?? GREEDY;
    inverseTemperature[i] = draw.inverseTemperature;
    keyLow[i] = draw.low;
    keyHigh[i] = draw.high;
    keep[i] = i < keptRows && each.node === -1 ? 1 : 0;
  });
  const message: StepMessage = {
    ...parts,
    ended: Int32Array.from(ended),
    pages: Int32Array.from(pages),
    tokens: Int32Array.from(tokens),
    ...{ row, target, inverseTemperature, keyLow, keyHigh, keep },
    ...(copies.length === 0
      ? {}
      : {
          copies: {
            from: Int32Array.from(copies, ({ from }) => from),
            to: Int32Array.from(copies, ({ to }) => to),
            rows: Int32Array.from(copies, ({ rows }) => rows),
          },
        }),
    ...(branches === undefined ? {} : { branches }),
    ...(states === undefined ? {} : { states }),
    ...(pieces.some(({ sequence }) => sequence.slot >= 0)
      ? { adapter: Int32Array.from(pieces, ({ sequence }) => sequence.slot) }
      : {}),
    ...(maxFiltered === undefined ? {} : { filters: filterInputs(pieces.flatMap(filterRowsOf)) }),
  };
  return { pieces, message, asked: rows };
}
