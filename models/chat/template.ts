/**
 * The chat template of a checkpoint folder: how a conversation is written for its model. A template is a program, so it
 * runs in a thread of its own, with bounds on memory and time. Only where there are TypeScript sources alone (in tests)
 * does it run here.
 */
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { UserError } from '../../errors.js';
import { compactJson } from '../../python/show.js';
import type { Dict } from '../../python/value.js';
import { isRecord, quote } from '../../system/json.js';
import { decodeUtf8, fileSize, readBounded, readJsonObject } from '../../system/read.js';
import { ggufMetadata, ggufTemplate, specialTexts } from '../tokenizer/gguf.js';
import { findGgufModel } from '../weights/weightFiles.js';
import { cutAtMark, markLast } from './continued.js';
import type * as Jinja from './render.js';
import type { Conversation, TemplateSource } from './render.js';

/** Folder of named templates, a file each. */
const NAMED = 'additional_chat_templates';
const CONFIG_BYTES = 8 << 20;
const TEMPLATE_BYTES = 1 << 20;
const RENDER_SECONDS = 5;
const HEAP_MIB = 256;
const SPECIAL = ['bos_token', 'eos_token', 'pad_token', 'unk_token', 'sep_token', 'cls_token', 'mask_token'];

/** A template and the file that it is from. */
export interface FoundTemplate extends TemplateSource {
  readonly where: string;
}

const DEFAULT = 'default';
/** What transformers takes for conversations with tools, where the checkpoint has it. */
const TOOL_USE = 'tool_use';
/** What begins the keys of named templates in GGUF files. */
const NAMED_KEY = 'tokenizer.chat_template.';

/**
 * The template of the checkpoint `dir`, a folder or a GGUF file; undefined if it has none. Throws UserError for a
 * damaged file, and for a name that no template has. Where there is one template without a name, it is called
 * `default`.
 */
export function findChatTemplate(dir: string, name = DEFAULT): FoundTemplate | undefined {
  const gguf = findGgufModel(dir);
  if (gguf !== undefined) return templateOfGguf(gguf, name);
  const configPath = join(dir, 'tokenizer_config.json');
  const config = fileSize(configPath) === undefined ? {} : readJsonObject(configPath, CONFIG_BYTES).value;
  const special = specialIn(dir, config);
  const templates = templatesIn(dir, config, configPath);
  const names = [...templates.keys()];
  const found = templates.get(name) ?? (name === DEFAULT ? templates.get(names[0] ?? '') : undefined);
  if (found === undefined && name !== DEFAULT)
    throw new UserError(`${dir}: no chat template is called ${quote(name)}`, listedNames(names));
  if (found === undefined) return undefined;
  const { value: text, where } = found;
  if (typeof text !== 'string' || text.length > TEMPLATE_BYTES)
    throw new UserError(
      `${where}: chat_template: expected a text of at most ${TEMPLATE_BYTES} characters, got ${quote(text)}`,
      `download ${basename(where)} again`,
    );
  const forTools = name === DEFAULT ? templates.get(TOOL_USE)?.value : undefined;
  const toolText = typeof forTools === 'string' && forTools.length <= TEMPLATE_BYTES ? { toolText: forTools } : {};
  return { text, ...toolText, special, where };
}

interface Listed {
  readonly value: unknown;
  readonly where: string;
}

/**
 * Templates by name. As in transformers, files of their own stand for all that tokenizer_config.json lists; the file of
 * a processor counts where the tokenizer has none.
 */
function templatesIn(
  dir: string,
  config: Readonly<Record<string, unknown>>,
  configPath: string,
): ReadonlyMap<string, Listed> {
  const folder = join(dir, NAMED);
  const named = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith('.jinja')) : [];
  const files = [
    [DEFAULT, join(dir, 'chat_template.jinja')] as const,
    ...named.map((file) => [file.slice(0, -'.jinja'.length), join(folder, file)] as const),
  ].filter(([, path]) => fileSize(path) !== undefined);
  if (files.length > 0)
    return new Map(
      files.map(([name, path]) => [name, { value: decodeUtf8(readBounded(path, TEMPLATE_BYTES), path), where: path }]),
    );
  const listed = listedIn(config['chat_template'], configPath);
  const ofProcessor = join(dir, 'chat_template.json');
  if (listed.size > 0 || fileSize(ofProcessor) === undefined) return listed;
  return listedIn(readJsonObject(ofProcessor, CONFIG_BYTES).value['chat_template'], ofProcessor);
}

/** A text, or several with names as a list or by their names. */
function listedIn(value: unknown, where: string): ReadonlyMap<string, Listed> {
  if (value === undefined || value === null) return new Map();
  if (Array.isArray(value))
    return new Map(
      value.flatMap((each: unknown) =>
        isRecord(each) ? [[String(each['name']), { value: each['template'], where }] as const] : [],
      ),
    );
  if (isRecord(value)) return new Map(Object.entries(value).map(([name, each]) => [name, { value: each, where }]));
  return new Map([[DEFAULT, { value, where }]]);
}

