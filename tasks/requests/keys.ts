/** The keys of one task: literals, and functions in the places of Python's. */
import { UserError } from '../../errors.js';
import { JinjaTemplate, TASK_ENVIRONMENT, TemplateProblem } from '../../python/jinja/template.js';
import { literalEval } from '../../python/literal.js';
import { str } from '../../python/show.js';
import { type Dict, isDict, isInt, isList, typeName, type PyValue } from '../../python/value.js';
import { clipped } from '../../system/json.js';
import type { Setting, TaskSettings } from '../definition/settings.js';
import { Hook, type Yaml } from '../definition/yaml.js';
import type { Ports } from '../hooks/hook.js';
import { hasPort, type HookedTask, portedHook } from '../hooks/registry.js';

/** What a task asks a model for, as its `output_type` names it. */
export const OUTPUT_TYPES = ['multiple_choice', 'loglikelihood', 'loglikelihood_rolling', 'generate_until'] as const;
export type OutputType = (typeof OUTPUT_TYPES)[number];

/** Keys of fewshot_config that mean something here; fewshot_indices has no effect in the public harness either. */
const SHOT_KEYS: ReadonlySet<string> = new Set(
  (
    'sampler split samples process_docs fewshot_indices doc_to_text doc_to_choice doc_to_target gen_prefix ' +
    'fewshot_delimiter target_delimiter'
  ).split(' '),
);

/** A setting without Python functions in it. Throws UserError for one. */
function plain(value: Yaml, where: string): PyValue {
  if (value instanceof Hook) throw new UserError(`${where}: the Python function ${value.name} is not supported here`);
  if (Array.isArray(value)) return (value as readonly Yaml[]).map((item) => plain(item, where));
  if (value instanceof Map)
    return new Map([...(value as ReadonlyMap<string, Yaml>)].map(([key, item]) => [key, plain(item, where)]));
  return value as PyValue;
}

export class Keys {
  readonly #settings: TaskSettings;
  readonly #task: HookedTask;

  constructor(settings: TaskSettings) {
    this.#settings = settings;
    const name = (key: string): string | undefined => {
      const value = settings.get(key)?.value;
      return typeof value === 'string' ? value : undefined;
    };
    this.#task = { dataset: name('dataset_path'), outputType: name('output_type') };
  }

  /** File, line and key. */
  where(key: string): string {
    return this.#settings.get(key)?.where ?? key;
  }

