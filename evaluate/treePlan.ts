/** Decides which choices go into one tree. Trees themselves are laid out when their micro-batch is due. */
import { UserError } from '../errors.js';
import { atOnce, type Parts } from '../system/text.js';
import { type Capacity, fits } from './packing.js';
import { orderInParts } from './pathOrder.js';
import { contextOf, leaveOut, type Named, questionName, type TokenizedQuestion } from './tokenize.js';
import { inLayoutOrder, measureTree, type Path, pathLength, type TreeSharing, type TreeSize } from './tree.js';

/** The choices of one tree, and its size. */
export interface TreePlan extends TreeSize {
  readonly paths: readonly Path[];
}

export interface Forest {
  readonly trees: readonly TreePlan[];
  readonly tokensComputed: number;
  /** Tokens if every choice were a separate sequence. */
  readonly tokensWithoutSharing: number;
}

/**
 * Questions join only if they share a prefix of at least this length: BOS and a common first word are not worth one
 * tree for everything.
 */
const MIN_SAVED_TOKENS = 6;
/**
 * Limits on tokens and rows of joined questions. They are small, so that packing keeps its freedom and questions finish
 * early. They do not depend on the size of micro-batches, so that a question is always in the same tree and has the
 * same bits on every device. If each question shares half its tokens with its neighbour, the limits are much larger.
 */
const MAX_JOINED_TOKENS = 1024;
const MAX_CLOSE_TOKENS = 4096;
/** Most questions in one tree; bounds the search. */
const MAX_JOINED_QUESTIONS = 512;

interface TreeOptions {
  readonly sharing: TreeSharing;
  readonly capacity: Capacity;
  readonly mayExceed: boolean;
}

const planOf = (paths: readonly Path[], sharing: TreeSharing): TreePlan => ({ paths, ...measureTree(paths, sharing) });

/**
 * A question's choices as one tree, or as the fewest trees that each fit in a micro-batch. One tree that fits none, if
 * there may be such trees and one of the choices fits none by itself.
 */
function planQuestion(
  paths: readonly Path[],
  question: Named,
  { sharing, capacity, mayExceed }: TreeOptions,
): readonly TreePlan[] {
  const whole = planOf(paths, sharing);
  if (fits(whole, capacity)) return [whole];
  if (mayExceed && paths.some((path) => !fits(planOf([path], sharing), capacity))) return [whole];
  const plans: TreePlan[] = [];
  let current: TreePlan | undefined;
  for (const path of inLayoutOrder(paths, sharing)) {
    const grown: TreePlan = planOf([...(current?.paths ?? []), path], sharing);
    if (fits(grown, capacity)) {
      current = grown;
      continue;
    }
    if (current !== undefined) plans.push(current);
    current = planOf([path], sharing);
    if (!fits(current, capacity)) {
      throw new UserError(
        `${questionName(question)}, choice ${path.choice}: ${current.tokens} tokens with ${current.rows} to score ` +
          `do not fit a micro-batch of ${capacity.maxTokens} tokens and ${capacity.maxRows} scored rows`,
        'Use a larger --batch-tokens, or --sharing tree --prefixes keep, or ' +
          leaveOut(question, 'leave the question out with --docs'),
      );
    }
  }
  if (current !== undefined) plans.push(current);
  return plans;
}

/** The context of a question as a path. One dummy token follows it; being the last, it is never an input. */
function contextPath(plan: TreePlan): Path {
  const [first] = plan.paths;
  if (first === undefined) throw new Error('a tree without paths');
  return { ...first, continuation: new Int32Array(1) };
}

/**
 * Joins questions whose contexts have a common beginning. With contexts in lexicographic order, neighbours share the
 * most, and a run of neighbours saves the sum of their common prefixes. Cuts the order into runs that fit and save the
 * most: best[i] is the most that the first i questions can save.
 */
function* joinQuestions(single: readonly TreePlan[], capacity: Capacity): Parts<TreePlan[]> {
  const planOfContext = new Map(single.map((plan) => [contextPath(plan), plan]));
  const contexts = yield* orderInParts([...planOfContext.keys()]);
  const ordered = contexts.paths.map((context, i) => ({
    plan: planOfContext.get(context)!,
    saved: contexts.shared[i]!,
  }));
  const best = new Float64Array(ordered.length + 1);
  const runStart = new Int32Array(ordered.length + 1);
  for (let end = 1; end <= ordered.length; end++) {
    let tokens = 0,
      rows = 0,
      keys = 0,
      saved = 0,
      isClose = true;
    best[end] = -1;
    for (let start = end - 1; start >= Math.max(0, end - MAX_JOINED_QUESTIONS); start--) {
      const entry = ordered[start];
      if (entry === undefined) break;
      tokens += entry.plan.tokens;
      rows += entry.plan.rows;
      keys += entry.plan.keys;
      const most = isClose ? MAX_CLOSE_TOKENS : MAX_JOINED_TOKENS;
      const isRun = start < end - 1;
      const size = { tokens: tokens - saved, rows, keys, longest: 0 };
      if (isRun && (size.tokens > most || rows > most || !fits(size, capacity))) break;
      const total = (best[start] ?? 0) + saved;
      if (total > (best[end] ?? 0)) {
        best[end] = total;
        runStart[end] = start;
      }
      if (entry.saved < MIN_SAVED_TOKENS) break;
      saved += entry.saved;
      isClose &&= entry.saved * 2 >= entry.plan.tokens;
    }
    yield;
  }
  const joined: TreePlan[] = [];
  for (let end = ordered.length; end > 0; end = runStart[end] ?? 0) {
    const run = ordered.slice(runStart[end], end);
    const whole = planOf(
      run.flatMap(({ plan }) => plan.paths),
      'tree',
    );
    // Questions that interleave may need longer lists of keys together than one by one.
    if (run.length > 1 && fits(whole, capacity)) joined.push(whole);
    else joined.push(...run.map(({ plan }) => plan).reverse());
    yield;
  }
  return joined.reverse();
}

/**
 * Groups every choice of every question into trees that fit a micro-batch, in a fixed order. A question with a choice
 * that alone does not fit becomes one tree if trees `mayExceed` a micro-batch. Otherwise throws UserError.
 */
export const planTrees = (...asked: Parameters<typeof planTreesInParts>): Forest => atOnce(planTreesInParts(...asked));

/** The same in parts. */
export function* planTreesInParts(
  questions: readonly TokenizedQuestion[],
  sharing: TreeSharing,
  capacity: Capacity,
  mayExceed = false,
): Parts<Forest> {
  const single: TreePlan[] = [];
  const split: TreePlan[] = [];
  let tokensWithoutSharing = 0;
  for (const [index, question] of questions.entries()) {
    const { continuations } = question;
    // An empty text needs no computation.
    if (continuations.length === 0) continue;
    const paths = continuations.map((continuation, choice): Path => ({
      question: index,
      choice,
      context: contextOf(question, choice),
      continuation,
    }));
    for (const path of paths) tokensWithoutSharing += pathLength(path);
    const groups = sharing === 'none' ? paths.map((path) => [path]) : [paths];
    const plans = groups.flatMap((group) => planQuestion(group, question, { sharing, capacity, mayExceed }));
    const areWhole = plans.length === groups.length && plans.every((plan) => fits(plan, capacity));
    (areWhole ? single : split).push(...plans);
    yield;
  }
  const trees = [...(sharing === 'tree' ? yield* joinQuestions(single, capacity) : single), ...split];
  const tokensComputed = trees.reduce((sum, tree) => sum + tree.tokens, 0);
  return { trees, tokensComputed, tokensWithoutSharing };
}
