/** The keys of one task: literals, and functions in the places of Python's. */
import { UserError } from '../../errors.js';
import type { Setting, Settings } from '../definition/settings.js';
import { Hook, type Yaml } from '../definition/yaml.js';
import type { Ports } from '../hooks/hook.js';
import { hasPort, portedHook, type HookedTask } from '../hooks/registry.js';
import { isDict, type Value } from '../../python/value.js';
import type { Source } from './fields.js';

/** Keys of fewshot_config that mean something here; fewshot_indices has no effect in the public harness either. */
const SHOT_KEYS: ReadonlySet<string> = new Set(
  (
    'sampler split samples process_docs fewshot_indices doc_to_text doc_to_choice doc_to_target gen_prefix ' +
    'fewshot_delimiter target_delimiter'
  ).split(' '),
);

/** A setting without Python functions in it. Throws UserError for one. */
function plain(value: Yaml, where: string): Value {
  if (value instanceof Hook) throw new UserError(`${where}: the Python function ${value.name} is not supported here`);
  if (Array.isArray(value)) return (value as readonly Yaml[]).map((item) => plain(item, where));
  if (value instanceof Map)
    return new Map([...(value as ReadonlyMap<string, Yaml>)].map(([key, item]) => [key, plain(item, where)]));
  return value as Value;
}

export class Keys {
  readonly #settings: Settings;
  readonly #task: HookedTask;

  constructor(settings: Settings) {
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

  get(key: string): Value {
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
  metrics(): Value {
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
  filters(): Value {
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
  dict(key: string): ReadonlyMap<string, Value> {
    const value = this.get(key) ?? new Map<string, Value>();
    if (isDict(value)) return value;
    throw new UserError(`${this.where(key)}: expected keys and values`);
  }
}
