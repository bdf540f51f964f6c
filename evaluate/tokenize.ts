/**
 * Tokenizes questions in worker threads while the dataset is still being read and the model loads. Workers need the
 * compiled tokenizeWorker.js beside this file. If there are only TypeScript sources (in tests), or no workers are
 * wanted, the same code runs in this thread.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import type { Question } from './question.js';
import { allBut } from './selection.js';
import {
  type ChunkReply,
  type ChunkRequest,
  encodeChunk,
  isUserError,
  loadTokenizer,
  type TextTokenizer,
  type TokenizerSource,
} from './tokenizeChunk.js';

export interface TokenizedQuestion extends Named {
  /** i32[n_ctx], the tokenizer's BOS included. */
  readonly context: Int32Array;
  /** For each choice i32[n_cont], at least one token. */
  readonly continuations: readonly Int32Array[];
  /** Where choices have contexts of their own, or any had to be cut: for each choice the end that fits with it. */
  readonly contexts?: readonly Int32Array[] | undefined;
  /** The one choice is a text that is to be cut into windows. */
  readonly isRolling?: boolean | undefined;
}

/** The context of one choice. */
export const contextOf = ({ context, contexts }: TokenizedQuestion, choice: number): Int32Array =>
  contexts?.[choice] ?? context;

export interface TokenizeOptions {
  readonly tokenizer: TokenizerSource;
  /** Threads; 0 tokenizes in the current thread. Default 2. */
  readonly workers?: number;
  /** Questions per message. Default 64. */
  readonly chunk?: number;
  /** Threads that are open already, and stay open; instead of `workers`. */
  readonly threads?: TokenizerThreads | undefined;
  /** Stands in for a context without tokens; refused where it is absent. */
  readonly prefixToken?: number | undefined;
}

const DEFAULT_WORKERS = 2;
const DEFAULT_CHUNK = 64;
/**
 * Size of V8's young generation, in MiB per thread. A tokenizer's results look small to V8 but hold much memory outside
 * it; a small young generation frees them soon.
 */
const YOUNG_MIB = 2;

const EMPTY: Question = { docId: -1, doc: {}, context: '', choices: [], gold: 0, delimiter: '' };

export interface Tokenized {
  readonly questions: readonly TokenizedQuestion[];
  /** Tokens that the tokenizer adds to every text: a beginning-of-text token, or none. */
  readonly added: readonly number[];
}

/** Tokenizes chunks, one at a time. */
interface Lane {
  encode(request: ChunkRequest): Promise<ChunkReply>;
  close(): Promise<void>;
}

/** A thread's answer to a chunk that it cannot tokenize. */
interface Refusal {
  readonly error: string;
  readonly hint: string | undefined;
  /** Place in its chunk of the question at fault, if one is. */
  readonly question: number | undefined;
  readonly isUser: boolean;
}

function workerLane(file: URL, source: TokenizerSource): Lane {
  const worker = new Worker(file, { workerData: source, resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MIB } });
  let settle: { resolve(reply: ChunkReply): void; reject(error: Error): void } | undefined;
  let failure: Error | undefined;
  const fail = (error: Error): void => {
    failure ??= error;
    settle?.reject(failure);
    settle = undefined;
  };
  worker.on('message', (reply: ChunkReply | Refusal) => {
    if ('error' in reply) {
      const { error, hint, question, isUser } = reply;
      return fail(isUser ? Object.assign(new UserError(error, hint), { question }) : new Error(error));
    }
    settle?.resolve(reply);
    settle = undefined;
  });
  worker.on('error', fail);
  worker.on('exit', (code) => fail(new Error(`a tokenizer thread ended early, exit code ${code}`)));
  return {
    encode: (request) =>
      new Promise((resolve, reject) => {
        if (failure !== undefined) return reject(failure);
        settle = { resolve, reject };
        worker.postMessage(request);
      }),
    close: async () => {
      await worker.terminate();
    },
  };
}

