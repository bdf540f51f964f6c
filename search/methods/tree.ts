/** The result of a search from what its iterations have drawn. */
import { type Path, stepsOf } from '../path.js';
import type { SearchPlan } from '../plan.js';
import type { Candidate, Fate, ProblemResult, TreeStep } from '../result.js';
import { firstLargest } from './aggregate.js';
import type { Choice, Drawn } from './drawn.js';

export interface DrawnRound {
  readonly drawn: readonly Drawn[];
  /** Absent where nothing is chosen from. */
  readonly choice?: Pick<Choice, 'survivors' | 'duplicates'>;
  readonly isLast: boolean;
}

/** @param pick the index of the candidate that is the answer */
export function resultOf(
  plan: SearchPlan,
  rounds: readonly DrawnRound[],
  answers: readonly Drawn[],
  pick: (candidates: readonly Candidate[], plan: SearchPlan) => number | null = bestScored,
): ProblemResult {
  const { tree, indexOf } = treeOf(rounds);
  const candidates = answers.map((path) => candidateOf(path, indexOf));
  return {
    tree,
    candidates,
    picked: pick(candidates, plan),
    drawnSteps: indexOf.size,
    drawnTokens: tree.reduce((sum, { tokens }) => sum + tokens, 0),
    notes: notesOf(plan, rounds, candidates),
  };
}

/** The best of the completed ones; of all, where there is none, and for search-and-learn. Of equal ones the first. */
export function bestScored(candidates: readonly Candidate[], { isSal }: SearchPlan): number | null {
  const isAny = isSal || !candidates.some(({ isCompleted }) => isCompleted);
  const scores = candidates.map(({ aggregate, isCompleted }) => (isAny || isCompleted ? aggregate : -Infinity));
  const best = firstLargest(scores);
  return best === -1 ? null : best;
}

function treeOf(rounds: readonly DrawnRound[]): { tree: readonly TreeStep[]; indexOf: ReadonlyMap<Path, number> } {
  const tree: TreeStep[] = [];
  const indexOf = new Map<Path, number>();
  for (const round of rounds) {
    const columns = round.drawn.map((path) => newPaths(path));
    const depth = columns.reduce((most, { length }) => Math.max(most, length), 1);
    for (let step = 0; step < depth; step++)
      for (const [place, drawn] of round.drawn.entries()) {
        const path = columns[place]![step];
        if (step === 0 && !drawn.isStepDrawn) tree.push(failedStep(drawn, indexOf));
        if (path !== undefined) {
          const isLast = step === columns[place]!.length - 1;
          tree.push(treeStep(path, drawn, drawn.iteration + step, isLast ? round : undefined, indexOf));
          indexOf.set(path, tree.length - 1);
        }
      }
  }
  return { tree, indexOf };
}

/** The paths that a round made on the way to this one. */
function newPaths({ path, parent }: Drawn): readonly Path[] {
  const paths: Path[] = [];
  for (let at = path; at !== parent?.path && at.parent !== undefined; at = at.parent) paths.push(at);
  return paths.reverse();
}

function treeStep(
  path: Path,
  drawn: Drawn,
  iteration: number,
  round: DrawnRound | undefined,
  indexOf: ReadonlyMap<Path, number>,
): TreeStep {
  const step = path.step!;
  const { ahead, scores, aggregate, error } = drawn;
  return {
    parent: indexOf.get(path.parent!) ?? null,
    iteration,
    ...(drawn.subtree === undefined ? {} : { subtree: drawn.subtree }),
    text: step.text,
    tokens: step.tokens.length,
    end: step.end,
    ...(round === undefined || ahead.length === 0 ? {} : { ahead: ahead.map(({ text }) => text).join('') }),
    ...(round === undefined || scores.length === 0 ? {} : { scores: scores.length, last: scores.at(-1)!, aggregate }),
    fate: round === undefined ? 'survives' : fateOf(drawn, round),
    ...(round === undefined || error === undefined ? {} : { error }),
  };
}

const failedStep = (drawn: Drawn, indexOf: ReadonlyMap<Path, number>): TreeStep => ({
  parent: indexOf.get(drawn.path) ?? null,
  iteration: drawn.iteration,
  ...(drawn.subtree === undefined ? {} : { subtree: drawn.subtree }),
  text: '',
  tokens: 0,
  end: 'context',
  fate: 'failed',
  ...(drawn.error === undefined ? {} : { error: drawn.error }),
});

/** In a subtree one path is chosen, whether it has ended or not: the others are pruned. */
function fateOf(drawn: Drawn, { choice, isLast }: DrawnRound): Fate {
  if (drawn.state === 'failed') return 'failed';
  if (choice?.duplicates?.has(drawn) === true) return 'duplicate';
  const isChosen = choice?.survivors.has(drawn) === true;
  if (drawn.subtree !== undefined && !isChosen) return 'pruned';
  if (drawn.state !== 'open') return drawn.state;
  return isLast ? 'unfinished' : isChosen ? 'survives' : 'pruned';
}

const candidateOf = ({ path, scores, aggregate, state }: Drawn, indexOf: ReadonlyMap<Path, number>): Candidate => ({
  text: path.text,
  step: indexOf.get(path)!,
  isCompleted: state === 'completed',
  scores,
  aggregate,
  tokens: stepsOf(path).reduce((sum, { tokens }) => sum + tokens.length, 0),
});

function notesOf(
  { method, maxStepTokens }: SearchPlan,
  rounds: readonly DrawnRound[],
  candidates: readonly Candidate[],
): readonly string[] {
  const drawn = rounds.flatMap((round) => round.drawn);
  const errors = new Map<string, number>();
  for (const { error } of drawn) if (error !== undefined) errors.set(error, (errors.get(error) ?? 0) + 1);
  const notes = [...errors].map(([error, count]) => `${paths(count)} failed: ${error}`);
  const cut = (end: string): number =>
    drawn.filter(({ path, state }) => state === 'unfinished' && path.step?.end === end).length;
  if (cut('length') > 0) notes.push(`${paths(cut('length'))} did not end within ${maxStepTokens} tokens of a step`);
  if (cut('context') > 0) notes.push(`${paths(cut('context'))} did not end within the model's context`);
  if (candidates.length === 0) notes.push('no path completed: there is no answer');
  else if (!candidates.some(({ isCompleted }) => isCompleted))
    notes.push(`no path completed: ${method} answers with one that is not finished`);
  return notes;
}

const paths = (count: number): string => (count === 1 ? '1 path' : `${count} paths`);
