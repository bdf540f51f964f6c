/** Reads the keys of a config.json, one method for each kind of setting. Every method throws UserError. */
import { UserError } from '../../errors.js';
import { MAX_CHOSEN, MAX_EXPERTS } from '../../ir/experts.js';
import { defined } from '../../system/defined.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from '../model/model.js';
import type { ExpertsConfig } from './experts.js';
import { type Activation, ACTIVATIONS } from './ops.js';

/** A matrix of a layer that may have a bias. A feed-forward block without a gate has `up` alone. */
export type Projection = 'q' | 'k' | 'v' | 'o' | 'gate' | 'up' | 'down';

/** Keys that a query sees in each layer; null: all. */
export type Windows = readonly (number | null)[];

/** The keys of a family's experts, and what transformers takes absent ones for. */
export interface ExpertKeys {
  /** Keys of the number of experts: the first one that is given counts. */
  readonly count: readonly [string, ...string[]];
  readonly width: string;
  readonly sharedWidth?: string;
  readonly defaults: Pick<ExpertsConfig, 'count' | 'chosen' | 'width' | 'sharedWidth'>;
  /** Absent: the weights always add up to 1, and every layer has experts. */
  readonly hasDenseLayers?: boolean;
}

type NumberRange = readonly [min: number, max: number];

const MAX_LAYERS = 1024;
const MAX_KEYS = 1 << 24;
const MAX_EXPERT_WIDTH = 1 << 19;
/** Experts of all layers, several times those of the largest published model: each has three tensors. */
const MAX_EXPERTS_IN_ALL = 1 << 16;
const LAYER_TYPES = ['full_attention', 'sliding_attention'] as const;

/** Keys of the part of each head that is rotated: of old files of GPT-NeoX, of others, and of transformers 5. */
const PART = 'partial_rotary_factor';
const PLACES_OF_PART = ['rotary_pct', PART, 'rope_parameters', 'rope_scaling'] as const;

export class ConfigReader {
  readonly json: Json;
  /** The path of the file, which starts every message. */
  readonly where: string;

  constructor(json: Json, where: string) {
    this.json = json;
    this.where = where;
  }

  /** The file as if it did not have these keys: transformers does not read them for the family. */
  without(...keys: readonly string[]): ConfigReader {
    return new ConfigReader(
      Object.fromEntries(Object.entries(this.json).filter(([key]) => !keys.includes(key))),
      this.where,
    );
  }

  /** The object at `key`; an empty one where that is none. Messages begin with its key. */
  within(key: string): ConfigReader {
    const own = this.json[key];
    return new ConfigReader(isRecord(own) ? own : {}, `${this.where}: ${key}`);
  }

  /** Refuses the file. */
  fail(what: string): never {
    throw new UserError(`${this.where}: ${what}`);
  }

  /** A flag: `fallback` if the key is absent, false if it is null. */
  flag(key: string, fallback = false): boolean {
    const value = key in this.json ? (this.json[key] ?? false) : fallback;
    return typeof value === 'boolean' ? value : this.fail(`${key}: expected true or false, got ${quote(value)}`);
  }

  number<F extends number | undefined>(key: string, fallback: F, [min, max]: NumberRange = [1e-6, 1e6]): number | F {
    const value = this.json[key];
    if (!isGiven(value)) return fallback;
    if (typeof value === 'number' && value >= min && value <= max) return value;
    return this.fail(`${key}: expected a number from ${min} to ${max}, got ${quote(value)}`);
  }

  whole(key: string, fallback: number, [min, max]: NumberRange): number {
    const value = this.json[key];
    if (!isGiven(value)) return fallback;
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
    return this.fail(
      `${key}: expected a whole number from ${min}${max === Infinity ? '' : ` to ${max}`}, got ${quote(value)}`,
    );
  }

  activation(fallback: Activation, key = 'hidden_act'): Activation {
    const name = this.json[key];
    if (!isGiven(name) || (name === 'xielu' && fallback === 'xielu')) return fallback;
    const known = typeof name === 'string' && Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
    return (
      known ?? this.fail(`${key} is ${quote(name)}: supported activations are ${Object.keys(ACTIVATIONS).join(', ')}`)
    );
  }

  /** Projections with biases by `attention_bias`. */
  attentionBiases(): readonly Projection[] {
    return this.flag('attention_bias') ? ['q', 'k', 'v', 'o'] : [];
  }

  /** Projections with biases by `attention_bias` and `mlp_bias`. */
  biases(): readonly Projection[] {
    return [...this.attentionBiases(), ...(this.flag('mlp_bias') ? (['gate', 'up', 'down'] as const) : [])];
  }

  /** The parts of heads that the file states, with their places. As in transformers, rope_parameters goes first. */
  private rotatedParts(): readonly { readonly place: string; readonly part: unknown }[] {
    const own = this.json['rope_parameters'];
    const isDecided = isRecord(own) && isGiven(own[PART]);
    return PLACES_OF_PART.filter((key) => key !== PART || !isDecided).flatMap((key) => {
      const value = this.json[key];
      const place = `${this.where}: ${key}`;
      if (isRecord(value)) return isGiven(value[PART]) ? [{ place: `${place}.${PART}`, part: value[PART] }] : [];
      return isGiven(value) && !key.startsWith('rope_') ? [{ place, part: value }] : [];
    });
  }

