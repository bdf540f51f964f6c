/** Text in and out of a model that is served. */
import { join } from 'node:path';
import { ChatTemplate, findChatTemplate, type FoundTemplate } from '../../models/chat/template.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import type { TokenizerSpec } from '../../models/tokenizer/files.js';
import type { TextBounds } from '../../models/tokenizer/namedTokens.js';
import { findGgufModel } from '../../models/weights/weightFiles.js';
import { UserError } from '../../errors.js';
import { valueOf } from '../../python/literal.js';
import type { Dict } from '../../python/value.js';
import { defined } from '../../system/defined.js';
import { fileSize, readJsonObject } from '../../system/read.js';
import { ApiError, badRequest } from '../apiError.js';
import type { ChatInput, ModelTexts } from '../models.js';
import { encodeTexts } from './encodeTexts.js';
import { EncodeThread } from './encodeThread.js';

const CONFIG_BYTES = 8 << 20;

/** Where the texts of a model are described: plain data. */
export interface TextFiles {
  /** The folder of the checkpoint, or a GGUF file. */
  readonly path: string;
  readonly tokenizer: TokenizerSpec;
  readonly bounds: TextBounds;
}

export interface OpenTexts extends ModelTexts {
  close(): Promise<void>;
}

/** Letters that are encoded in this thread. The native library has threads of its own, but ids are gathered here. */
const SHORT = 8 << 10;
/** Longer texts have a thread of their own, so that others do not wait for them. */
const LONG = 256 << 10;
/** Letters of one token at most: a text with more for each token of the longest text is too long. */
const TOKEN_LETTERS = 256;

/** `maxLength`: longest text of the model, in tokens. Throws UserError where files are damaged. */
export function openTexts({ path, tokenizer: spec, bounds }: TextFiles, maxLength: number): OpenTexts {
  const tokenizer = createTokenizer(spec);
  const found = findChatTemplate(path);
  const templates = found === undefined ? undefined : new Lanes(() => new ChatTemplate(found));
  const threads = new Lanes(() => EncodeThread.of(spec));
  const encode = async (
    texts: readonly string[],
    addSpecialTokens: boolean,
  ): Promise<readonly (readonly number[])[]> => {
    const letters = texts.reduce((sum, { length }) => sum + length, 0);
    if (texts.some(({ length }) => length > TOKEN_LETTERS * maxLength))
      throw badRequest(`The text is longer than ${maxLength} tokens can be.`, undefined, 'context_length_exceeded');
    const thread = letters > SHORT ? threads.of(letters) : undefined;
    const ids = await (thread?.encode({ texts, addSpecialTokens }) ?? encodeTexts(tokenizer, texts, addSpecialTokens));
    return ids.map((each) => Array.from(each));
  };
  return {
    detokenizer: tokenizer.detokenizer(),
    tokenizerInfo: infoOf(path, bounds, found),
    encode: (texts, addSpecialTokens = true) => asked(() => encode(texts, addSpecialTokens)),
    renderChat: (conversation) =>
      asked(async () => {
        if (templates === undefined)
          throw badRequest('The model has no chat template: ask it by /v1/completions.', 'messages');
        const text = await templates.run(lettersOf(conversation, LONG), (template) => render(template, conversation));
        const [tokens = []] = await encode([text], false);
        return { text, tokens };
      }),
    close: async () => {
      await Promise.all([templates?.close(), threads.close()]);
    },
  };
}

/** Two threads, one of which is kept free of long work. Each is made when it is needed. */
class Lanes<T extends { close(): Promise<void> } | undefined> {
  private readonly make: () => T;
  private readonly made: { readonly thread: T }[] = [];
  private waiting = 0;

  constructor(make: () => T) {
    this.make = make;
  }

  of(letters: number): T {
    return (this.made[letters > LONG ? 1 : 0] ??= { thread: this.make() }).thread;
  }

  /** Throws ApiError 429 where too much waits. */
  async run<R>(letters: number, work: (thread: T) => Promise<R>): Promise<R> {
    if (this.waiting >= MAX_WAITING)
      throw new ApiError(429, 'Too many conversations wait to be written. Try again later.', { retryAfter: 5 });
    this.waiting++;
    try {
      return await work(this.of(letters));
    } finally {
      this.waiting--;
    }
  }

  async close(): Promise<void> {
    for (const { thread } of this.made) await thread?.close();
  }
}

const MAX_WAITING = 1024;

/** Letters and values of a JSON value, counted up to a bit more than `most`. */
function lettersOf(value: unknown, most: number): number {
  let count = 1;
  if (typeof value === 'string') return count + value.length;
  if (typeof value !== 'object' || value === null) return count;
  for (const [key, each] of Object.entries(value)) {
    if (count > most) break;
    count += key.length + lettersOf(each, most - count);
  }
  return count;
}

/** Errors of tokenizers and templates are the request's. */
async function asked<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof UserError) throw badRequest(messageOf(error));
    throw error;
  }
}

/** Without the path of the file. */
const messageOf = ({ message }: UserError): string => message.replace(/^\S*\/\S*: /, '');

async function render(template: ChatTemplate, input: ChatInput): Promise<string> {
  const { messages, tools, documents, addGenerationPrompt, continueFinalMessage, variables } = input;
  return template.render({
    messages: messages.map(valueOf),
    opensAnswer: addGenerationPrompt,
    continuesLast: continueFinalMessage,
    tools: tools === undefined ? null : valueOf(tools),
    documents: documents === undefined ? null : valueOf(documents),
    variables: new Map(Object.entries(variables).map(([name, value]) => [name, valueOf(value)])) as Dict,
  });
}

/** tokenizer_config.json with texts of special tokens, and the template. */
function infoOf(
  path: string,
  { bos, eos }: TextBounds,
  found: FoundTemplate | undefined,
): Readonly<Record<string, unknown>> {
  const file = join(path, 'tokenizer_config.json');
  const isGguf = findGgufModel(path) !== undefined;
  const config = isGguf || fileSize(file) === undefined ? {} : readJsonObject(file, CONFIG_BYTES).value;
  const special = defined({ bos_token: bos?.text, eos_token: eos?.text });
  return { ...config, ...found?.special, ...special, ...(found === undefined ? {} : { chat_template: found.text }) };
}
