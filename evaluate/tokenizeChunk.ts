/** Tokenizes one chunk of questions, in a worker thread or, without workers, in the current one. */
import { rightStrip } from '../python/value.js';

/**
 * The interface that eval/ needs from a tokenizer: the ids of a text, with special tokens (BOS) as at the start of a
 * sequence.
 */
export interface TextTokenizer {
  encode(text: string): ArrayLike<number> | PromiseLike<ArrayLike<number>>;
  /** Used if present; must give the same results as encode for each text. */
  encodeBatch?(texts: string[]): readonly ArrayLike<number>[] | PromiseLike<readonly ArrayLike<number>[]>;
}

/**
 * The source of tokenizers: a module that exports `createTokenizer(spec)`, by URL so that a thread can load it, and its
 * argument, which must survive structured cloning.
 */
export interface TokenizerSource {
  readonly moduleUrl: string;
  readonly spec: unknown;
}

export interface ChunkRequest {
  readonly questions: readonly {
    readonly context: string;
    readonly contexts?: readonly string[] | undefined;
    readonly choices: readonly string[];
    readonly delimiter: string;
  }[];
}

/** For each question its context, or those of its choices, then each choice; lengths are in the same order. */
export interface ChunkReply {
  readonly tokens: Int32Array<ArrayBuffer>;
  readonly lengths: Int32Array<ArrayBuffer>;
}

/** Imports the module and makes a tokenizer. */
export async function loadTokenizer(source: TokenizerSource): Promise<TextTokenizer> {
  const module = (await import(source.moduleUrl)) as { createTokenizer?: unknown };
  const { createTokenizer } = module;
  if (typeof createTokenizer !== 'function') throw new Error(`${source.moduleUrl} exports no createTokenizer(spec)`);
  const make = createTokenizer as (spec: unknown) => TextTokenizer | PromiseLike<TextTokenizer>;
  return make(source.spec);
}

/** A text that a tokenizer refuses. Known by its name: classes do not cross threads, and modules may have copies. */
export const isUserError = (error: unknown): error is Error & { readonly hint?: string } =>
  error instanceof Error && error.name === 'UserError';

/** The place in its chunk of the first question that the tokenizer refuses, added to its error. */
async function blame(tokenizer: TextTokenizer, questions: readonly string[][], error: unknown): Promise<unknown> {
  if (!isUserError(error)) return error;
  for (const [question, texts] of questions.entries()) {
    try {
      await encodeAll(tokenizer, texts);
    } catch (own) {
      return isUserError(own) ? Object.assign(own, { question }) : own;
    }
  }
  return error;
}

async function encodeAll(tokenizer: TextTokenizer, texts: string[]): Promise<readonly ArrayLike<number>[]> {
  if (tokenizer.encodeBatch !== undefined) return tokenizer.encodeBatch(texts);
  const encoded: ArrayLike<number>[] = [];
  for (const text of texts) encoded.push(await tokenizer.encode(text));
  return encoded;
}

/**
 * Spaces at the end of the context belong to the choices. If the context alone has n tokens, the tokens of a choice are
 * those of the whole text after the first n. A context of all choices is encoded once per question, and its tokens are
 * the inputs for every choice.
 */
export async function encodeChunk(tokenizer: TextTokenizer, request: ChunkRequest): Promise<ChunkReply> {
  const ofQuestions = request.questions.map(({ context, contexts = [context], choices, delimiter }) => [
    ...contexts.map(rightStrip),
    ...choices.map((choice, i) => (contexts[i] ?? context) + delimiter + choice),
  ]);
  const texts = ofQuestions.flat();
  const encoded = await encodeAll(tokenizer, texts).catch(async (error: unknown) => {
    throw await blame(tokenizer, ofQuestions, error);
  });
  if (encoded.length !== texts.length)
    throw new Error(`the tokenizer gave ${encoded.length} results for ${texts.length} texts`);
  const lengths = new Int32Array(texts.length);
  const parts: { readonly ids: ArrayLike<number>; readonly from: number }[] = [];
  let at = 0,
    total = 0;
  for (const { contexts, choices } of request.questions) {
    const first = at;
    const count = contexts?.length ?? 1;
    for (let i = 0; i < count + choices.length; i++, at++) {
      const ids = encoded[at] ?? [];
      const own = encoded[first + (contexts === undefined ? 0 : i - count)];
      const from = i < count ? 0 : Math.min(own?.length ?? 0, ids.length);
      lengths[at] = ids.length - from;
      total += ids.length - from;
      parts.push({ ids, from });
    }
  }
  const tokens = new Int32Array(total);
  let to = 0;
  for (const { ids, from } of parts) for (let i = from; i < ids.length; i++) tokens[to++] = ids[i] ?? 0;
  return { tokens, lengths };
}