  /**
   * How many elements of heads of `headDim` are rotated. `fallback`: the part that a family rotates if its file names
   * none; undefined if it has no such setting.
   */
  rotated(headDim: number, fallback: number | undefined): number {
    const stated = this.rotatedParts();
    const [first] = stated;
    for (const { place, part } of stated) {
      if (fallback === undefined && part !== 1)
        throw new UserError(`${place} is ${quote(part)}: this family turns whole heads`);
      if (typeof part !== 'number' || !(part > 0 && part <= 1))
        throw new UserError(`${place}: expected a number above 0, at most 1, got ${quote(part)}`);
      if (first !== undefined && part !== first.part)
        throw new UserError(`${place} is ${quote(part)}, but ${first.place} is ${quote(first.part)}`);
    }
    const part = Number(first?.part ?? fallback ?? 1);
    const rotated = Math.trunc(headDim * part);
    if (rotated >= 2 && rotated % 2 === 0) return rotated;
    return this.fail(`rotary embedding of ${part} of heads of ${headDim} turns ${rotated} elements; it turns pairs`);
  }

  /** Layers from 0 on; none where num_hidden_layers is no number of layers, which parseDecoderConfig refuses. */
  layers(): readonly number[] {
    const { num_hidden_layers: count } = this.json;
    const isCount = typeof count === 'number' && Number.isInteger(count) && count > 0 && count <= MAX_LAYERS;
    return Array.from({ length: isCount ? count : 0 }, (_, layer) => layer);
  }

  /** Whether each layer has the window by `layer_types`; undefined if the file has no such list. */
  private layerTypes(): readonly boolean[] | undefined {
    const types: unknown = this.json['layer_types'];
    if (!isGiven(types)) return undefined;
    const { length } = this.layers();
    if (!Array.isArray(types) || types.length !== length || !types.every((type) => LAYER_TYPES.some((t) => t === type)))
      this.fail(
        `layer_types: expected a list of ${LAYER_TYPES.join(' and ')} for ${length} layers, got ${quote(types)}`,
      );
    return types.map((type) => type === 'sliding_attention');
  }

  /**
   * The windows of a model whose file says `layer_types`, or leaves it to `hasWindow` of each layer. `width`: that of a
   * file without `sliding_window`; null if it then has no window.
   */
  windows(width: number | null, hasWindow: (layer: number) => boolean): Windows {
    const { sliding_window: stated = width } = this.json;
    const isWindow = this.layerTypes() ?? this.layers().map(hasWindow);
    if (stated === null || !isWindow.includes(true)) return isWindow.map(() => null);
    const keys = this.whole('sliding_window', width ?? 0, [1, MAX_KEYS]);
    return isWindow.map((is) => (is ? keys : null));
  }

  /**
   * With `use_sliding_window`, layers have a window that `layer_types` names, else those of which `hasWindow` says so,
   * by default those from `max_window_layers` on.
   */
  qwenWindows(hasWindow = (layer: number, bound: number): boolean => layer >= bound): Windows {
    if (!this.flag('use_sliding_window')) return this.layers().map(() => null);
    const bound = this.whole('max_window_layers', 28, [0, Infinity]);
    return this.windows(4096, (layer) => hasWindow(layer, bound));
  }

  /** Layers in mlp_only_layers, and those that decoder_sparse_step leaves out. */
  private denseLayers(): readonly number[] {
    const { mlp_only_layers: listed } = this.json;
    const step = this.whole('decoder_sparse_step', 1, [1, MAX_LAYERS]);
    const isLayer = (each: unknown): boolean => typeof each === 'number' && Number.isInteger(each) && each >= 0;
    if (isGiven(listed) && !(Array.isArray(listed) && listed.length <= MAX_LAYERS && listed.every(isLayer)))
      this.fail(`mlp_only_layers: expected a list of layers, got ${quote(listed, 60)}`);
    const dense: readonly unknown[] = Array.isArray(listed) ? listed : [];
    return this.layers().filter((layer) => dense.includes(layer) || (layer + 1) % step !== 0);
  }

  /** Fails where there are no experts, or fewer than a token is sent to. */
  experts({
    count: countKeys,
    width: widthKey,
    sharedWidth,
    defaults,
    hasDenseLayers = false,
  }: ExpertKeys): ExpertsConfig {
    const countKey = countKeys.find((key) => isGiven(this.json[key])) ?? countKeys[0];
    if (this.json[countKey] === 0) this.fail(`${countKey} is 0: a router needs experts to choose among`);
    const count = this.whole(countKey, defaults.count, [1, MAX_EXPERTS]);
    const chosen = this.whole('num_experts_per_tok', defaults.chosen, [1, MAX_CHOSEN]);
    if (chosen > count) this.fail(`num_experts_per_tok is ${chosen}, but ${countKey} is ${count}`);
    const width = this.whole(widthKey, defaults.width, [1, MAX_EXPERT_WIDTH]);
    const shared =
      sharedWidth === undefined ? undefined : this.whole(sharedWidth, defaults.sharedWidth ?? 1, [1, MAX_EXPERT_WIDTH]);
    const isNormalized = hasDenseLayers ? this.flag('norm_topk_prob') : true;
    const dense = hasDenseLayers ? this.denseLayers() : [];
    const layers = this.layers().length - dense.length;
    if (count * layers > MAX_EXPERTS_IN_ALL)
      this.fail(`${countKey} ${count} in ${layers} layers: more than ${MAX_EXPERTS_IN_ALL} experts are not supported`);
    return {
      count,
      chosen,
      width,
      isNormalized,
      ...defined({ sharedWidth: shared }),
      ...(dense.length === 0 ? {} : { dense }),
    };
  }
}
