/** Texts that tasks ask for: greedy continuations of their prompts, kept as soon as they are there. */
import type { Answers } from '../../eval/harness/answers.js';
import { numberOf, type RunTask } from '../../eval/harness/documents.js';
import type { TextJournal } from '../../eval/harness/textJournal.js';
import type { Demand } from './cacheSize.js';
import { UserError } from '../../errors.js';
import { GenerateError } from '../../generate/request.js';
import { isInt, isList, type Dict } from '../../tasks/python/value.js';
import type { Tokenizer } from '../../models/tokenizer.js';
import { stepTo, type Ui } from '../requests.js';
import type { Continuer } from './continuation.js';

/** A prompt that is to be continued. */
export interface TextPrompt {
  /** The number of its document, and which of its requests it is. */
  readonly number: number;
  readonly request: number;
  readonly where: string;
  /** i32[n], cut on the left where it was too long. */
  readonly tokens: readonly number[];
  readonly maxNewTokens: number;
  readonly stop: readonly string[];
}

export interface TextPrompts {
  readonly prompts: readonly TextPrompt[];
  /** Prompts that lost their beginning. */
  readonly truncated: number;
}

/** What the harness generates where a task does not say. */
const DEFAULT_TOKENS = 256;
const BATCH = 512;
/** Prompts that the scheduler has at a time. */
const MOST_AT_ONCE = 512;

export const asksForTexts = (tasks: readonly Pick<RunTask, 'scores'>[]): boolean =>
  tasks.some(({ scores }) => scores.type === 'generate_until');

function limitsOf(settings: Dict, where: string): Pick<TextPrompt, 'maxNewTokens' | 'stop'> {
  const most = settings.get('max_gen_toks') ?? DEFAULT_TOKENS;
  if (!isInt(most) || most < 1) throw new UserError(`${where}: max_gen_toks: expected a number from 1`);
  const until = settings.get('until') ?? [];
  const stop = (isList(until) ? until : [until]).filter((text) => typeof text === 'string');
  return { maxNewTokens: Number(most), stop: stop.filter((text) => text !== '') };
}

/**
 * Prompts as tokens. As in the public harness, what does not fit beside the tokens to generate is cut on the left.
 * `isWritten`: prompts name their special tokens themselves. Throws UserError.
 */
export async function tokeniseTexts(
  tasks: readonly RunTask[],
  tokenizer: Tokenizer,
  { maxPositions, begins }: { readonly maxPositions: number; readonly begins: (text: string) => boolean },
): Promise<TextPrompts> {
  const asked = tasks.flatMap((task) =>
    task.documents.flatMap((document) =>
      document.requests.flatMap((request, place) => {
        if (request.kind !== 'generate_until') return [];
        const where = `${task.name}, document ${document.docId}`;
        const number = numberOf(task, document);
        return [{ number, request: place, where, text: request.context, ...limitsOf(request.settings, where) }];
      }),
    ),
  );
  const prompts: TextPrompt[] = [];
  let truncated = 0;
  for (let from = 0; from < asked.length; from += BATCH) {
    const batch = asked.slice(from, from + BATCH);
    const encoded = await tokenizer.encodeBatch(batch.map(({ text }) => text));
    for (const [i, { text, ...each }] of batch.entries()) {
      const tokens = begins(text) ? await tokenizer.encodeWritten(text) : Array.from(encoded[i]!);
      const room = maxPositions - each.maxNewTokens;
      if (room < 1)
        throw new UserError(
          `${each.where}: ${each.maxNewTokens} tokens to generate leave no room in the model's ${maxPositions}`,
          'use a model with a longer context, or leave the task out',
        );
      if (tokens.length === 0) throw new UserError(`${each.where}: the prompt has no tokens`);
      if (tokens.length > room) truncated++;
      prompts.push({ ...each, tokens: tokens.length > room ? tokens.slice(-room) : tokens });
    }
  }
  return { prompts, truncated };
}

/** What all of them need of the memory for keys and values. */
export function demandOfTexts(prompts: readonly TextPrompt[]): Demand {
  const longest = prompts.reduce((a, b) => (b.tokens.length > a.tokens.length ? b : a));
  return {
    prompt: longest.tokens.length,
    where: longest.where,
    total: prompts.reduce((sum, { tokens, maxNewTokens }) => sum + tokens.length + maxNewTokens, 0),
  };
}

export interface Written {
  /** By the number of the document, a text for each request. */
  readonly texts: ReadonlyMap<number, readonly string[]>;
  readonly isInterrupted: boolean;
}

/** Continues prompts that the journal does not have yet. Throws UserError where one cannot be computed. */
export async function writeTexts(
  continuer: Continuer,
  prompts: readonly TextPrompt[],
  { journal, signal }: { readonly journal: TextJournal | undefined; readonly signal?: AbortSignal | undefined },
  ui: Pick<Ui, 'step'>,
): Promise<Written> {
  const texts = new Map<number, string[]>();
  const keep = (number: number, request: number, text: string): void => {
    const own = texts.get(number) ?? [];
    own[request] = text;
    texts.set(number, own);
  };
  let done = 0;
  const left = prompts.filter(({ number, request }) => {
    const text = journal?.done.get(`${number} ${request}`);
    if (text !== undefined) keep(number, request, text);
    return text === undefined;
  });
  // Neighbours begin alike: what they share is found in pages.
  const entries = left.values();
  const lane = async (): Promise<void> => {
    for (const { number, request, where, tokens, maxNewTokens, stop } of entries) {
      if (signal?.aborted === true) return;
      const [outcome] = await continuer.continue(tokens, { maxNewTokens, stop, signal });
      if (outcome === undefined || outcome instanceof Error) {
        if (outcome instanceof GenerateError) throw new UserError(`${where}: ${outcome.message}`);
        throw outcome ?? new Error(`${where}: no text`);
      }
      if (outcome.reason === 'aborted') return;
      keep(number, request, outcome.text);
      journal?.append({ number, request, text: outcome.text });
      stepTo(ui, { done: ++done, total: left.length, unit: 'texts' });
    }
  };
  await Promise.all(Array.from({ length: Math.min(MOST_AT_ONCE, left.length) }, lane));
  return { texts, isInterrupted: done < left.length };
}

/** Texts as answers, each as often as its task asks: the most likely text is always the same. */
export function textAnswers(tasks: readonly RunTask[], texts: Written['texts']): Answers['texts'] {
  const answers = new Map<number, readonly (readonly string[])[]>();
  for (const task of tasks)
    for (const document of task.documents) {
      const own = texts.get(numberOf(task, document));
      if (own === undefined) continue;
      answers.set(
        numberOf(task, document),
        own.map((text) => Array.from({ length: task.scores.repeats }, () => text)),
      );
    }
  return answers;
}
