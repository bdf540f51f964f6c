/** adapter_config.json as PEFT writes it: what it says of the computation. What is not read is refused by name. */
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { fileSize, readJsonObject } from '../../system/read.js';
import type { Json } from '../model/model.js';

export const ADAPTER_HINT =
  'use an adapter that PEFT made for this model, or merge it with PEFT into a copy of the model';

export const CONFIG_NAME = 'adapter_config.json';

/** Modules by name or end of name, or by a pattern of the whole path. */
export type Selection = readonly string[] | { readonly pattern: string };

export interface AdapterConfig {
  /** Path of the file, which starts messages. */
  readonly where: string;
  /** As PEFT calls the head that it was trained with; undefined: that of the vocabulary, or none. */
  readonly head: 'SEQ_CLS' | 'TOKEN_CLS' | undefined;
  readonly rank: number;
  readonly alpha: number;
  /** Scales are alpha / √rank instead of alpha / rank. */
  readonly isRankStabilized: boolean;
  /** In the order of the file: the first that matches counts. */
  readonly ranks: readonly (readonly [pattern: string, value: number])[];
  readonly alphas: readonly (readonly [pattern: string, value: number])[];
  /** `usual`: PEFT's own list for the type of the model. */
  readonly targets: Selection | 'all linear' | 'usual';
  readonly excluded: Selection;
  /** Names of parameters that are no module's weight. */
  readonly parameters: readonly string[];
  /** Only these layers. */
  readonly layers: readonly number[] | undefined;
  /** Patterns of the name of the list of layers; empty: any. */
  readonly layerLists: readonly string[];
  /** Modules that the adapter has whole. */
  readonly saved: readonly string[];
  readonly biases: 'none' | 'all' | 'lora_only';
  /** Products have biases of their own. */
  readonly hasProductBiases: boolean;
  readonly hasMagnitudes: boolean;
  /** Rows of the embedding, or of the named modules, that are the adapter's. */
  readonly tokens: readonly (readonly [module: string | undefined, ids: readonly number[]])[];
  readonly keepsTie: boolean;
  /** Whether it says that matrices of layers are stored as [in, out]. */
  readonly isTurned: boolean;
}

const CONFIG_BYTES = 8 << 20;
/** Far above real ones; files of slots have a row for each. */
export const MAX_RANK = 4096;
const MAX_NAMES = 1 << 16;
const MAX_NAME = 1000;
const MAX_TOKENS = 1 << 20;
const MAX_LAYER = 1 << 20;

/** What only says how it was trained, or where its base was. */
const OF_TRAINING: readonly string[] = [
  'auto_mapping',
  'base_model_name_or_path',
  'corda_config',
  'eva_config',
  'inference_mode',
  'loftq_config',
  'lora_dropout',
  'lora_ga_config',
  'megatron_config',
  'megatron_core',
  'merge_weights',
  'peft_version',
  'qalora_group_size',
  'revision',
  'runtime_config',
  'velora_config',
];

/** Keys that make it another method, where they are given. */
const OTHER_METHODS: Readonly<Record<string, string>> = {
  alora_invocation_tokens: 'it acts from its invocation tokens on only (aLoRA)',
  arrow_config: 'it chooses among other adapters for each token (Arrow)',
  enable_lora: 'it adapts some of the matrices of a module only',
  kasa_config: 'it changes the base by a singular value decomposition (KaSA)',
  layer_replication: 'it makes a deeper model of repeated layers',
  monteclora_config: 'it samples its matrices (MonteCLoRA)',
  use_bdlora: 'its matrices are block-diagonal (BD-LoRA)',
  use_qalora: 'it pools inputs in groups (QA-LoRA)',
};

/** Ways to begin training that leave the base as it is. Others take what they begin with out of the base. */
const PLAIN_BEGINNINGS: readonly unknown[] = [true, false, 'gaussian', 'eva', 'orthogonal', 'mica'];

/** Tasks by their heads. */
const TASKS: Readonly<Record<string, AdapterConfig['head']>> = {
  CAUSAL_LM: undefined,
  FEATURE_EXTRACTION: undefined,
  SEQ_CLS: 'SEQ_CLS',
  TOKEN_CLS: 'TOKEN_CLS',
};

