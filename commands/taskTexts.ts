/** Texts that tasks ask for: greedy continuations of their prompts, kept as soon as they are there. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { Ui } from '../driver/requests.js';
import type { FirstAnswer } from '../driver/startUp.js';
import { UserError } from '../errors.js';
import type { TaskName } from '../evaluate/question.js';
import { resultsFolder } from '../evaluate/shard.js';
import { type Shard } from '../evaluate/shardName.js';
import { TextJournal } from '../evaluate/journal.js';
import type { Answers } from '../evaluate/taskAnswers.js';
import { numberOf, type RunTask, type TaskFacts } from '../evaluate/windows.js';
import type { GeneratorCounts } from '../engine/modelStats.js';
import { wantsLogits } from '../engine/options.js';
import { GenerateError } from '../engine/request.js';
import type { ModelDrafts } from '../engine/speculation.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { defined } from '../system/defined.js';
import { counted } from '../system/text.js';
import { prepareOutput } from '../system/write.js';
import { type Generation, generationOf, type ModelDefaults, withDefaults } from '../tasks/requests/generation.js';
import { type Seeds, SEEDS } from '../tasks/requests/seeds.js';
import { type Demand, TOKEN_BYTES } from './cacheSize.js';
import { type DraftFigures, draftFigures } from './draftFigures.js';
import { engineOf } from './engineModel.js';
import type { LoadedModel } from './loadModel.js';
import { type EvaluationRequest, Interrupted } from './runRequest.js';
import { modelIdentity } from './scoreSet.js';
import { endTokensOf, textFactsOf, textsIdentity } from './textFacts.js';
import { type ContinueOptions, TextGenerator } from './textGenerator.js';
import { TextProgress } from './textProgress.js';

/** A prompt that is to be continued. */
export interface TextPrompt {
  /** The number of its document, and which of its requests it is. */
  readonly number: number;
  readonly request: number;
  readonly where: string;
  /** i32[n], cut on the left where it was too long. */
  readonly tokens: readonly number[];
  readonly generation: Generation;
  /** How many texts to generate: more than one only where they are sampled. */
  readonly texts: number;
  /** What drawn texts follow from, with their number. */
  readonly seed: number;
}

export interface TextPrompts {
  readonly prompts: readonly TextPrompt[];
  /** Prompts that lost their beginning. */
  readonly truncated: number;
}

const BATCH = 512;
/** Prompts that the scheduler has at a time. */
const MAX_AT_ONCE = 512;

export const asksForTexts = (tasks: readonly Pick<TaskFacts, 'scores'>[]): boolean =>
  tasks.some(({ scores }) => scores.type === 'generate_until');

/** The seed of a document's texts: its own, whatever other documents and tasks there are. */
function seedOf(seed: number, name: string, index: number): number {
  const digest = createHash('sha256')
    .update(JSON.stringify([seed, name, index]))
    .digest();
  return digest.readUIntBE(0, 6);
}

/** How prompts of texts become tokens. */
export interface TextWriting {
  readonly maxPositions: number;
  /** Whether a prompt names its special tokens itself. */
  readonly begins: (text: string) => boolean;
  readonly seed: number;
  /** The tokenizer's EOS, which ends texts where they spell it, too. */
  readonly end: string | undefined;
  /** What the model's files ask of texts. */
  readonly defaults: ModelDefaults;
}

/** A prompt as text. */
type AskedText = Omit<TextPrompt, 'tokens'> & { readonly text: string };

function askedTexts(tasks: readonly RunTask[], { seed, end, defaults }: TextWriting): AskedText[] {
  return tasks.flatMap((task) =>
    task.documents.flatMap((document) =>
      document.requests.flatMap((request, place) => {
        if (request.kind !== 'generate_until') return [];
        const index = document.index ?? document.docId;
        const where = `${task.name}, document ${index}`;
        const asked = withDefaults(generationOf(request.settings, where), defaults);
        const generation = end === undefined ? asked : { ...asked, stop: [...asked.stop, end] };
        return [
          {
            number: numberOf(task, document),
            request: place,
            where,
            text: request.context,
            generation,
            texts: generation.drawing === undefined ? 1 : task.scores.repeats,
            seed: seedOf(seed, task.name, index),
          },
        ];
      }),
    ),
  );
}

