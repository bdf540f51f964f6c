/** A task's documents as requests: prompts and continuations, to the byte those of the public harness. */
import { UserError } from '../../errors.js';
import type { Settings } from '../definition/taskFiles.js';
import { Hook, type Yaml } from '../definition/yaml.js';
import { str } from '../python/show.js';
import { isSpace } from '../python/text.js';
import { Float, isDict, isInt, isList, type Dict, type Value } from '../python/value.js';
import { Field } from './fields.js';
import { chatMessages, delimit, joined, needsDelimiter, type ChatMessage, type Message } from './messages.js';
import { Sampler, type SamplerName } from './sampler.js';

export type Request =
  | { readonly kind: 'loglikelihood'; readonly context: string; readonly continuation: string }
  | { readonly kind: 'loglikelihood_rolling'; readonly text: string }
  | { readonly kind: 'generate_until'; readonly context: string; readonly settings: Dict };

export interface DocumentRequests {
  readonly docId: number;
  readonly document: Dict;
  readonly target: Value;
  readonly requests: readonly Request[];
}

/** Reads the rows of a split of the task's data set. */
export type ReadSplit = (dataset: string, config: string | undefined, split: string) => Promise<readonly Dict[]>;

export interface TaskOptions {
  /** Shots asked for; a 0 in the task's file wins. */
  readonly shots?: number | undefined;
  readonly limit?: number | undefined;
  readonly systemInstruction?: string | undefined;
  /** Renders prompts as conversations; without it, texts are joined. */
  readonly chat?: Chat | undefined;
}

export interface Chat {
  /** A conversation as text, with the opening of an answer where that is asked for. */
  readonly render: (messages: readonly ChatMessage[], opensAnswer: boolean) => string;
  /** Whether every shot is a turn of its own. */
  readonly isMultiturn: boolean;
}

/** A setting without Python functions in it. */
function plain(value: Yaml, where: string): Value {
  if (value instanceof Hook) throw new UserError(`${where}: the Python function ${value.name} is not supported`);
  if (Array.isArray(value)) return (value as readonly Yaml[]).map((item) => plain(item, where));
  if (value instanceof Map)
    return new Map([...(value as ReadonlyMap<string, Yaml>)].map(([key, item]) => [key, plain(item, where)]));
  return value as Value;
}

class Keys {
  readonly #settings: Settings;
  constructor(settings: Settings) {
    this.#settings = settings;
  }
  where(key: string): string {
    return this.#settings.get(key)?.where ?? key;
  }
  get(key: string): Value {
    const setting = this.#settings.get(key);
    return setting === undefined ? null : plain(setting.value, setting.where);
  }
  text(key: string): string | undefined {
    const value = this.get(key);
    if (value === null || typeof value === 'string') return value ?? undefined;
    throw new UserError(`${this.where(key)}: expected text`);
  }
}

interface Side {
  readonly text: Field;
  readonly target: Field;
  readonly choices: Field | undefined;
  readonly prefix: Field | undefined;
  readonly targetDelimiter: string;
  readonly fewshotDelimiter: string;
}

function sideOf(keys: Keys, overrides: Dict, columns: ReadonlySet<string>): Side {
  const read = (key: string): Value => overrides.get(key) ?? keys.get(key);
  const field = (key: string): Field | undefined => {
    const value = read(key);
    return value === null
      ? undefined
      : new Field(value, columns, keys.where(overrides.has(key) ? 'fewshot_config' : key));
  };
  const text = field('doc_to_text'),
    target = field('doc_to_target');
  if (text === undefined || target === undefined)
    throw new UserError(`${keys.where('task')}: doc_to_text or doc_to_target is missing`);
  const delimiter = (key: string, otherwise: string): string => str(read(key) ?? otherwise);
  return {
    text,
    target,
    choices: field('doc_to_choice'),
    prefix: field('gen_prefix'),
    targetDelimiter: delimiter('target_delimiter', ' '),
    fewshotDelimiter: delimiter('fewshot_delimiter', '\n\n'),
  };
}

function question(
  text: Value,
  answer: Value | undefined,
  prefix: string,
  side: Side,
  choices: readonly Value[] | undefined,
  at: string,
): Message[] {
  if (typeof text !== 'string') throw new UserError(`${at}: doc_to_text is no text`);
  const hasAnswer = answer !== undefined && answer !== null && answer !== '';
  const isDelimited = prefix === '' ? hasAnswer : needsDelimiter(text, prefix);
  const asked: Message = { role: 'user', content: text, delimiter: isDelimited ? side.targetDelimiter : '' };
  if (!hasAnswer) return prefix === '' ? [asked] : [asked, { role: 'assistant', content: prefix, delimiter: '' }];
  const shown =
    choices !== undefined && isInt(answer) ? choices.at(Number(answer)) : isList(answer) ? answer[0] : answer;
  if (typeof shown !== 'string') throw new UserError(`${at}: the answer of a shot is no text`);
  return [asked, { role: 'assistant', content: delimit(prefix, shown, ' '), delimiter: side.fewshotDelimiter }];
}

/** What generate_until takes: the task's settings with the harness's defaults. */
function generation(keys: Keys, delimiter: string): Dict {
  const given = keys.get('generation_kwargs');
  if (given === null) {
    return new Map<string, Value>([
      ['temperature', new Float(0)],
      ['do_sample', false],
      ['max_gen_toks', 256],
      ['until', [delimiter]],
    ]);
  }
  if (!isDict(given)) throw new UserError(`${keys.where('generation_kwargs')}: expected keys and values`);
  const settings = new Map(given);
  const temperature = settings.get('temperature');
  if (isInt(temperature)) settings.set('temperature', new Float(Number(temperature)));
  if (!settings.has('until')) settings.set('until', [delimiter]);
  return settings;
}