const isEmpty = (value: unknown): boolean =>
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (isRecord(value) && Object.keys(value).length === 0);

/** Reads keys, and remembers which: others must be null. */
class Keys {
  readonly asked = new Set<string>();
  readonly json: Json;
  readonly where: string;

  constructor(json: Json, where: string) {
    this.json = json;
    this.where = where;
  }

  fail(problem: string): never {
    throw new UserError(`${this.where}: ${problem}`, ADAPTER_HINT);
  }

  get(key: string): unknown {
    this.asked.add(key);
    return Object.hasOwn(this.json, key) ? (this.json[key] ?? undefined) : undefined;
  }

  flag(key: string): boolean {
    const value = this.get(key) ?? false;
    return typeof value === 'boolean' ? value : this.fail(`${key}: expected true or false, got ${quote(value)}`);
  }

  rankOf(value: unknown, key: string): number {
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_RANK) return value;
    return this.fail(`${key}: expected a whole number from 1 to ${MAX_RANK}, got ${quote(value)}`);
  }

  alphaOf(value: unknown, key: string): number {
    if (typeof value === 'number' && Math.abs(value) <= 1e6) return value;
    return this.fail(`${key}: expected a number up to 1000000, got ${quote(value)}`);
  }

  names(key: string, value = this.get(key)): readonly string[] {
    if (value === undefined) return [];
    const isName = (each: unknown): each is string =>
      typeof each === 'string' && each !== '' && each.length <= MAX_NAME;
    if (!Array.isArray(value) || value.length > MAX_NAMES || !value.every(isName))
      return this.fail(`${key}: expected a list of names, got ${quote(value)}`);
    return value;
  }

  selection(key: string): Selection | undefined {
    const value = this.get(key);
    if (typeof value === 'string') return value === '' ? [] : { pattern: value };
    return value === undefined ? undefined : this.names(key, value);
  }

  whole(value: unknown, key: string, most: number): readonly number[] {
    const list: unknown = typeof value === 'number' ? [value] : value;
    const isWhole = (each: unknown): each is number =>
      typeof each === 'number' && Number.isInteger(each) && each >= 0 && each <= most;
    if (!Array.isArray(list) || list.length > MAX_TOKENS || !list.every(isWhole))
      return this.fail(`${key}: expected whole numbers from 0 to ${most}, got ${quote(value)}`);
    return list;
  }

  patterns(key: string, read: (value: unknown, key: string) => number): AdapterConfig['ranks'] {
    const value = this.get(key);
    if (value === undefined) return [];
    if (!isRecord(value) || Object.keys(value).length > MAX_NAMES)
      return this.fail(`${key}: expected an object of numbers, got ${quote(value)}`);
    return Object.entries(value).map(([name, each]) => [name, read(each, `${key} ${quote(name)}`)] as const);
  }
}

function targetsIn(keys: Keys): AdapterConfig['targets'] {
  const targets = keys.selection('target_modules');
  if (targets === undefined) return keys.names('target_parameters').length > 0 ? [] : 'usual';
  return 'pattern' in targets && targets.pattern.toLowerCase() === 'all-linear' ? 'all linear' : targets;
}

function tokensIn(keys: Keys): AdapterConfig['tokens'] {
  const key = 'trainable_token_indices';
  const value = keys.get(key);
  if (value === undefined) return [];
  const named = isRecord(value) ? Object.entries(value) : [[undefined, value] as const];
  return named.map(([module, ids]) => {
    const read = keys.whole(ids, key, MAX_TOKENS * 16);
    if (new Set(read).size !== read.length) keys.fail(`${key}: a token is listed twice`);
    return [module, read] as const;
  });
}

function layersIn(keys: Keys): Pick<AdapterConfig, 'layers' | 'layerLists'> {
  const stated = keys.get('layers_to_transform');
  const layers = stated === undefined ? undefined : keys.whole(stated, 'layers_to_transform', MAX_LAYER);
  const pattern = keys.get('layers_pattern');
  const layerLists = typeof pattern === 'string' ? (pattern === '' ? [] : [pattern]) : keys.names('layers_pattern');
  if (typeof keys.get('target_modules') === 'string' && (layers !== undefined || layerLists.length > 0))
    keys.fail('layers_to_transform and layers_pattern go with a list of target_modules, not with a pattern');
  if (layerLists.length > 0 && layers === undefined) keys.fail('layers_pattern needs layers_to_transform');
  return { layers: layers?.length === 0 ? undefined : layers, layerLists };
}

