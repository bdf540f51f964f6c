/**
 * Answers to one question set, computed in many ways, compared to the bit: sharing modes, sizes of micro-batches, keys
 * grouped by position, parts of the set, and the function step. Without a test framework, so that tests on a GPU use it
 * from the bundle.
 */
import { beginLoading } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { Precision, TargetName } from '../../driver/precision.js';
import { loadDataset } from '../../evaluate/dataset.js';
import { tokenizeDataset } from '../../evaluate/evaluate.js';
import { fileTaskByName } from '../../evaluate/fileTasks.js';
import { Engine } from '../../engine/engine.js';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { SILENT } from './silent.js';

/** Log-likelihoods of the choices of each question, by its number. */
export type Answers = ReadonlyMap<number, readonly number[]>;

export interface Compared {
  readonly what: string;
  readonly questions: number;
  /** Choices with other bits than those of the whole set with sharing `tree`. */
  readonly others: number;
  readonly seconds: number;
}

export interface EveryAnswer {
  /** A checkpoint folder. */
  readonly model: string;
  /** A file of HellaSwag's questions. */
  readonly data: string;
  readonly target: TargetName;
  /** Of the function step; flags say it to `run`. Default: auto. */
  readonly precision?: Precision;
  /** Runs the command `run MODEL --task hellaswag --data DATA` with more flags and returns its samples. */
  readonly run: (flags: readonly string[]) => Promise<string>;
  /** Number of questions that step answers too. */
  readonly stepQuestions: number;
}

const CACHE_TOKENS = 16 * 4096;

interface Sample {
  readonly doc_id: number;
  readonly filtered_resps: readonly (readonly [number | string, ...unknown[]])[];
}

const answersIn = (samples: string): Answers =>
  new Map(
    samples
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Sample)
      .map(({ doc_id: id, filtered_resps: choices }) => [id, choices.map(([value]) => Number(value))]),
  );

/** The choices of the first `count` questions as prompts of which the last tokens are scored. */
async function answersByStep({
  model: dir,
  data,
  target,
  stepQuestions,
  precision = 'auto',
}: EveryAnswer): Promise<Answers> {
  const { spec } = openTokenizer(dir);
  const moduleUrl = new URL('../../models/tokenizer/tokenizer.js', import.meta.url).href;
  const dataset = await loadDataset({ path: data, task: fileTaskByName('hellaswag'), limit: stepQuestions });
  const { tokenized } = await tokenizeDataset(dataset, { tokenizer: { moduleUrl, spec }, workers: 0 });
  const request = { model: dir, init: { kind: 'checkpoint' }, precision, threads: 2, target } as const;
  const model = await beginLoading({ ...request, cacheTokens: CACHE_TOKENS }, SILENT, new Phases()).finish();
  try {
    const generator = Engine.of(deviceModelOf(model, CACHE_TOKENS));
    const answers = tokenized.map(async ({ docId, context, continuations }) => {
      const choices = continuations.map(async (continuation) => {
        const prompt = [...context, ...continuation];
        const { promptScores } = await generator.generate({ prompt, maxNewTokens: 0, scoreFrom: context.length });
        return promptScores.reduce((sum, { logProb }) => sum + logProb, 0);
      });
      return [docId, await Promise.all(choices)] as const;
    });
    return new Map(await Promise.all(answers));
  } finally {
    await model.close();
  }
}

/** A way to compute answers. */
export interface Way {
  readonly what: string;
  readonly answer: (request: EveryAnswer) => Promise<Answers>;
}

const byFlags = (...flags: readonly string[]): Way => ({
  what: flags.join(' '),
  answer: async ({ run }) => answersIn(await run(flags)),
});

/** The answers that all others must equal: the whole set with sharing `tree`. */
export const WHOLE: Way = byFlags('--sharing', 'tree');

/** All questions in the other sharing modes. */
export const SHARING_MODES: readonly Way[] = ['context', 'none', 'kv'].map((mode) => byFlags('--sharing', mode));

/** All other ways; those of flags with `questions` of the set, as `--docs` names them. */
export const otherWays = (...questions: readonly string[]): readonly Way[] => [
  ...[
    ['--prefixes', 'keep'],
    ['--batch-tokens', '1024'],
    ['--mask', 'path'],
  ].map((flags) => byFlags(...flags, ...questions)),
  byFlags('--docs', '500:1500'),
  byFlags('--docs', '0:2000', '--sharing', 'none'),
  // Many questions are longer than these calls.
  byFlags('--docs', '0:2000', '--batch-tokens', '96'),
  { what: 'the function step', answer: answersByStep },
];

/** Computes answers in one way and compares them with those of the whole set. */
export async function compareAnswers({ what, answer }: Way, request: EveryAnswer, wanted: Answers): Promise<Compared> {
  const begin = performance.now();
  const found = await answer(request);
  if (found.size === 0) throw new Error(`no answers: ${what}`);
  let others = 0;
  for (const [id, choices] of found) {
    const right = wanted.get(id);
    if (right?.length !== choices.length) throw new Error(`question ${id} has no answer in the whole set`);
    others += choices.filter((value, i) => !Object.is(value, right[i])).length;
  }
  return { what, questions: found.size, others, seconds: (performance.now() - begin) / 1000 };
}

/** Every way, with all questions, one after another. */
export async function compareEveryAnswer(request: EveryAnswer): Promise<readonly Compared[]> {
  const wanted = await WHOLE.answer(request);
  const compared: Compared[] = [];
  for (const way of [...SHARING_MODES, ...otherWays()]) compared.push(await compareAnswers(way, request, wanted));
  return compared;
}

/** What was compared, in a line. */
export const compareLine = ({ what, questions, others, seconds }: Compared): string => {
  const counts = `${String(questions).padStart(6)} questions ${String(others).padStart(6)} choices differ`;
  return `${what.padEnd(30)} ${counts} ${seconds.toFixed(1).padStart(7)} s`;
};

/** A line for each way. */
export const printCompared = (model: string, compared: readonly Compared[]): string =>
  [`${model}, against the whole set with --sharing tree:`, ...compared.map((each) => `  ${compareLine(each)}`)].join(
    '\n',
  );
