/** Runs as a page needs them: files, short names, and of each task the samples with what they say of questions. */
import { resolve } from 'node:path';
import { UsageError } from '../../errors.js';
import { findRun, type RunFiles, type TaskFiles } from '../../evaluate/compare/findRuns.js';
import { readSamples, type SampleSet } from '../../evaluate/compare/readSamples.js';
import type { QuestionText } from '../document/questions.js';
import { Categories, type Category } from './categories.js';
import { contextLength, goldOf, questionText } from './sampleTexts.js';
import { shortNames } from './shortNames.js';

const MAX_RUNS = 20;

/** A task of a run, with samples. Lists are by question, in the order of the file. */
export interface LoadedTask {
  readonly files: TaskFiles;
  readonly set: SampleSet;
  /** The right choice, from 0; -1 where it is not known. */
  readonly golds: readonly number[];
  /** Of contexts, in characters. */
  readonly lengths: readonly number[];
  readonly categories: readonly Category[];
  /** By number of the question. */
  readonly texts: ReadonlyMap<number, Omit<QuestionText, 'outputs'>>;
}

export interface LoadedRun {
  /** A short name that no other run of the page has. */
  readonly name: string;
  readonly files: RunFiles;
  /** Tasks whose samples are there. */
  readonly tasks: ReadonlyMap<string, LoadedTask>;
}

/** Texts that a page may hold in all, in characters: later questions have none. */
const MAX_TEXTS = 1 << 28;

/** Reads the samples of all runs, texts included, while there is room for them. */
class Loader {
  #room = MAX_TEXTS;

  task(files: TaskFiles, path: string): LoadedTask {
    const golds: number[] = [];
    const lengths: number[] = [];
    const categories = new Categories();
    const texts = new Map<number, Omit<QuestionText, 'outputs'>>();
    const set = readSamples(files, path, (answered, sample) => {
      golds.push(goldOf(answered, sample));
      lengths.push(contextLength(answered, sample));
      categories.take(sample['doc']);
      const text = questionText(answered, sample);
      const size = text.context.length + text.choices.reduce((sum, each) => sum + each.length, 0);
      if (size > this.#room) return;
      this.#room -= size;
      texts.set(answered.docId, text);
    });
    return { files, set, golds, lengths, texts, categories: categories.found() };
  }
}

/** Model and arithmetic, the folder where these are the same, and numbers where these are. */
function namesOf(runs: readonly RunFiles[]): string[] {
  // Other programs name a model by its path.
  const called = shortNames(runs.map(({ model }) => model));
  const models = runs.map(({ arithmetic }, i) =>
    arithmetic === undefined ? called[i]! : `${called[i]!}, ${arithmetic}`,
  );
  const isUnique = (names: readonly string[], name: string): boolean =>
    names.filter((each) => each === name).length < 2;
  const folders = shortNames(runs.map(({ path }) => resolve(path)));
  const named = models.map((name, i) => (isUnique(models, name) ? name : `${folders[i]!} (${name})`));
  return named.map((name, i) => (isUnique(named, name) ? name : `${i + 1}: ${name}`));
}

/** Each a folder of results, a results_*.json or a samples_*.jsonl. Throws UserError. */
export function loadRuns(paths: readonly string[]): LoadedRun[] {
  if (paths.length > MAX_RUNS)
    throw new UsageError(`${paths.length} runs are more than a page can show`, `give at most ${MAX_RUNS}`);
  const files = paths.map(findRun);
  const names = namesOf(files);
  const loader = new Loader();
  return files.map((each, i) => ({
    files: each,
    name: names[i]!,
    tasks: new Map(
      [...each.tasks].flatMap(([task, of]) =>
        of.samplesPath === undefined ? [] : [[task, loader.task(of, of.samplesPath)] as const],
      ),
    ),
  }));
}
