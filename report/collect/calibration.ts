/** How probable choices are beside how often they are right, and how far right choices lead. */
import type { Answered } from '../../evaluate/compare/readSamples.js';
import type { Calibration, Margins } from '../document/results.js';
import { chosenOf, marginOf } from './answers.js';
import { wilson } from './intervals.js';
import type { LoadedTask } from './loadRuns.js';

/** A question whose right choice is known. */
interface Judged {
  readonly answered: Answered;
  readonly gold: number;
}

/** The questions of tasks whose right choice is known. */
const judgedOf = (tasks: readonly LoadedTask[]): Judged[] =>
  tasks.flatMap(({ set, golds }) =>
    [...set.questions.values()].flatMap((answered, i) => (golds[i]! < 0 ? [] : [{ answered, gold: golds[i]! }])),
  );

const BINS = 10;
const CLOSE = 0.5;
const MARGIN_BINS = 40;

/** The share of the largest in the softmax of log-likelihoods. */
export function confidenceOf(lls: Float64Array, chosen: number): number {
  let sum = 0;
  for (const each of lls) sum += Math.exp(each - lls[chosen]!);
  return 1 / sum;
}

/** Of one task, or of several as one. Undefined where no question has choices of which the right one is known. */
export function calibrationOf(name: string, tasks: readonly LoadedTask[]): Calibration | undefined {
  const bins = Array.from({ length: BINS }, () => ({ questions: 0, right: 0, confidence: 0 }));
  let questions = 0;
  for (const { answered, gold } of judgedOf(tasks)) {
    const chosen = chosenOf(answered);
    if (chosen < 0) continue;
    const confidence = confidenceOf(answered.lls!.subarray(0, answered.choices), chosen);
    if (!Number.isFinite(confidence)) continue;
    const bin = bins[Math.min(BINS - 1, Math.floor(confidence * BINS))]!;
    bin.questions++;
    bin.confidence += confidence;
    if (chosen === gold) bin.right++;
    questions++;
  }
  if (questions === 0) return undefined;
  return {
    task: name,
    questions,
    ece: bins.reduce((sum, { right, confidence }) => sum + Math.abs(right - confidence), 0) / questions,
    bins: bins.map((bin, i) => ({
      from: i / BINS,
      to: (i + 1) / BINS,
      questions: bin.questions,
      confidence: bin.questions === 0 ? 0 : bin.confidence / bin.questions,
      accuracy: bin.questions === 0 ? 0 : bin.right / bin.questions,
      interval: wilson(bin.right, bin.questions),
    })),
  };
}

/** 1, 2 or 5 times a power of ten, at least `least`. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * (1 - 1e-9)) ?? 10 * power;
}

/** Undefined where no question has a margin. All but one in a hundred at each end lie in bins of their own. */
export function marginsOf(name: string, tasks: readonly LoadedTask[]): Margins | undefined {
  const all = judgedOf(tasks).flatMap(({ answered, gold }) => marginOf(answered, gold) ?? []);
  if (all.length === 0) return undefined;
  const sorted = Float64Array.from(all).sort();
  const at = (share: number): number => sorted[Math.round(share * (sorted.length - 1))]!;
  const reach = Math.max(Math.abs(at(0.01)), Math.abs(at(0.99)), 1e-6);
  const step = roundStep((2 * reach) / MARGIN_BINS);
  const half = Math.ceil(reach / step);
  const counts = new Array<number>(2 * half).fill(0);
  for (const margin of all) counts[Math.min(2 * half - 1, Math.max(0, Math.floor(margin / step) + half))]!++;
  return {
    task: name,
    questions: all.length,
    median: at(0.5),
    close: all.filter((margin) => Math.abs(margin) < CLOSE).length,
    bins: counts.map((questions, i) => ({ from: (i - half) * step, to: (i - half + 1) * step, questions })),
  };
}
