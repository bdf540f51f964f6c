/** What the rows of a step's answer say. */
import type { StepAnswer } from './device.js';
import { NO_DRAFTS } from './draftTree.js';
import type { GeneratedToken, TokenLogProb } from './request.js';
import type { AskedRow } from './stepMessage.js';
import type { Score, Task } from './task.js';

/** The token that the head has drawn from a row. */
export const drawnOf = ({ nextToken, nextTokenLogProb }: StepAnswer, row: number): TokenLogProb => ({
  token: nextToken[row]!,
  logProb: nextTokenLogProb[row]!,
});

/** What a filtered row was given, and its `topCount` most likely tokens; undefined where the row is not filtered. */
export function chosenOf({ filtered }: StepAnswer, row: number, topCount: number): GeneratedToken | undefined {
  if (filtered === undefined || row >= filtered.token.length) return undefined;
  const { token, logProb, topTokens, topLogProbs } = filtered;
  const first = (row * topTokens.length) / token.length;
  const top = Array.from({ length: topCount }, (_, i) => ({
    token: topTokens[first + i]!,
    logProb: topLogProbs[first + i]!,
  }));
  return { token: token[row]!, logProb: logProb[row]!, top };
}

/** What a row of the prompt says. `classes`: those of the model's head, if it has some. */
export function scoreOf(answer: StepAnswer, row: number, topCount: number, classes = 0): Score {
  const { logProb, isArgmax, classLogits } = answer;
  const { token, logProb: argmaxLogProb } = drawnOf(answer, row);
  const top = topCount > 0 ? chosenOf(answer, row, topCount)?.top : undefined;
  return {
    logProb: logProb[row]!,
    isArgmax: isArgmax[row] === 1,
    argmax: token,
    argmaxLogProb,
    ...(top === undefined ? {} : { top }),
    classLogits: classLogits?.slice(row * classes, (row + 1) * classes),
  };
}

/** Whether a row stands after the text: not after a draft that is none of it, or behind its end. */
export const isOfText = (
  { sequence, at, drafts = NO_DRAFTS, node = -1 }: AskedRow,
  task: Task,
  ended: ReadonlyMap<Task, unknown>,
): boolean => node < 0 || (!ended.has(task) && task.stopped === undefined && sequence.hasAccepted(drafts, node, at));
