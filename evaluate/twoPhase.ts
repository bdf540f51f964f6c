/**
 * Scores choices in two phases, as serving systems with a cache of keys and values do: contexts first, then choices
 * that continue what is cached. Contexts are taken in groups that lie in the cache together. A group takes one or more
 * calls for each phase, and a context that is longer than a call takes several. The next group takes the same rows of
 * the cache. Where layers are recurrent, each context of a group has a row of states, from which its choices go on.
 */
import { UserError } from '../errors.js';
import { CacheRows, PathCall } from './pathCall.js';
import type { WalkedBatch, WalkLimits } from './scorer.js';
import { type Path, pathLength, type ScoredToken } from './tree.js';

export interface TwoPhaseOptions {
  readonly limits: WalkLimits;
  /** Sequences of a call, contexts or choices; calls are filled up to their tokens without it. */
  readonly sequences?: number;
  /** Tokens of a call of the first phase, where it has several contexts; those of any call by default. */
  readonly prefillTokens?: number;
  /** Most tokens of the contexts of a group, unless it has only one; by default those that the cache holds. */
  readonly groupTokens?: number;
}

/** Questions whose contexts lie in the cache together. */
export interface ContextGroup {
  /** Choices of a question one after another. */
  readonly paths: readonly Path[];
  /** Tokens of both phases. */
  readonly tokens: number;
}

/** A token of a run whose next-token distribution is scored. */
interface Scoring extends Omit<ScoredToken, 'row'> {
  /** Index in the tokens of the run. */
  readonly at: number;
  readonly target: number;
}

/** Tokens that continue each other, and what is cached before them. */
interface Run {
  /** Rows of the cache. */
  readonly before: readonly number[];
  /** Those that its own tokens take; absent where they are taken for one call. */
  readonly slots?: readonly number[];
  readonly tokens: Int32Array;
  readonly scored: readonly Scoring[];
  /** The row of states that it goes on from, and the one that gets those behind it; −1: none. */
  readonly from: number;
  readonly to: number;
}

/** Choices with the same context. */
type Family = readonly [Path, ...Path[]];

/** The calls, in the order in which they must be computed. Throws UserError where groupContexts does. */
export function* twoPhase(paths: readonly Path[], options: TwoPhaseOptions): Generator<WalkedBatch> {
  for (const group of groupContexts(paths, options)) yield* groupCalls(group.paths, options);
}

/**
 * Cuts questions, in their order, into groups. `nameOf`: a question in messages. Throws UserError if a
 * choice fits no call, or a context no cache.
 */
export function groupContexts(
  paths: readonly Path[],
  { limits, sequences = Infinity, groupTokens = Infinity }: TwoPhaseOptions,
  nameOf = (question: number): string => `question ${question}`,
): readonly ContextGroup[] {
  const room = roomOf(limits);
  const familyOf = new Map(
    familiesOf(paths).map((family) => {
      requireFits(family, room, limits, nameOf);
      return [contextRun(family), family];
    }),
  );
  const tokens = Math.min(room.contexts, groupTokens);
  const runs = Math.min(sequences, limits.states ?? Infinity);
  return [...cut([...familyOf.keys()], { tokens, keys: Infinity, rows: Infinity, runs })].map((group) => {
    const families = group.map((run) => familyOf.get(run)!);
    return { paths: families.flat(), tokens: families.reduce((sum, family) => sum + tokensOf(family), 0) };
  });
}

/** The calls of one group, or of some of its questions. */
export function* groupCalls(
  paths: readonly Path[],
  { limits, sequences = Infinity, prefillTokens = limits.tokens }: TwoPhaseOptions,
): Generator<WalkedBatch> {
  const room = roomOf(limits);
  const prefill = { ...limits, tokens: Math.min(prefillTokens, limits.tokens), runs: sequences };
  const contexts: Run[] = [];
  const choices: Run[] = [];
  const rows = new CacheRows(limits.cacheRows);
  for (const [i, family] of familiesOf(paths).entries()) {
    const stateRow = limits.states === undefined ? -1 : i;
    const run = contextRun(family);
    const slots = rows.takeAll(run.tokens.length);
    contexts.push(...pieces({ ...run, to: stateRow }, slots, limits.tokens));
    choices.push(...choiceRuns(family, slots, stateRow));
  }
  const lay = (runs: readonly Run[], slotsOf: (run: Run) => readonly number[]): WalkedBatch =>
    layCall(runs, slotsOf, limits.states !== undefined);
  for (const runs of cut(contexts, prefill)) yield lay(runs, ({ slots = [] }) => slots);
  for (const runs of cut(choices, { ...limits, tokens: room.call, runs: sequences })) {
    const taken = new Map(runs.map((run) => [run, rows.takeAll(run.tokens.length)]));
    yield lay(runs, (run) => taken.get(run)!);
    // Nothing reads them after this call.
    for (const slots of taken.values()) rows.giveBack(slots);
  }
}

interface Room {
  /** Tokens of a call of choices. */
  readonly call: number;
  /** Tokens of all contexts of a group. */
  readonly contexts: number;
}