function localLane(source: TokenizerSource): Lane {
  let loading: Promise<TextTokenizer> | undefined;
  return {
    encode: async (request) => {
      loading ??= loadTokenizer(source);
      const reply = await encodeChunk(await loading, request);
      // A turn of the event loop, so that progress and signals are served.
      await new Promise((resolve) => setImmediate(resolve));
      return reply;
    },
    close: async () => {},
  };
}

/** Undoes the flattening of a reply. */
function unpack(questions: readonly Question[], reply: ChunkReply): TokenizedQuestion[] {
  let at = 0,
    length = 0;
  const take = (): Int32Array => reply.tokens.subarray(at, (at += reply.lengths[length++] ?? 0));
  return questions.map(({ docId, where, contexts: texts, choices, isRolling }): TokenizedQuestion => {
    const contexts = (texts ?? ['']).map(take);
    const of = { docId, context: contexts[0] ?? new Int32Array(), continuations: choices.map(take) };
    return {
      ...of,
      ...defined({ where }),
      ...defined({ contexts: texts && contexts }),
      ...(isRolling === true ? { isRolling } : {}),
    };
  });
}

/** Threads with a tokenizer, for one set of questions after another. */
export class TokenizerThreads {
  readonly lanes: readonly Lane[];

  /** Started at once: loading the tokenizer overlaps with reading the questions. */
  constructor({ tokenizer, workers: wanted = DEFAULT_WORKERS }: Pick<TokenizeOptions, 'tokenizer' | 'workers'>) {
    const file = new URL('./tokenizeWorker.js', import.meta.url);
    const workers = file.protocol === 'file:' && existsSync(fileURLToPath(file)) ? wanted : 0;
    this.lanes =
      workers === 0 ? [localLane(tokenizer)] : Array.from({ length: workers }, () => workerLane(file, tokenizer));
  }

  async close(): Promise<void> {
    await Promise.all(this.lanes.map((lane) => lane.close()));
  }
}

/** Accepts questions one by one and tokenizes them in the background. */
export class QuestionTokenizer {
  readonly #threads: TokenizerThreads;
  readonly #busy: Promise<void>[] = [];
  readonly #queue: { readonly index: number; readonly questions: readonly Question[] }[] = [];
  readonly #done: TokenizedQuestion[][] = [];
  readonly #options: TokenizeOptions;
  /** An empty text comes first; its tokens are those that the tokenizer adds to every text. */
  #pending: Question[] = [EMPTY];
  #chunks = 0;
  #failure: unknown;

  constructor(options: TokenizeOptions) {
    this.#options = options;
    this.#threads = options.threads ?? new TokenizerThreads(options);
  }