/** Refuses what is another method, and what changes the base. */
function requireLora(keys: Keys): void {
  const type = keys.get('peft_type');
  if (type !== 'LORA') keys.fail(`peft_type is ${quote(type)}: only "LORA" is read`);
  for (const [key, what] of Object.entries(OTHER_METHODS)) {
    const value = keys.get(key);
    if (value !== undefined && !isEmpty(value)) keys.fail(`${key} is ${quote(value)}: ${what}, which is not supported`);
  }
  const beginning = keys.get('init_lora_weights') ?? true;
  if (!PLAIN_BEGINNINGS.includes(beginning))
    keys.fail(
      `init_lora_weights is ${quote(beginning)}: it fits a base without what it began with; save it with ` +
        'path_initial_model_for_weight_conversion, which makes plain LoRA of it',
    );
}

function headIn(keys: Keys): AdapterConfig['head'] {
  const task = keys.get('task_type');
  if (task === undefined) return undefined;
  if (typeof task === 'string' && Object.hasOwn(TASKS, task)) return TASKS[task];
  return keys.fail(`task_type is ${quote(task)}: supported: ${Object.keys(TASKS).join(', ')}`);
}

function requireKnown(keys: Keys): void {
  for (const key of OF_TRAINING) keys.get(key);
  const unknown = Object.keys(keys.json).filter((key) => !keys.asked.has(key) && isGiven(keys.json[key]));
  const [first] = unknown;
  if (first === undefined) return;
  const more = unknown.length > 1 ? ` (and ${unknown.length - 1} more)` : '';
  keys.fail(`${quote(first, 80)} is ${quote(keys.json[first])}: not known${more}, and may change what is computed`);
}

/** Reads a parsed adapter_config.json. `where`: its path. Throws UserError, one line. */
export function parseAdapterConfig(json: Json, where: string): AdapterConfig {
  const keys = new Keys(json, where);
  requireLora(keys);
  const biases = keys.get('bias') ?? 'none';
  if (biases !== 'none' && biases !== 'all' && biases !== 'lora_only')
    return keys.fail(`bias is ${quote(biases)}: supported: none, all, lora_only`);
  const head = headIn(keys);
  const config: AdapterConfig = {
    where,
    head,
    rank: keys.rankOf(keys.get('r') ?? 8, 'r'),
    alpha: keys.alphaOf(keys.get('lora_alpha') ?? 8, 'lora_alpha'),
    isRankStabilized: keys.flag('use_rslora'),
    ranks: keys.patterns('rank_pattern', (value, key) => keys.rankOf(value, key)),
    alphas: keys.patterns('alpha_pattern', (value, key) => keys.alphaOf(value, key)),
    targets: targetsIn(keys),
    excluded: keys.selection('exclude_modules') ?? [],
    parameters: keys.names('target_parameters'),
    ...layersIn(keys),
    saved: keys.names('modules_to_save'),
    biases,
    hasProductBiases: keys.flag('lora_bias'),
    hasMagnitudes: keys.flag('use_dora'),
    tokens: tokensIn(keys),
    keepsTie: keys.flag('ensure_weight_tying'),
    isTurned: keys.flag('fan_in_fan_out'),
  };
  requireKnown(keys);
  if (config.hasMagnitudes && config.hasProductBiases) keys.fail('use_dora and lora_bias do not go together');
  if (config.parameters.length > 0 && (config.hasMagnitudes || config.hasProductBiases))
    keys.fail('target_parameters do not go with use_dora or lora_bias');
  return config;
}

/** Reads the file in the folder `dir`. Throws UserError. */
export function readAdapterConfig(dir: string): AdapterConfig {
  const path = join(dir, CONFIG_NAME);
  const hint = 'give the folder of a PEFT adapter: adapter_config.json and adapter_model.safetensors';
  if (fileSize(path, hint) === undefined) throw new UserError(`${dir}: no ${CONFIG_NAME} in it: not an adapter`, hint);
  return parseAdapterConfig(readJsonObject(path, CONFIG_BYTES, hint).value, path);
}
