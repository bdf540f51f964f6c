/** The part of a run of tasks that generates: texts with their journal, and what it took. */
import { join } from 'node:path';
import type { Ui } from '../driver/requests.js';
import { TextJournal } from '../evaluate/journal.js';
import { resultsFolder, type TaskName } from '../evaluate/index.js';
import type { GeneratorCounts } from '../generate/generator.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { counted } from '../system/text.js';
import { prepareOutput } from '../system/write.js';
import { type Seeds, SEEDS } from '../tasks/requests/seeds.js';
import { TextGenerator } from './continuation.js';
import { endTokensOf, textFactsOf, textsIdentity } from './endTokens.js';
import type { FirstAnswer } from './firstAnswer.js';
import type { LoadedModel } from './loadModel.js';
import { Interrupted, type EvaluationRequest } from './runRequest.js';
import { modelIdentity } from './scoreSet.js';
import { type TextPrompts, writeTexts, type Written } from './taskTexts.js';

export interface GeneratedTexts extends Pick<Written, 'texts'> {
  readonly counts: GeneratorCounts;
  readonly seconds: number;
}

export interface Writing {
  readonly model: LoadedModel;
  readonly tokenizer: Tokenizer;
  readonly prompts: TextPrompts;
  readonly request: EvaluationRequest;
  readonly task: TaskName;
  /** Names the requests. */
  readonly sha256: string;
  readonly modelName: string;
  /** Told of the first token, if nothing was answered before. */
  readonly first: FirstAnswer;
}

const seedsOf = ({ seeds = SEEDS }: EvaluationRequest): Seeds => seeds;

async function openJournal({
  model,
  request,
  task,
  sha256,
  modelName,
  prompts,
}: Writing): Promise<TextJournal | undefined> {
  const { output, resume } = request;
  if (output === undefined) return undefined;
  const draws = prompts.prompts.some(({ generation }) => generation.drawing !== undefined);
  const identity = {
    ...(await modelIdentity(model)),
    task: task.name,
    dataset: sha256,
    ...textsIdentity(textFactsOf(model)),
    ...(draws ? { seed: seedsOf(request).torch } : {}),
  };
  const name = `texts_${task.name}_${sha256.slice(0, 8)}.jsonl`;
  const folder = resultsFolder(output, modelName, request.shard);
  prepareOutput(folder);
  return new TextJournal(join(folder, name), identity, resume);
}

/** Throws Interrupted once the signal is aborted; what is written by then is in the journal. */
export async function generateTexts(writing: Writing, ui: Ui): Promise<GeneratedTexts> {
  const { model, tokenizer, prompts, request, first } = writing;
  const journal = await openJournal(writing);
  ui.phase('generate', counted(prompts.prompts.length, 'prompt'));
  if (journal !== undefined && journal.size > 0)
    ui.note(`${counted(journal.size, 'text')} taken over from ${journal.path}`);
  const continuer = new TextGenerator(model, tokenizer, endTokensOf(model));
  const started = performance.now();
  first.begin('first token');
  try {
    const { texts, isInterrupted } = await writeTexts(
      continuer,
      prompts.prompts,
      { journal, signal: request.signal, onFirst: () => first.came(model.executor) },
      ui,
    );
    if (isInterrupted) throw new Interrupted(texts.size);
    return { texts, counts: continuer.generator.counts, seconds: (performance.now() - started) / 1000 };
  } finally {
    journal?.close();
  }
}
