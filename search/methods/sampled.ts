/**
 * Best-of-n and votes: whole texts are drawn, each scored once. With an early stop, texts are looked at in the order of
 * their places: the fewest behind which no others could change the choice are the result.
 */
import { type Ballot, ballotsOf, chosen, isDecided, type Vote } from '../answers/votes.js';
import type { SearchPlan } from '../plan.js';
import type { Candidate, ProblemResult } from '../result.js';
import type { Drawing } from './drawing.js';
import { type Child, type Drawn, rootChildren } from './drawn.js';
import { bestScored, resultOf } from './tree.js';

/** Of verifiers that score steps. */
const LARGEST_SCORE = 1;

export async function searchSamples(
  drawing: Drawing,
  plan: SearchPlan,
  onRound: (drawn: readonly Drawn[]) => void,
): Promise<ProblemResult> {
  drawing.prepare(rootChildren(plan.n));
  const vote = plan.method === 'best-of-n' ? 'naive' : plan.method === 'weighted' ? 'weighted' : 'majority';
  const drawn = plan.earlyStop
    ? await drawUntilDecided(drawing, plan, vote, onRound)
    : await drawing.round(samples(rootChildren(plan.n)));
  if (!plan.earlyStop) onRound(drawn);
  const pick = (candidates: readonly Candidate[]): number | null =>
    vote === 'naive' ? bestScored(candidates, plan) : chosen(vote, ballotsOf(candidates, plan.isSal), plan.isSal);
  return resultOf(plan, [{ drawn, isLast: true }], drawn.filter(isUsable), pick);
}

const samples = (children: readonly Child[]) => ({ children, iteration: 0, steps: 1, toEnd: true });

const isUsable = ({ state }: Drawn): boolean => state !== 'failed';

/**
 * Draws in portions, each of the fewest texts that could decide the vote, so that none is drawn in vain. A best score
 * is only decided by one that is the largest possible: then all are drawn at the same time, and the rest is aborted.
 */
async function drawUntilDecided(
  drawing: Drawing,
  plan: SearchPlan,
  vote: Vote,
  onRound: (drawn: readonly Drawn[]) => void,
): Promise<readonly Drawn[]> {
  const children = rootChildren(plan.n);
  const all: Drawn[] = [];
  const isOver = (drawn: readonly Drawn[]): boolean => {
    const known = [...all, ...drawn];
    return isDecided(vote, ballots(known, plan), plan.n - known.length, LARGEST_SCORE, plan.isSal);
  };
  do {
    const count = vote === 'naive' ? plan.n : fewestToDecide(vote, ballots(all, plan), plan.n - all.length);
    const portion = samples(children.slice(all.length, all.length + count));
    const drawn = await drawing.round(portion, vote === 'naive' ? isOver : undefined);
    onRound(drawn);
    all.push(...drawn);
  } while (!isOver([]));
  return all;
}

const ballots = (drawn: readonly Drawn[], { isSal }: SearchPlan): readonly Ballot[] =>
  ballotsOf(drawn.filter(isUsable).map(ballotFacts), isSal);

const ballotFacts = ({ path, scores, aggregate, state }: Drawn) => ({
  text: path.text,
  scores,
  aggregate,
  isCompleted: state === 'completed',
});

/** How many of `left` texts decide the vote if all of them are for the answer that leads. */
function fewestToDecide(vote: Vote, known: readonly Ballot[], left: number): number {
  const leader = known[chosen(vote, known, false) ?? -1];
  const group = leader?.answer ? leader.group : known.length;
  const ballot: Ballot = { answer: leader?.answer || '0', group, score: LARGEST_SCORE, isCompleted: true };
  const decides = (count: number): boolean =>
    isDecided(vote, [...known, ...Array.from({ length: count }, () => ballot)], left - count, LARGEST_SCORE, false);
  let [fewest, most] = [1, left];
  while (fewest < most) {
    const middle = Math.floor((fewest + most) / 2);
    if (decides(middle)) most = middle;
    else fewest = middle + 1;
  }
  return fewest;
}