  /** Queues a question. Errors surface in finish(). */
  add(question: Question): void {
    this.#pending.push(question);
    if (this.#pending.length >= (this.#options.chunk ?? DEFAULT_CHUNK)) this.#flush();
  }

  #flush(): void {
    if (this.#pending.length === 0) return;
    this.#queue.push({ index: this.#chunks++, questions: this.#pending });
    this.#pending = [];
    for (const [i, lane] of this.#threads.lanes.entries()) this.#busy[i] ??= this.#drain(lane, i);
  }

  /** Feeds one lane until the queue is empty. Never rejects. */
  async #drain(lane: Lane, index: number): Promise<void> {
    // Wait until the caller has recorded that this lane is busy.
    await Promise.resolve();
    let chunk: readonly Question[] = [];
    try {
      for (let job = this.#queue.shift(); job !== undefined; job = this.#queue.shift()) {
        chunk = job.questions;
        const questions = job.questions.map(({ context, contexts, choices, delimiter }) => ({
          context,
          contexts,
          choices,
          delimiter,
        }));
        this.#done[job.index] = unpack(job.questions, await lane.encode({ questions }));
      }
    } catch (error) {
      this.#failure ??= nameQuestion(error, chunk);
      this.#queue.length = 0;
    }
    delete this.#busy[index];
  }

  /** All questions in the order in which they were added. Ends threads of its own. */
  async finish(): Promise<Tokenized> {
    try {
      this.#flush();
      await Promise.all(this.#busy);
      if (this.#failure !== undefined) throw this.#failure;
      const [empty, ...bare] = this.#done.flat();
      const { prefixToken } = this.#options;
      const questions = prefixToken === undefined ? bare : bare.map((each) => withPrefix(each, prefixToken));
      for (const question of questions) checkTokens(question);
      return { questions, added: [...(empty?.context ?? [])] };
    } finally {
      await this.close();
    }
  }

  /** Ends threads of its own; for leaving before finish(). */
  async close(): Promise<void> {
    this.#queue.length = 0;
    if (this.#options.threads === undefined) await this.#threads.close();
  }
}

/** An error about a text, with the question of the chunk that it belongs to and how to leave it out. */
function nameQuestion(error: unknown, chunk: readonly Question[]): unknown {
  if (!isUserError(error) || !('question' in error) || typeof error.question !== 'number') return error;
  const question = chunk[error.question];
  if (question === undefined || question === EMPTY) return error;
  const { docId, line } = question;
  const where = `${questionName(question)}${line === undefined ? '' : ` (line ${line})`}`;
  return new UserError(
    `${where}: ${error.message}`,
    `${leaveOut(question, `score all others with --docs ${allBut(docId)}`)}, or use the tokenizer.json of the model`,
    { cause: error },
  );
}

/** A context without tokens becomes the prefix token, or the choice's own first token where that is it. */
function withPrefix(question: TokenizedQuestion, prefixToken: number): TokenizedQuestion {
  const { context, continuations, isRolling } = question;
  if (context.length > 0 && question.contexts?.every(({ length }) => length > 0) !== false) return question;
  const prefix = Int32Array.of(prefixToken);
  const contexts = continuations.map((_, choice) => contextOf(question, choice));
  const begins = contexts.map(
    ({ length }, i) => length === 0 && isRolling !== true && continuations[i]![0] === prefixToken,
  );
  const own = contexts.map((each) => (each.length === 0 ? prefix : each));
  return {
    ...question,
    context: own[0] ?? prefix,
    continuations: continuations.map((tokens, i) => (begins[i] === true ? tokens.subarray(1) : tokens)),
    ...defined({ contexts: question.contexts && own }),
  };
}

function checkTokens(question: TokenizedQuestion): void {
  const { docId, context, contexts = [context], continuations, isRolling } = question;
  if (contexts.some(({ length }) => length === 0)) {
    throw new UserError(
      `${questionName(question)}: the context has no tokens, so nothing predicts the first token of a choice`,
      'Give the question a context, or use a tokenizer that adds a beginning-of-text token',
    );
  }
  const empty = continuations.findIndex((tokens) => tokens.length === 0);
  if (empty >= 0 && isRolling !== true) {
    throw new UserError(
      `${questionName(question)}, choice ${empty}: the choice adds no token to its context, so it has no likelihood`,
      'Check the choice in the dataset, or ' +
        leaveOut(question, `score all other questions with --docs ${allBut(docId)}`),
    );
  }
}

/** Tokenizes questions that are already in memory, and returns the tokens that the tokenizer adds. */
export async function tokenizeAll(questions: Iterable<Question>, options: TokenizeOptions): Promise<Tokenized> {
  const tokenizer = new QuestionTokenizer(options);
  for (const question of questions) tokenizer.add(question);
  return tokenizer.finish();
}

export const tokenizeQuestions = async (
  questions: Iterable<Question>,
  options: TokenizeOptions,
): Promise<readonly TokenizedQuestion[]> => (await tokenizeAll(questions, options)).questions;

/** How messages name a question, and what they advise where one is in the way. */

export interface Named {
  readonly docId: number;
  /** Where it is from, if it is not from a file of questions: `arc_easy, document 3`. */
  readonly where?: string | undefined;
}

export const questionName = ({ docId, where }: Named): string => where ?? `question ${docId}`;

/** `ofFile`: what leaves out a question of a file. Documents of tasks have no --docs. */
export const leaveOut = ({ where }: Named, ofFile: string): string =>
  where === undefined ? ofFile : 'leave its task out, or name the documents that are to be scored with --samples';