/** How the cache is divided: a call of choices takes at most half of it. */
function roomOf({ tokens, cacheRows }: WalkLimits): Room {
  const call = Math.min(tokens, Math.floor(cacheRows / 2));
  return { call, contexts: cacheRows - call };
}

function familiesOf(paths: readonly Path[]): Family[] {
  const families: [Path, ...Path[]][] = [];
  for (const path of paths) {
    const last = families.at(-1);
    if (last?.[0].context === path.context && last[0].question === path.question) last.push(path);
    else families.push([path]);
  }
  return families;
}

const tokensOf = (family: Family): number =>
  family.reduce((sum, { continuation }) => sum + continuation.length - 1, family[0].context.length);

function requireFits(family: Family, room: Room, limits: WalkLimits, nameOf: (question: number) => string): void {
  const { tokens, keys, rows, cacheRows } = limits;
  for (const path of family) {
    const { question, choice, context, continuation } = path;
    const isShort = context.length <= room.contexts && continuation.length <= Math.min(room.call + 1, rows + 1);
    if (isShort && pathLength(path) <= keys && family.length <= rows) continue;
    throw new UserError(
      `${nameOf(question)}, choice ${choice}: ${context.length} tokens of context and ` +
        `${continuation.length} of the choice, one of ${family.length}, do not fit calls of ${tokens} tokens and ` +
        `${rows} scored ones over a cache of ${cacheRows}`,
      'use --sharing tree, a larger --batch-tokens or --cache-tokens, or an artifact without --logits',
    );
  }
}

/** The context, at the end of which the first token of every choice is scored. */
const contextRun = (family: Family): Run => ({
  before: [],
  ...{ from: -1, to: -1 },
  tokens: family[0].context,
  scored: family.map(({ question, choice, context, continuation }) => ({
    at: context.length - 1,
    target: continuation[0]!,
    question,
    choice,
    index: 0,
  })),
});

/** A run that begins a path, cut into runs of at most `most` tokens. `slots`: its rows of the cache. */
function* pieces({ tokens, scored, to: stateRow }: Run, slots: readonly number[], most: number): Generator<Run> {
  for (let from = 0; from < tokens.length; from += most) {
    const to = Math.min(from + most, tokens.length);
    yield {
      before: slots.slice(0, from),
      ...{ from: from === 0 ? -1 : stateRow, to: stateRow },
      slots: slots.slice(from, to),
      tokens: tokens.subarray(from, to),
      scored: scored.filter(({ at }) => at >= from && at < to).map((each) => ({ ...each, at: each.at - from })),
    };
  }
}

/** The choices without their last tokens, which are only scored. A choice of one token needs no run. */
const choiceRuns = (family: Family, before: readonly number[], stateRow: number): Run[] =>
  family
    .filter(({ continuation }) => continuation.length > 1)
    .map(({ question, choice, continuation }) => ({
      before,
      ...{ from: stateRow, to: -1 },
      tokens: continuation.slice(0, -1),
      scored: Array.from(continuation.slice(1), (target, at) => ({ at, target, question, choice, index: at + 1 })),
    }));

interface CutLimits {
  readonly tokens: number;
  readonly keys: number;
  readonly rows: number;
  readonly runs: number;
}

/** Runs in their order, cut where the next one does not fit. A run may alone have more tokens than are asked for. */
function* cut(runs: readonly Run[], limits: CutLimits): Generator<readonly Run[]> {
  let taken: Run[] = [];
  let [tokens, keys, rows] = [0, 0, 0];
  for (const run of runs) {
    const runKeys = run.before.length + run.tokens.length;
    const isFull =
      taken.length >= limits.runs ||
      tokens + run.tokens.length > limits.tokens ||
      keys + runKeys > limits.keys ||
      rows + run.scored.length > limits.rows;
    if (isFull && taken.length > 0) {
      yield taken;
      taken = [];
      [tokens, keys, rows] = [0, 0, 0];
    }
    taken.push(run);
    tokens += run.tokens.length;
    keys += runKeys;
    rows += run.scored.length;
  }
  if (taken.length > 0) yield taken;
}

/** Runs side by side. `slotsOf`: the rows of the cache that the new tokens of a run take. */
function layCall(runs: readonly Run[], slotsOf: (run: Run) => readonly number[], hasStates: boolean): WalkedBatch {
  const call = new PathCall(hasStates);
  for (const run of runs) {
    const firstToken = call.tokens.length;
    const own = slotsOf(run);
    run.tokens.forEach((token, i) => {
      const before = i === 0 ? { parent: -1, from: run.from } : { parent: call.tokens.length - 1, from: -1 };
      call.add(token, run.before.length + i, own[i]!, before);
      call.begin.push(call.key.length);
    });
    if (run.to >= 0) call.keepStates(call.tokens.length - 1, run.to);
    call.key.push(...run.before, ...own);
    for (const { at, target, ...of } of run.scored) {
      call.scored.push({ row: call.row.length, ...of });
      call.row.push(firstToken + at);
      call.target.push(target);
    }
  }
  return call.batch();
}
