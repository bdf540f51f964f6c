/**
 * The chat template of a checkpoint folder: how a conversation is written for its model. A template is a program, so it
 * runs in a thread of its own, with bounds on memory and time. Only where there are TypeScript sources alone (in tests)
 * does it run here.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { UserError } from '../errors.js';
import { isRecord, quote } from '../system/json.js';
import { decodeUtf8, fileSize, readBounded, readJsonObject } from '../system/read.js';
import { ggufTemplate, specialTexts } from './gguf/vocabulary.js';
import { ggufMetadata } from './ggufTokenizer.js';
import { findGgufModel } from './weightFiles.js';
import { chatRenderer, type ChatMessage, type ChatRequest, type TemplateSource } from './renderChat.js';

/** Folder of named templates, a file each. */
const NAMED = 'additional_chat_templates';
const CONFIG_BYTES = 8 << 20;
const TEMPLATE_BYTES = 1 << 20;
const RENDER_SECONDS = 5;
const HEAP_MIB = 256;
const SPECIAL = ['bos_token', 'eos_token', 'pad_token', 'unk_token', 'sep_token', 'cls_token'];

/** A template and the file that it is from. */
export interface FoundTemplate extends TemplateSource {
  readonly where: string;
}

const DEFAULT = 'default';
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
  const own = name === DEFAULT ? join(dir, 'chat_template.jinja') : join(dir, NAMED, `${name}.jinja`);
  const configPath = join(dir, 'tokenizer_config.json');
  const config = fileSize(configPath) === undefined ? {} : readJsonObject(configPath, CONFIG_BYTES).value;
  const special = Object.fromEntries(
    SPECIAL.flatMap((name) => {
      const value = config[name];
      const text = isRecord(value) ? value['content'] : value;
      return typeof text === 'string' ? [[name, text]] : [];
    }),
  );
  if (fileSize(own) !== undefined)
    return { text: decodeUtf8(readBounded(own, TEMPLATE_BYTES), own), special, where: own };
  const listed = config['chat_template'];
  const text = templateIn(listed, name);
  if (text === undefined && name !== DEFAULT)
    throw new UserError(`${dir}: no chat template is called ${quote(name)}`, listedNames(namesIn(listed, dir)));
  if (text === undefined) return undefined;
  if (typeof text !== 'string' || text.length > TEMPLATE_BYTES)
    throw new UserError(
      `${configPath}: chat_template: expected a text of at most ${TEMPLATE_BYTES} characters, got ${quote(text)}`,
      'download tokenizer_config.json again',
    );
  return { text, special, where: configPath };
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
  return { text, special: specialTexts(metadata), where: path };
}

/** A text, or of several named ones that of this name; the first, if none is the default. */
function templateIn(value: unknown, name: string): unknown {
  if (!Array.isArray(value)) return name === DEFAULT ? (value ?? undefined) : undefined;
  const named: unknown = value.find((each) => isRecord(each) && each['name'] === name);
  const chosen: unknown = named ?? (name === DEFAULT ? value[0] : undefined);
  return isRecord(chosen) ? chosen['template'] : chosen;
}

/** Names of the templates that there are. */
function namesIn(listed: unknown, dir: string): string[] {
  const folder = join(dir, NAMED);
  const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith('.jinja')) : [];
  const names = Array.isArray(listed) ? listed.map((each) => (isRecord(each) ? String(each['name']) : '')) : [];
  const isOne = typeof listed === 'string' || fileSize(join(dir, 'chat_template.jinja')) !== undefined;
  return [...(isOne ? [DEFAULT] : []), ...names, ...files.map((file) => file.slice(0, -'.jinja'.length))];
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
  private last: Promise<unknown> = Promise.resolve();

  constructor(source: FoundTemplate, seconds = RENDER_SECONDS) {
    this.source = source;
    this.seconds = seconds;
  }

  /**
   * The text for the model to continue, special tokens included. `opensAnswer`: it ends with the beginning of an
   * answer. Rejects with UserError if the template fails.
   */
  render(messages: readonly ChatMessage[], opensAnswer = true): Promise<string> {
    const rendered = this.last.then(() => this.ask({ messages, opensAnswer }));
    this.last = rendered.catch(() => undefined);
    return rendered;
  }

  async close(): Promise<void> {
    await this.worker?.terminate();
    this.worker = undefined;
  }

  private async ask(request: ChatRequest): Promise<string> {
    const file = new URL('./chatTemplateWorker.js', import.meta.url);
    const hasThread = file.protocol === 'file:' && existsSync(fileURLToPath(file));
    const reply = hasThread ? await this.askThread(file, request) : this.askHere(request);
    if ('text' in reply) return reply.text;
    throw new (reply.isRefused === true ? TemplateRefusal : UserError)(
      `${this.source.where}: the chat template fails: ${quote(reply.error, 200)}`,
      'check roles and their order, or write the text yourself: {"prompt": "…"}',
    );
  }

  private askHere({ messages, opensAnswer }: ChatRequest): Reply {
    try {
      return { text: chatRenderer(this.source)(messages, opensAnswer) };
    } catch (error) {
      return { error: error instanceof Error ? error.message : String(error), isRefused: true };
    }
  }

  private async askThread(file: URL, request: ChatRequest): Promise<Reply> {
    const { text, special } = this.source;
    const worker = (this.worker ??= new Worker(file, {
      workerData: { text, special },
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
    }));
    let timer: NodeJS.Timeout | undefined;
    const reply = await new Promise<Reply>((resolve) => {
      worker.removeAllListeners();
      worker.once('message', resolve);
      worker.once('error', (error) => resolve({ error: error instanceof Error ? error.message : String(error) }));
      worker.once('exit', () => resolve({ error: 'its thread ended' }));
      timer = setTimeout(() => resolve({ error: `it takes more than ${this.seconds} seconds` }), this.seconds * 1000);
      worker.postMessage(request);
    });
    clearTimeout(timer);
    // A thread that took too long is still running.
    if ('error' in reply && reply.isRefused !== true) await this.close();
    return reply;
  }
}

const listedNames = (names: readonly string[]): string =>
  names.length === 0 ? 'There is none' : `There ${names.length === 1 ? 'is' : 'are'} ${names.join(', ')}`;