/** Special tokens by name. An older file has those that a configuration without a list of tokens does not name. */
function specialIn(dir: string, config: Readonly<Record<string, unknown>>): Record<string, string> {
  const path = join(dir, 'special_tokens_map.json');
  const isOld = config['added_tokens_decoder'] === undefined && fileSize(path) !== undefined;
  const older = isOld ? readJsonObject(path, CONFIG_BYTES).value : {};
  return Object.fromEntries(
    SPECIAL.flatMap((name) => {
      const value = config[name] ?? older[name];
      const text = isRecord(value) ? value['content'] : value;
      return typeof text === 'string' ? [[name, text]] : [];
    }),
  );
}

function templateOfGguf(path: string, name: string): FoundTemplate | undefined {
  const metadata = ggufMetadata(path);
  const text = ggufTemplate(metadata, name, DEFAULT);
  if (text === undefined && name !== DEFAULT) {
    const names = metadata.keys(NAMED_KEY).map((key) => key.slice(NAMED_KEY.length));
    const all = [...(ggufTemplate(metadata, DEFAULT, DEFAULT) === undefined ? [] : [DEFAULT]), ...names];
    throw new UserError(`${path}: no chat template is called ${quote(name)}`, `There are ${all.join(', ') || 'none'}`);
  }
  if (text === undefined) return undefined;
  if (text.length > TEMPLATE_BYTES)
    throw new UserError(`${path}: a chat template of ${text.length} characters; at most ${TEMPLATE_BYTES} are read`);
  const forTools = name === DEFAULT ? ggufTemplate(metadata, TOOL_USE, DEFAULT) : undefined;
  const toolText = forTools !== undefined && forTools.length <= TEMPLATE_BYTES ? { toolText: forTools } : {};
  return { text, ...toolText, special: specialTexts(metadata), where: path };
}

/** `isRefused`: the template itself has failed, and its thread can take the next conversation. */
type Reply = { readonly text: string } | { readonly error: string; readonly isRefused?: true };

/** A template has failed by itself, within its bounds of time and memory: it allows no such conversation. */
export class TemplateRefusal extends UserError {}

/** Writes conversations, one at a time. */
export class ChatTemplate {
  private readonly source: FoundTemplate;
  private readonly seconds: number;
  private worker: Worker | undefined;
  private renderHere: ReturnType<typeof Jinja.chatRenderer> | undefined;
  private last: Promise<unknown> = Promise.resolve();

  constructor(source: FoundTemplate, seconds = RENDER_SECONDS) {
    this.source = source;
    this.seconds = seconds;
  }

  /**
   * The text for the model to continue, special tokens included. Rejects with UserError if the template fails, or does
   * not show where a message ends that is to be continued.
   */
  render(conversation: Conversation): Promise<string> {
    const rendered = this.last.then(() => this.ask(conversation));
    this.last = rendered.catch(() => undefined);
    return rendered;
  }

  async close(): Promise<void> {
    await this.worker?.terminate();
    this.worker = undefined;
  }

  private async ask(asked: Conversation): Promise<string> {
    const { continuesLast = false } = asked;
    const conversation = continuesLast ? { ...asked, messages: markLast(asked.messages), opensAnswer: false } : asked;
    const file = new URL('./worker.js', import.meta.url);
    const hasThread = file.protocol === 'file:' && existsSync(fileURLToPath(file));
    // Most runs have no conversation and need no parser of templates.
    const jinja = await import('./render.js');
    const variables = jinja.variablesOf(conversation, this.source.special);
    const reply = hasThread ? await this.askThread(file, compactJson(variables)) : this.askHere(jinja, variables);
    if ('text' in reply) return continuesLast ? cutAtMark(reply.text) : reply.text;
    throw new (reply.isRefused === true ? TemplateRefusal : UserError)(
      `${this.source.where}: the chat template fails: ${quote(reply.error, 200)}`,
      'check roles and their order, or write the text yourself: {"prompt": "…"}',
    );
  }

  private askHere({ chatRenderer: make, problemOf }: typeof Jinja, variables: Dict): Reply {
    try {
      this.renderHere ??= make(this.source);
      return { text: this.renderHere(variables) };
    } catch (error) {
      return { error: problemOf(error), isRefused: true };
    }
  }

  private async askThread(file: URL, json: string): Promise<Reply> {
    const worker = (this.worker ??= new Worker(file, {
      workerData: this.source,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
    }));
    let timer: NodeJS.Timeout | undefined;
    const reply = await new Promise<Reply>((resolve) => {
      worker.removeAllListeners();
      worker.once('message', resolve);
      worker.once('error', (error) => resolve({ error: error instanceof Error ? error.message : String(error) }));
      worker.once('exit', () => resolve({ error: 'its thread ended' }));
      timer = setTimeout(() => resolve({ error: `it takes more than ${this.seconds} seconds` }), this.seconds * 1000);
      worker.postMessage(json);
    });
    clearTimeout(timer);
    // A thread that took too long is still running.
    if ('error' in reply && reply.isRefused !== true) await this.close();
    return reply;
  }
}

const listedNames = (names: readonly string[]): string =>
  names.length === 0 ? 'There is none' : `There ${names.length === 1 ? 'is' : 'are'} ${names.join(', ')}`;