/**
 * Prompts as tokens. As in the public harness, what does not fit beside the tokens to generate is cut on the left.
 * Throws UserError.
 */
export async function tokenizeTexts(
  tasks: readonly RunTask[],
  tokenizer: Tokenizer,
  writing: TextWriting,
): Promise<TextPrompts> {
  const { maxPositions, begins } = writing;
  const asked = askedTexts(tasks, writing);
  const prompts: TextPrompt[] = [];
  let truncated = 0;
  for (let from = 0; from < asked.length; from += BATCH) {
    const batch = asked.slice(from, from + BATCH);
    const encoded = await tokenizer.encodeBatch(batch.map(({ text }) => text));
    for (const [i, { text, ...each }] of batch.entries()) {
      const tokens = begins(text) ? await tokenizer.encodeWritten(text) : Array.from(encoded[i]!);
      const { maxNewTokens } = each.generation;
      const room = maxPositions - maxNewTokens;
      if (room < 1)
        throw new UserError(
          `${each.where}: no room in the model's ${maxPositions} tokens beside ${maxNewTokens} to generate`,
          'use a model with a longer context, or leave the task out',
        );
      if (tokens.length === 0) throw new UserError(`${each.where}: the prompt has no tokens`);
      if (tokens.length > room) truncated++;
      prompts.push({ ...each, tokens: tokens.length > room ? tokens.slice(-room) : tokens });
    }
  }
  return { prompts, truncated };
}

/**
 * The prompts of one shard. Neighbours share what they begin with, so each shard has those between two places, by
 * tokens; the requests of a document stay together.
 */
export function promptsOfShard({ prompts, ...rest }: TextPrompts, { index, count }: Shard): TextPrompts {
  const workOf = ({ tokens, texts, generation }: TextPrompt): number => tokens.length + texts * generation.maxNewTokens;
  const total = prompts.reduce((sum, each) => sum + workOf(each), 0);
  const ofDocument = new Map<number, number>();
  let before = 0;
  for (const prompt of prompts) {
    const middle = before + workOf(prompt) / 2;
    if (!ofDocument.has(prompt.number))
      ofDocument.set(prompt.number, Math.min(count, 1 + Math.floor((middle / total) * count)));
    before += workOf(prompt);
  }
  return { ...rest, prompts: prompts.filter(({ number }) => ofDocument.get(number) === index) };
}

/** What prompts will need, by their texts; undefined where there are none. */
export function guessTexts(tasks: readonly RunTask[], writing: TextWriting): Demand | undefined {
  const guessed = askedTexts(tasks, writing).map(({ text, ...each }) => {
    const length = Math.ceil(Buffer.byteLength(text) / TOKEN_BYTES);
    return { ...each, tokens: { length: Math.min(length, writing.maxPositions) } };
  });
  return guessed.length === 0 ? undefined : demandOfTexts(guessed);
}

/** What demandOfTexts looks at. */
type Sized = Pick<TextPrompt, 'where' | 'generation' | 'texts'> & { readonly tokens: { readonly length: number } };

/** What all need of the memory for keys and values: answers may not depend on it, so each has room as a whole. */
export function demandOfTexts(prompts: readonly Sized[]): Demand {
  const wholeOf = ({ tokens, generation }: Sized): number => tokens.length + generation.maxNewTokens;
  const longest = prompts.reduce((a, b) => (wholeOf(b) > wholeOf(a) ? b : a));
  return {
    prompt: longest.tokens.length,
    where: longest.where,
    least: wholeOf(longest),
    longest: wholeOf(longest),
    total: prompts.reduce(
      (sum, { tokens, texts, generation }) => sum + tokens.length + texts * generation.maxNewTokens,
      0,
    ),
  };
}

export interface Written {
  /** By the number of the document, for each request its texts. */
  readonly texts: ReadonlyMap<number, readonly (readonly string[])[]>;
  readonly isInterrupted: boolean;
}

/** What a task's settings ask of a text, `promptTokens` behind its prompt. */
export function askedOf(
  { drawing, repetitionPenalty, maxNewTokens, stop, minNewTokens, minLength = 0 }: Generation,
  promptTokens: number,
): ContinueOptions {
  return {
    maxNewTokens,
    stop,
    ...drawing,
    ...defined({ repetitionPenalty }),
    minBeforeEos: minNewTokens ?? Math.max(0, minLength - promptTokens),
  };
}

