/** A task of two runs. */
import { counted } from '../../system/format.js';
import {
  type ChoiceDifference,
  compareChoices,
  compareLikelihoods,
  compareTexts,
  type LikelihoodDifference,
  type TextDifference,
} from './compareAnswers.js';
import { compareMetrics, type MetricDifference, type MetricOfTask } from './compareMetrics.js';
import type { TaskFiles } from './findRuns.js';
import { matchQuestions } from './matchQuestions.js';
import { readSamples, type SampleSet } from './readSamples.js';

/** How many questions there are; lists of numbers name the first few. */
export interface Questions {
  readonly common: number;
  readonly onlyA: number;
  readonly onlyB: number;
  readonly namesOfA: readonly number[];
  readonly namesOfB: readonly number[];
  /** Common questions that have another number in B. */
  readonly renumbered: number;
  /** Questions of one number in both that are not the same. */
  readonly otherContent: number;
  /** Common questions that were asked differently. */
  readonly otherPrompt: number;
}

export interface TaskDifference {
  readonly task: string;
  readonly questions: Questions;
  readonly metrics: readonly MetricDifference[];
  readonly likelihoods: LikelihoodDifference | null;
  readonly choices: ChoiceDifference | null;
  readonly texts: TextDifference | null;
  /** Everything that was answered to common questions is equal to the bit. */
  readonly isEqual: boolean;
  /** What was amiss, a line each. */
  readonly notes: readonly string[];
}

/** With what groups are computed from. */
export interface ComparedTask extends Omit<TaskDifference, 'metrics'> {
  readonly metrics: readonly MetricOfTask[];
}

const NAMED = 10;

const none: Omit<TaskDifference, 'task' | 'notes' | 'metrics'> = {
  questions: {
    common: 0,
    onlyA: 0,
    onlyB: 0,
    namesOfA: [],
    namesOfB: [],
    renumbered: 0,
    otherContent: 0,
    otherPrompt: 0,
  },
  likelihoods: null,
  choices: null,
  texts: null,
  isEqual: false,
};

const differs = (what: string, a: unknown, b: unknown): readonly string[] =>
  a === undefined || b === undefined || a === null || b === null || Number(a) === Number(b) || a === b
    ? []
    : [`${what}: ${JSON.stringify(a)} in A, ${JSON.stringify(b)} in B`];

/** Reads the samples of a task; who has them already hands them over. */
export type SampleReader = (task: TaskFiles, path: string) => SampleSet;

/** Throws UserError for samples that cannot be read. */
export function compareTask(a: TaskFiles, b: TaskFiles, read: SampleReader = readSamples): ComparedTask {
  const { task } = a;
  const notes = [
    ...differs('examples before each question', a.shots, b.shots),
    ...differs('version', a.version, b.version),
  ];
  const without = [a, b].flatMap(({ samplesPath }, i) => (samplesPath === undefined ? [i === 0 ? 'A' : 'B'] : []));
  if (a.samplesPath === undefined || b.samplesPath === undefined)
    return {
      ...none,
      task,
      metrics: [],
      notes: [...notes, `no samples_*.jsonl in ${without.join(' and ')}: questions cannot be compared one by one`],
    };
  const [setA, setB] = [read(a, a.samplesPath), read(b, b.samplesPath)];
  const matched = matchQuestions(setA, setB);
  const { pairs, onlyA, onlyB, renumbered, otherContent, otherPrompt } = matched;
  const likelihoods = compareLikelihoods(pairs) ?? null;
  const texts = compareTexts(pairs, setA, setB) ?? null;
  const { metrics, notes: left } = compareMetrics(a, pairs, setA, setB);
  const isEqual =
    pairs.length > 0 &&
    metrics.every(({ difference, flips }) => difference === 0 && (flips?.rightToWrong ?? 0) === 0) &&
    (likelihoods === null || (likelihoods.equal === likelihoods.count && likelihoods.notFinite === 0)) &&
    (texts === null || texts.equal === texts.questions) &&
    (likelihoods !== null || texts !== null);
  const unlike = pairs.filter((pair) => pair.a.lls?.length !== pair.b.lls?.length).length;
  return {
    task,
    questions: {
      common: pairs.length,
      onlyA: onlyA.length,
      onlyB: onlyB.length,
      namesOfA: onlyA.slice(0, NAMED),
      namesOfB: onlyB.slice(0, NAMED),
      renumbered,
      otherContent,
      otherPrompt,
    },
    metrics,
    likelihoods,
    texts,
    isEqual,
    choices: compareChoices(pairs) ?? null,
    notes: [
      ...notes,
      ...setA.notes,
      ...setB.notes,
      ...left,
      ...(unlike === 0 ? [] : [`${counted(unlike, 'question')} with another number of choices: answers not compared`]),
    ],
  };
}
