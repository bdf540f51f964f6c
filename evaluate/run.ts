/** A whole evaluation: questions to tokens, tokens to answers with a journal, answers to files. */
import { defined } from '../system/defined.js';
import { prepareOutput } from '../system/write.js';
import type { Dataset } from './dataset.js';
import { evaluate, type EvaluateOptions, type Evaluation } from './evaluate.js';
import { checkJournal, Journal, journalPath } from './journal.js';
import type { RunIdentity } from './journal.js';
import type { TaskName } from './question.js';
import type { Scorer, Sharing } from './scorer.js';
import { printDocs } from './selection.js';
import { checkResumedShard, resultsFolder, type Shard, shardName } from './shard.js';
import { tokenizeAll, type TokenizedQuestion, type TokenizeOptions } from './tokenize.js';

export interface LoadedQuestions extends Dataset {
  readonly tokenized: readonly TokenizedQuestion[];
  /** Tokens that the tokenizer adds to every text. */
  readonly addedTokens: readonly number[];
}

/** Start it before the model loads and await it after. Throws UserError. */
export async function tokenizeDataset(dataset: Dataset, options: TokenizeOptions): Promise<LoadedQuestions> {
  const { questions: tokenized, added } = await tokenizeAll(dataset.questions, options);
  return { ...dataset, tokenized, addedTokens: added };
}

export interface ScoreOptions extends Pick<
  EvaluateOptions,
  'keepsTokens' | 'onProgress' | 'onWarning' | 'pathScorer' | 'plan' | 'shard' | 'signal' | 'turn'
> {
  readonly task: TaskName;
  readonly loaded: LoadedQuestions;
  readonly scorer: Scorer;
  readonly sharing: Sharing;
  /**
   * The folder given with --out; The journal and results go to its subfolder for the model, those of a shard one level
   * deeper.
   */
  readonly out: string;
  readonly modelName: string;
  /**
   * What else determines the answers: hashes of model and tokenizer, arithmetic, options. Task, questions and sharing
   * are added.
   */
  readonly identity: RunIdentity;
  readonly resume: boolean;
  /** Called with the new name of an earlier run's journal if it had to be renamed. */
  readonly onKept?: (path: string, kept: { readonly path: string; readonly questions: number }) => void;
}

export interface Scored extends Evaluation {
  readonly journal: string;
  /** Questions taken over from the journal. */
  readonly questionsResumed: number;
  /** What must agree for answers of different shards to be merged. */
  readonly identity: RunIdentity;
}

/** What a journal says of its questions. */
const identityOf = (task: TaskName, { sha256, docs, questions }: Dataset, sharing: Sharing): RunIdentity => ({
  task: task.name,
  taskVersion: task.version,
  dataset: sha256,
  sharing,
  docs: printDocs(docs),
  questions: questions.length,
});

/**
 * Refuses to resume with the journal of another run, before anything is compiled or tokenized. `identity`: what is
 * known of the model by then. Throws UserError.
 */
export function checkResumed(
  options: Pick<ScoreOptions, 'out' | 'modelName' | 'task' | 'sharing' | 'identity'> & {
    readonly shard: Shard | undefined;
    readonly dataset: Dataset;
  },
): void {
  const { out, modelName, shard, task, dataset, sharing, identity } = options;
  checkResumedShard(out, modelName, { task: task.name, dataset: dataset.sha256 }, shard);
  checkJournal(journalPath(resultsFolder(out, modelName, shard), task.name, dataset.sha256), {
    ...identity,
    ...identityOf(task, dataset, sharing),
  });
}

/** Scores with a journal. The journal is closed and on disk when this returns or throws. */
export async function scoreQuestions(options: ScoreOptions): Promise<Scored> {
  const { task, loaded, scorer, pathScorer, sharing, shard, plan, keepsTokens, onProgress, onWarning, signal, turn } =
    options;
  if (options.resume)
    checkResumedShard(options.out, options.modelName, { task: task.name, dataset: loaded.sha256 }, shard);
  const folder = resultsFolder(options.out, options.modelName, shard);
  prepareOutput(folder);
  const identity: RunIdentity = {
    ...options.identity,
    ...identityOf(task, loaded, sharing),
  };
  const journal = new Journal({
    path: journalPath(folder, task.name, loaded.sha256),
    resume: options.resume,
    choices: new Map(loaded.tokenized.map(({ docId, continuations }) => [docId, continuations.length])),
    identity: { ...identity, ...(shard === undefined ? {} : { shard: shardName(shard) }) },
  });
  // Answers without tokens, of a run that kept none, are computed again where tokens are asked for.
  const done =
    keepsTokens === true ? new Map([...journal.done].filter(([, { tokens }]) => tokens !== undefined)) : journal.done;
  if (journal.kept !== undefined) options.onKept?.(journal.path, journal.kept);
  try {
    const evaluation = await evaluate({
      questions: loaded.questions,
      tokenized: loaded.tokenized,
      scorer,
      pathScorer,
      sharing,
      shard,
      plan,
      done,
      keepsTokens,
      journal: journal.path,
      signal,
      turn,
      onFinished: (finished) => journal.append(finished),
      ...defined({ onProgress, onWarning }),
    });
    return { ...evaluation, journal: journal.path, questionsResumed: done.size, identity };
  } finally {
    journal.close();
  }
}