/** Whether its tokens are chosen from whole rows of logits, for which a model is compiled in another way. */
export const asksForLogits = (generation: Generation): boolean => {
  const asked = askedOf(generation, 0);
  return (asked.minBeforeEos ?? 0) > 0 || wantsLogits(asked);
};

/** Continues prompts that the journal does not have yet. Throws UserError where one cannot be computed. */
export async function writeTexts(
  continuer: TextGenerator,
  prompts: readonly TextPrompt[],
  {
    journal,
    signal,
    onFirst,
  }: {
    readonly journal: TextJournal | undefined;
    readonly signal?: AbortSignal | undefined;
    /** Called once, with the first token. */
    readonly onFirst?: () => void;
  },
  ui: Pick<Ui, 'step'>,
): Promise<Written> {
  const texts = new Map<number, (readonly string[])[]>();
  const keep = (number: number, request: number, found: readonly string[]): void => {
    const own = texts.get(number) ?? [];
    own[request] = found;
    texts.set(number, own);
  };
  let done = 0;
  const left = prompts.filter(({ number, request, texts: wanted }) => {
    const found = journal?.textsOf(number, request) ?? [];
    if (found.length < wanted) return true;
    keep(number, request, found);
    return false;
  });
  // Neighbours begin alike: what they share is found in pages.
  const progress = new TextProgress(
    left.map(({ texts: n, generation }) => n * generation.maxNewTokens),
    ui,
    onFirst,
  );
  const entries = left.entries();
  const lane = async (): Promise<void> => {
    for (const [prompt, { number, request, where, tokens, texts: n, seed, generation }] of entries) {
      if (signal?.aborted === true) return;
      const drawn = generation.drawing === undefined ? {} : { seed, n };
      const onPiece = (): void => progress.add(prompt);
      const outcomes = await continuer.continue(tokens, {
        ...askedOf(generation, tokens.length),
        ...drawn,
        onPiece,
        signal,
      });
      const found: string[] = [];
      for (const outcome of outcomes) {
        if (outcome instanceof GenerateError) throw new UserError(`${where}: ${outcome.message}`);
        if (outcome instanceof Error) throw outcome;
        if (outcome.reason === 'aborted') return;
        if (outcome.reason === 'cache') throw new Error(`${where}: the text ended for lack of memory`);
        found.push(outcome.text);
      }
      keep(number, request, found);
      journal?.append(found.map((text, sample) => ({ number, request, sample, text })));
      progress.end(prompt);
      done++;
    }
  };
  await Promise.all(Array.from({ length: Math.min(MAX_AT_ONCE, left.length) }, lane));
  return { texts, isInterrupted: done < left.length };
}

/** Texts as answers, as many as each task asks for: the most likely text is always the same. */
export function textAnswers(tasks: readonly RunTask[], texts: Written['texts']): Answers['texts'] {
  const answers = new Map<number, readonly (readonly string[])[]>();
  for (const task of tasks)
    for (const document of task.documents) {
      const own = texts.get(numberOf(task, document));
      if (own === undefined) continue;
      answers.set(
        numberOf(task, document),
        own.map((found) => Array.from({ length: task.scores.repeats }, (_, i) => found[i % found.length]!)),
      );
    }
  return answers;
}

/** The part of a run of tasks that generates: texts with their journal, and what it took. */

export interface GeneratedTexts extends Pick<Written, 'texts'> {
  readonly counts: GeneratorCounts;
  readonly drafts: DraftFigures;
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
  /** Who proposes what may follow texts. */
  readonly drafts: ModelDrafts | undefined;
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
  const { model, tokenizer, prompts, request, first, drafts } = writing;
  const journal = await openJournal(writing);
  ui.phase('generate', counted(prompts.prompts.length, 'prompt'));
  if (journal !== undefined && journal.size > 0)
    ui.note(`${counted(journal.size, 'text')} taken over from ${journal.path}`);
  const continuer = new TextGenerator(engineOf(model, drafts), tokenizer, endTokensOf(model));
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
    const seconds = (performance.now() - started) / 1000;
    return { texts, counts: continuer.counts, drafts: draftFigures(continuer.stats), seconds };
  } finally {
    journal?.close();
  }
}
