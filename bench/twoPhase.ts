/**
 * Scores choices in two phases, as serving systems with a cache of keys and values do: contexts first, then choices
 * that continue what is cached. A group of questions takes one or more calls for each phase. `run` does not score so:
 * it computes trees, whose choices need no call of their own.
 */
import { UserError } from '../errors.js';
import { pathLength, type Path, type ScoredToken } from '../eval/tree.js';
import type { PathBatch, WalkedBatch, WalkLimits } from '../eval/walk.js';

export interface TwoPhaseOptions {
  readonly limits: WalkLimits;
  /** Sequences of a call, contexts or choices; calls are filled up to their tokens without it. */
  readonly sequences?: number;
  /** Tokens of a call of the first phase, where it has several contexts; those of any call by default. */
  readonly prefillTokens?: number;
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
  readonly tokens: Int32Array;
  readonly scored: readonly Scoring[];
}

/** Choices with the same context. */
type Family = readonly [Path, ...Path[]];

/** The calls, in the order in which they must be computed. Throws UserError if a context or a choice fits no call. */
export function* twoPhase(paths: readonly Path[], options: TwoPhaseOptions): Generator<WalkedBatch> {
  const { limits, sequences = Infinity, prefillTokens = limits.tokens } = options;
  // The second phase has room for a call of its own beside the contexts.
  const contextRows = Math.min(limits.tokens, limits.cacheRows - limits.tokens);
  const groupLimits = { tokens: contextRows, keys: Infinity, rows: Infinity, runs: sequences };
  if (contextRows < 1) throw new UserError(`${limits.cacheRows} rows of cache hold no context beside a call`);
  const families = new Map(
    familiesOf(paths).map((family) => {
      requireFits(family, contextRows, limits);
      return [contextRun(family), family];
    }),
  );
  for (const group of cut([...families.keys()], groupLimits)) {
    let used = 0;
    const choices: Run[] = [];
    for (const runs of cut(group, { ...limits, tokens: Math.min(prefillTokens, limits.tokens), runs: sequences })) {
      const { slots, call } = layCall(runs, used);
      yield call;
      used += call.batch.tokens.length;
      runs.forEach((run, i) => choices.push(...choiceRuns(families.get(run)!, slots[i]!)));
    }
    // Nothing reads the rows of choices after their call, so every call takes the same ones.
    for (const runs of cut(choices, { ...limits, runs: sequences })) yield layCall(runs, used).call;
  }
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

function requireFits(family: Family, contextRows: number, { tokens, keys, rows }: WalkLimits): void {
  for (const path of family) {
    const { question, choice, context, continuation } = path;
    const isSmall = context.length <= contextRows && continuation.length <= Math.min(tokens, rows);
    if (isSmall && pathLength(path) <= keys && family.length <= rows) continue;
    throw new UserError(
      `question ${question}, choice ${choice}: ${context.length} tokens of context and ${continuation.length} of the ` +
        `choice, one of ${family.length}, do not fit a call`,
      'give --max-tokens with a larger number',
    );
  }
}

/** The context, at the end of which the first token of every choice is scored. */
const contextRun = (family: Family): Run => ({
  before: [],
  tokens: family[0].context,
  scored: family.map(({ question, choice, context, continuation }) => ({
    at: context.length - 1,
    target: continuation[0]!,
    question,
    choice,
    index: 0,
  })),
});

/** The choices without their last tokens, which are only scored. A choice of one token needs no run. */
const choiceRuns = (family: Family, before: readonly number[]): Run[] =>
  family
    .filter(({ continuation }) => continuation.length > 1)
    .map(({ question, choice, continuation }) => ({
      before,
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

/** Runs side by side. New tokens take the rows of the cache from `firstSlot` on; `slots` are those of each run. */
function layCall(
  runs: readonly Run[],
  firstSlot: number,
): { readonly call: WalkedBatch; readonly slots: readonly (readonly number[])[] } {
  const tokens: number[] = [];
  const position: number[] = [];
  const begin: number[] = [];
  const key: number[] = [];
  const row: number[] = [];
  const target: number[] = [];
  const scored: ScoredToken[] = [];
  const slots = runs.map((run) => {
    const firstToken = tokens.length;
    const own = Array.from(run.tokens, (_, i) => firstSlot + firstToken + i);
    run.tokens.forEach((token, i) => {
      tokens.push(token);
      position.push(run.before.length + i);
      begin.push(key.length);
    });
    key.push(...run.before, ...own);
    for (const { at, target: wanted, ...of } of run.scored) {
      scored.push({ row: row.length, ...of });
      row.push(firstToken + at);
      target.push(wanted);
    }
    return own;
  });
  const batch: PathBatch = {
    tokens: Int32Array.from(tokens),
    position: Int32Array.from(position),
    slot: Int32Array.from(tokens, (_, i) => firstSlot + i),
    begin: Int32Array.from(begin),
    key: Int32Array.from(key),
    row: Int32Array.from(row),
    target: Int32Array.from(target),
  };
  return { call: { batch, scored }, slots };
}