  /** Where the task itself is named. */
  get at(): string {
    return this.where(this.#settings.has('task') ? 'task' : 'dataset_path');
  }

  get(key: string): PyValue {
    const setting = this.#settings.get(key);
    return setting === undefined ? null : plain(setting.value, setting.where);
  }

  text(key: string): string | undefined {
    const value = this.get(key);
    if (value === null || typeof value === 'string') return value ?? undefined;
    throw new UserError(`${this.where(key)}: expected text`);
  }

  /** A key that says how a field is read: a literal, a template, a column or a function. */
  source(key: string): Source {
    const setting = this.#settings.get(key);
    return setting === undefined ? null : this.#source(setting);
  }

  #source({ value, where }: Setting): Source {
    return value instanceof Hook ? portedHook(value, 'field', this.#task, where) : plain(value, where);
  }

  /** process_docs as a function of its kind; undefined where the task has none. Throws UserError. */
  processDocs(): Pick<Ports, 'document'> | Pick<Ports, 'shuffled'> | undefined {
    const value = this.#settings.get('process_docs')?.value;
    const isShuffled = value instanceof Hook && hasPort(value, 'shuffled', this.#task);
    const [document, shuffled] = isShuffled
      ? [undefined, this.port('process_docs', 'shuffled')]
      : [this.port('process_docs', 'document'), undefined];
    return shuffled !== undefined ? { shuffled } : document && { document };
  }

  /** process_docs or process_results as a function; undefined where the task has none. Throws UserError. */
  port<K extends 'document' | 'shuffled' | 'results' | 'texts'>(key: string, kind: K): Ports[K] | undefined {
    const setting = this.#settings.get(key);
    if (setting === undefined || setting.value === null) return undefined;
    if (!(setting.value instanceof Hook)) throw new UserError(`${setting.where}: expected a Python function`);
    return portedHook(setting.value, kind, this.#task, setting.where);
  }

  /** metric_list; functions in it that join values have become names of aggregations. Throws UserError. */
  metrics(): PyValue {
    const setting = this.#settings.get('metric_list');
    if (setting === undefined || !Array.isArray(setting.value)) return this.get('metric_list');
    const { where } = setting;
    const named = (entry: Yaml): Yaml => {
      const how = entry instanceof Map ? (entry as ReadonlyMap<string, Yaml>).get('aggregation') : undefined;
      if (!(how instanceof Hook)) return entry;
      const name = portedHook(how, 'aggregation', this.#task, where);
      return new Map([...(entry as ReadonlyMap<string, Yaml>), ['aggregation', name]]);
    };
    return plain((setting.value as readonly Yaml[]).map(named), where);
  }

  /** filter_list; classes in it have become names of filters. Throws UserError. */
  filters(): PyValue {
    const setting = this.#settings.get('filter_list');
    if (setting === undefined || setting.value === null) return null;
    const { where } = setting;
    const named = (value: Yaml): Yaml => {
      if (Array.isArray(value)) return (value as readonly Yaml[]).map(named);
      if (!(value instanceof Map)) return value;
      const entries = [...(value as ReadonlyMap<string, Yaml>)].map(([key, item]): [string, Yaml] => {
        if (key === 'function' && item instanceof Hook) return [key, portedHook(item, 'filter', this.#task, where)];
        return [key, key === 'filter' ? named(item) : item];
      });
      return new Map(entries);
    };
    return plain(named(setting.value), where);
  }

  /** The keys of fewshot_config. Throws UserError. */
  shots(): ReadonlyMap<string, Source> {
    const setting = this.#settings.get('fewshot_config');
    if (setting === undefined || setting.value === null) return new Map();
    if (!(setting.value instanceof Map)) throw new UserError(`${setting.where}: expected keys and values`);
    const entries = [...(setting.value as ReadonlyMap<string, Yaml>)].filter(([key]) => key !== 'fewshot_indices');
    for (const [key, value] of entries) {
      if (!SHOT_KEYS.has(key) || (key === 'process_docs' && value !== null))
        throw new UserError(`${setting.where}: ${key} is not supported there`);
    }
    return new Map(
      entries.map(([key, value]) => [
        key,
        key.startsWith('doc_to_')
          ? this.#source({ value, where: setting.where })
          : key === 'samples' && value instanceof Hook
            ? portedHook(value, 'samples', this.#task, setting.where)()
            : plain(value, setting.where),
      ]),
    );
  }

  /** A key whose value is a dictionary; empty where the task has none. Throws UserError. */
  dict(key: string): ReadonlyMap<string, PyValue> {
    const value = this.get(key) ?? new Map<string, PyValue>();
    if (isDict(value)) return value;
    throw new UserError(`${this.where(key)}: expected keys and values`);
  }
}

// A template of a task file: parsed once, rendered for each document.

const HINT = 'Templates may use all of Jinja but other files, as lm-eval’s own task files do';

export class Template {
  readonly #template: JinjaTemplate;
  readonly #where: string;

  /** `where`: file, line and key of the template. Throws UserError that adds what is not supported. */
  constructor(source: string, where: string) {
    this.#where = where;
    this.#template = this.#named(() => new JinjaTemplate(source, TASK_ENVIRONMENT));
  }

  /** Throws UserError that names the template and the document. */
  render(fields: Dict, document: string): string {
    return this.#named(() => this.#template.render(fields), `, ${document}`);
  }

  #named<T>(action: () => T, document = ''): T {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof TemplateProblem)) throw error;
      const line = error.line > 1 ? `, line ${error.line} of the template` : '';
      throw new UserError(`${this.#where}${line}${document}: ${clipped(error.message)}`, HINT, { cause: error });
    }
  }
}

// doc_to_text, doc_to_target, doc_to_choice and the like: what a document's fields make of a task's keys.

/** A key's value: literal, template or column, or a function in the place of a Python hook. */
export type Source = PyValue | ((document: Dict) => PyValue);

/** How one key is read from documents that have these columns. */
export class KeyField {
  readonly #source: Source;
  readonly #where: string;
  readonly #template: Template | undefined;
  readonly #column: string | undefined;

  /** `where`: file, line and key. Throws UserError for a template outside the subset. */
  constructor(source: Source, columns: ReadonlySet<string>, where: string) {
    this.#source = source;
    this.#where = where;
    this.#column = typeof source === 'string' && columns.has(source) ? source : undefined;
    this.#template = typeof source === 'string' && this.#column === undefined ? new Template(source, where) : undefined;
  }

  #fail(document: string, problem: string): UserError {
    return new UserError(`${this.#where}, ${document}: ${clipped(problem)}`);
  }

  #literal(text: string, document: string): PyValue {
    try {
      return literalEval(text);
    } catch (error) {
      if (error instanceof SyntaxError) throw this.#fail(document, `no Python literal: ${error.message}`);
      throw error;
    }
  }

  /** The column's or the function's value; undefined for a template or a literal. */
  #given(fields: Dict, document: string): PyValue | undefined {
    if (typeof this.#source === 'function') return this.#source(fields);
    if (this.#column === undefined) return undefined;
    const value = fields.get(this.#column);
    if (value === undefined) throw this.#fail(document, `there is no column ${JSON.stringify(this.#column)}`);
    return value;
  }

  /** As doc_to_text. Digits alone are a number where the task has choices. */
  text(fields: Dict, document: string, hasChoices: boolean): PyValue {
    const given = this.#given(fields, document);
    if (given !== undefined) return given;
    if (this.#template === undefined) {
      if (isInt(this.#source) || typeof this.#source === 'boolean') return this.#source;
      throw this.#fail(document, 'expected text, a column or a number');
    }
    const text = this.#template.render(fields, document);
    return hasChoices && /^\p{Nd}+$/u.test(text) ? this.#literal(text, document) : text;
  }

  /** As doc_to_target: a text in brackets is a list where it is a literal. */
  target(fields: Dict, document: string, hasChoices: boolean): PyValue {
    if (typeof this.#source !== 'function' && isList(this.#source)) return this.#source;
    const value = this.text(fields, document, hasChoices);
    if (this.#template === undefined || typeof value !== 'string' || !/^\[[^]*\]$/.test(value)) return value;
    try {
      return literalEval(value);
    } catch {
      return value;
    }
  }

  choices(fields: Dict, document: string): readonly PyValue[] {
    const source = this.#source;
    const value =
      this.#given(fields, document) ??
      (this.#template !== undefined
        ? this.#literal(this.#template.render(fields, document), document)
        : typeof source === 'function'
          ? null
          : source);
    if (isDict(value)) return [...value.values()];
    if (!isList(value) || value.length === 0)
      throw this.#fail(
        document,
        `expected a list of choices, found ${isList(value) ? 'an empty one' : typeName(value)}`,
      );
    return value;
  }

  /** As description and gen_prefix: always text. */
  plain(fields: Dict, document: string): string {
    return str(this.#given(fields, document) ?? this.#template?.render(fields, document) ?? '');
  }
}
