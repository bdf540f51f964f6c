/** Text in and out of a model that is served. */
import { join } from 'node:path';
import { ChatTemplate, findChatTemplate, type FoundTemplate } from '../../models/chat/template.js';
import { createTokenizer, type Tokenizer } from '../../models/tokenizer/tokenizer.js';
import type { TokenizerSpec } from '../../models/tokenizer/files.js';
import type { TextBounds } from '../../models/tokenizer/namedTokens.js';
import { findGgufModel } from '../../models/weights/weightFiles.js';
import { UserError } from '../../errors.js';
import { valueOf } from '../../python/literal.js';
import type { Dict } from '../../python/value.js';
import { defined } from '../../system/defined.js';
import { fileSize, readJsonObject } from '../../system/read.js';
import { badRequest } from '../apiError.js';
import type { ChatInput, ModelTexts } from '../models.js';

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

/** Throws UserError where files are damaged. */
export function openTexts({ path, tokenizer: spec, bounds }: TextFiles): OpenTexts {
  const tokenizer = createTokenizer(spec);
  const found = findChatTemplate(path);
  const template = found === undefined ? undefined : new ChatTemplate(found);
  return {
    detokenizer: tokenizer.detokenizer(),
    tokenizerInfo: infoOf(path, bounds, found),
    encode: (texts, addSpecialTokens = true) =>
      asked(() => (addSpecialTokens ? encodeAll(tokenizer, texts) : Promise.all(texts.map(tokenizer.encodeWritten)))),
    renderChat: (conversation) =>
      asked(async () => {
        if (template === undefined)
          throw badRequest('The model has no chat template: ask it by /v1/completions.', 'messages');
        const text = await render(template, conversation);
        return { text, tokens: await tokenizer.encodeWritten(text) };
      }),
    close: async () => template?.close(),
  };
}

const encodeAll = async (tokenizer: Tokenizer, texts: readonly string[]): Promise<readonly (readonly number[])[]> =>
  (await tokenizer.encodeBatch(texts)).map((ids) => Array.from(ids));

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