/** Throws UserError for what the task's file, its data or this version lacks. */
export async function buildRequests(
  settings: Settings,
  readSplit: ReadSplit,
  options: TaskOptions = {},
): Promise<DocumentRequests[]> {
  const keys = new Keys(settings);
  const dataset = keys.text('dataset_path');
  if (dataset === undefined) throw new UserError(`${keys.where('task')}: dataset_path is missing`);
  keys.get('process_docs');
  const rowsOf = (split: string): Promise<readonly Dict[]> => readSplit(dataset, keys.text('dataset_name'), split);
  const scored = keys.text('test_split') ?? keys.text('validation_split');
  if (scored === undefined) throw new UserError(`${keys.where('task')}: neither test_split nor validation_split`);
  const documents = await rowsOf(scored);
  const columns = new Set(documents[0]?.keys());
  const shotSettings = keys.get('fewshot_config') ?? new Map<string, Value>();
  if (!isDict(shotSettings)) throw new UserError(`${keys.where('fewshot_config')}: expected keys and values`);
  const side = sideOf(keys, new Map(), columns),
    shotSide = sideOf(keys, shotSettings, columns);
  const written = keys.get('num_fewshot');
  const shots = written === 0 ? 0 : (options.shots ?? (isInt(written) ? Number(written) : 0));
  const split = shotSettings.get('split') ?? keys.get('fewshot_split');
  const samples = shotSettings.get('samples') ?? null;
  const fallback = keys.text('training_split') ?? keys.text('validation_split') ?? scored;
  const pool =
    shots === 0
      ? []
      : split === null && isList(samples)
        ? samples.filter(isDict)
        : await rowsOf(str(split ?? fallback));
  const samplerName = shotSettings.get('sampler') ?? 'default';
  if (samplerName !== 'default' && samplerName !== 'first_n')
    throw new UserError(`${keys.where('fewshot_config')}: no sampler ${str(samplerName)}; there are default, first_n`);
  const sampler = new Sampler(samplerName satisfies SamplerName, pool);
  const excludesItself = str(split) === str(keys.get('test_split'));
  const writtenPrefix = keys.text('gen_prefix') ?? '';
  const outputType = keys.text('output_type') ?? 'generate_until';
  const description =
    keys.get('description') === null
      ? undefined
      : new Field(keys.get('description'), columns, keys.where('description'));
  const generationSettings = outputType === 'generate_until' ? generation(keys, side.fewshotDelimiter) : undefined;

  return documents.slice(0, options.limit).map((document, docId) => {
    const at = `document ${docId}`;
    const messages: Message[] = [];
    const system = delimit(
      options.systemInstruction ?? '',
      description?.plain(document, at) ?? '',
      side.fewshotDelimiter,
    );
    if (system !== '') messages.push({ role: 'system', content: system, delimiter: '' });
    const choices = side.choices?.choices(document, at);
    const text = side.text.text(document, at, side.choices !== undefined);
    const target = side.target.target(document, at, side.choices !== undefined);
    const isMultipleInput = isInt(text) && choices !== undefined;
    for (const shot of drawn(sampler, shots, excludesItself ? document : undefined, keys)) {
      const of = `a shot of ${at}`;
      const asked = shotSide.text.text(shot, of, side.choices !== undefined);
      const shown = shotSide.choices?.choices(shot, of);
      const query = isMultipleInput && isInt(asked) ? (shown?.at(Number(asked)) ?? null) : asked;
      const answer = shotSide.target.target(shot, of, side.choices !== undefined);
      messages.push(
        ...question(
          query,
          answer,
          shotSide.prefix?.plain(shot, of) ?? '',
          shotSide,
          isMultipleInput ? undefined : shown,
          of,
        ),
      );
    }
    const prefix = side.prefix?.plain(document, at) ?? '';
    const contextOf = (asked: Value, one: Side): string => {
      const all = [...messages, ...question(asked, undefined, prefix, one, choices, at)];
      const { chat } = options;
      return chat === undefined ? joined(all) : chat.render(chatMessages(all, chat.isMultiturn), prefix === '');
    };
    const isContinued = options.chat === undefined || (writtenPrefix !== '' && !isSpace(writtenPrefix.slice(-1)));
    const continued = isContinued ? side.targetDelimiter : '';
    const requests = (): Request[] => {
      switch (outputType) {
        case 'multiple_choice': {
          if (choices === undefined) throw new UserError(`${keys.where('task')}: doc_to_choice is missing`);
          if (isMultipleInput)
            return choices.map((choice) => ({
              kind: 'loglikelihood',
              context: contextOf(choice, { ...side, targetDelimiter: '' }),
              continuation: continued + str(target),
            }));
          const context = contextOf(text, side);
          return choices.map((choice) => ({
            kind: 'loglikelihood',
            context,
            continuation: continued + str(choice),
          }));
        }
        case 'loglikelihood':
          return [{ kind: 'loglikelihood', context: contextOf(text, side), continuation: str(target) }];
        case 'loglikelihood_rolling':
          return [{ kind: 'loglikelihood_rolling', text: str(target) }];
        case 'generate_until':
          return [
            { kind: 'generate_until', context: contextOf(text, side), settings: generationSettings ?? new Map() },
          ];
        default:
          throw new UserError(`${keys.where('output_type')}: no type of request "${outputType}"`);
      }
    };
    return { docId, document, target, requests: requests() };
  });
}

function drawn(sampler: Sampler, shots: number, excluded: Dict | undefined, keys: Keys): readonly Dict[] {
  try {
    return sampler.sample(shots, excluded);
  } catch (error) {
    if (error instanceof RangeError)
      throw new UserError(`${keys.where('task')}: ${error.message}`, undefined, { cause: error });
    throw error;
  }
}
