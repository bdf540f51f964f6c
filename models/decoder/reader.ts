/** Settings of config.json with more than one spelling: activations, parts of heads that are turned, factors. */
import { UserError } from '../../errors.js';
import { MAX_CHOSEN, MAX_EXPERTS } from '../../ir/experts.js';
import type { RotaryOrder } from '../../ir/rotaryOrder.js';
import { defined } from '../../system/defined.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from '../model/model.js';
import { type Activation, ACTIVATIONS } from './ops.js';

/** The activation under `key`, or `fallback`. Throws UserError. */
export function readActivation(json: Json, where: string, fallback: Activation, key = 'hidden_act'): Activation {
  const name = json[key];
  if (!isGiven(name)) return fallback;
  const known = typeof name === 'string' && Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
  if (known !== undefined) return known;
  throw new UserError(
    `${where}: ${key} is ${quote(name)}: supported activations are ${Object.keys(ACTIVATIONS).join(', ')}`,
  );
}

/** Keys of the part of each head that is turned: of old files of GPT-NeoX, of others, and of transformers 5. */
const PART = 'partial_rotary_factor';
const PLACES = ['rotary_pct', PART, 'rope_parameters', 'rope_scaling'] as const;

/** The parts that a file states, with the places where it does. As in transformers, rope_parameters goes first. */
function statedParts(json: Json, where: string): readonly { readonly place: string; readonly part: unknown }[] {
  const own = json['rope_parameters'];
  const isDecided = isRecord(own) && isGiven(own[PART]);
  return PLACES.filter((key) => key !== PART || !isDecided).flatMap((key) => {
    const value = json[key];
    const [place, part] = isRecord(value) ? [`${where}: ${key}.${PART}`, value[PART]] : [`${where}: ${key}`, value];
    return isGiven(part) && (isRecord(value) || !key.startsWith('rope_')) ? [{ place, part }] : [];
  });
}

/**
 * How many elements of heads of `headDim` are turned. `fallback`: the part that a family turns if its file names none;
 * undefined if it has no such setting. Throws UserError.
 */
export function readRotated(json: Json, where: string, headDim: number, fallback: number | undefined): number {
  const stated = statedParts(json, where);
  for (const { place, part } of stated) {
    if (fallback === undefined && part !== 1)
      throw new UserError(`${place} is ${quote(part)}: this family turns whole heads`);
    if (typeof part !== 'number' || !(part > 0 && part <= 1))
      throw new UserError(`${place}: expected a number above 0, at most 1, got ${quote(part)}`);
    if (part !== stated[0]!.part)
      throw new UserError(`${place} is ${quote(part)}, but ${stated[0]!.place} is ${quote(stated[0]!.part)}`);
  }
  const part = Number(stated[0]?.part ?? fallback ?? 1);
  const rotated = Math.trunc(headDim * part);
  if (rotated >= 2 && rotated % 2 === 0) return rotated;
  throw new UserError(
    `${where}: rotary embedding of ${part} of heads of ${headDim} turns ${rotated} elements; it turns pairs`,
  );
}

/** What differs from turning whole heads whose pairs are half a head apart; nothing if that is done. */
export const rotaryOf = (
  headDim: number,
  rotated: number,
  interleaved: boolean,
): { readonly rotary?: Omit<RotaryOrder, 'headDim'> } =>
  rotated === headDim && !interleaved ? {} : { rotary: { rotated, interleaved } };

/** The number `key` from `least` to `most`, or `fallback` if it is absent. Throws UserError. */
export function readNumber<F extends number | undefined>(
  json: Json,
  where: string,
  key: string,
  fallback: F,
  [least, most]: readonly [number, number] = [1e-6, 1e6],
): number | F {
  const value = json[key];
  if (!isGiven(value)) return fallback;
  if (typeof value === 'number' && value >= least && value <= most) return value;
  throw new UserError(`${where}: ${key}: expected a number from ${least} to ${most}, got ${quote(value)}`);
}

// Sliding windows: which layers have one, and how wide it is.

const MAX_LAYERS = 1024;
const MAX_KEYS = 1 << 24;
const TYPES = ['full_attention', 'sliding_attention'] as const;

/** Keys that a query sees in each layer; null: all. */
export type Windows = readonly (number | null)[];

/** Layers from 0 on; none where num_hidden_layers is no number of layers, which the reader of all decoders refuses. */
export function layersOf(json: Json): readonly number[] {
  const { num_hidden_layers: count } = json;
  const isCount = typeof count === 'number' && Number.isInteger(count) && count > 0 && count <= MAX_LAYERS;
  return Array.from({ length: isCount ? count : 0 }, (_, layer) => layer);
}

/** Whether each layer has the window by `layer_types`; undefined if the file has no such list. Throws UserError. */
function readLayerTypes(json: Json, where: string): readonly boolean[] | undefined {
  const types: unknown = json['layer_types'];
  if (!isGiven(types)) return undefined;
  const layers = layersOf(json);
  if (!Array.isArray(types) || types.length !== layers.length || !types.every((type) => TYPES.some((t) => t === type)))
    throw new UserError(
      `${where}: layer_types: expected a list of ${TYPES.join(' and ')} for ${layers.length} layers, ` +
        `got ${quote(types)}`,
    );
  return types.map((type) => type === 'sliding_attention');
}

/**
 * The windows of a model whose files say `layer_types`, or leave it to `hasWindow` of each layer. `width`: that of a
 * file without `sliding_window`, null if it then has no window. Throws UserError.
 */
export function readWindows(
  json: Json,
  where: string,
  width: number | null,
  hasWindow: (layer: number) => boolean,
): Windows {
  const { sliding_window: stated = width } = json;
  const types = readLayerTypes(json, where) ?? layersOf(json).map(hasWindow);
  if (stated === null || !types.includes(true)) return types.map(() => null);
  if (typeof stated !== 'number' || !Number.isInteger(stated) || stated < 1 || stated > MAX_KEYS)
    throw new UserError(
      `${where}: sliding_window: expected a whole number from 1 to ${MAX_KEYS}, got ${quote(stated)}`,
    );
  return types.map((isWindow) => (isWindow ? stated : null));
}

/** Whether a layer of a Qwen model has a window, where `bound` is max_window_layers. */
export type QwenWindow = (layer: number, bound: number) => boolean;

/**
 * Qwen's: with `use_sliding_window`, layers have a window that `layer_types` names, else by default those from
 * `max_window_layers` on. Throws UserError.
 */
export function readQwenWindows(
  json: Json,
  where: string,
  hasWindow: QwenWindow = (layer, bound) => layer >= bound,
): Windows {
  if (!usesWindow(json, where)) return layersOf(json).map(() => null);
  const bound = json['max_window_layers'] ?? 28;
  if (typeof bound !== 'number' || !Number.isInteger(bound) || bound < 0)
    throw new UserError(`${where}: max_window_layers: expected a whole number from 0, got ${quote(bound)}`);
  return readWindows(json, where, 4096, (layer) => hasWindow(layer, bound));
}

/** The flag `use_sliding_window`. Throws UserError. */
export function usesWindow(json: Json, where: string): boolean {
  const uses = json['use_sliding_window'] ?? false;
  if (typeof uses !== 'boolean')
    throw new UserError(`${where}: use_sliding_window: expected true or false, got ${quote(uses)}`);
  return uses;
}

// Mixtures of experts: what config.json says of them.

/** Feed-forward blocks of which each token takes a few, chosen by a router (arXiv:1701.06538, arXiv:2401.04088). */
export interface ExpertsConfig {
  readonly count: number;
  /** Experts that a token is sent to. */
  readonly chosen: number;
  /** Inner width of an expert. */
  readonly width: number;
  /** Whether the weights of the chosen experts add up to 1. If not, they are their probabilities among all. */
  readonly isNormalized: boolean;
  /** Inner width of an expert that every token takes, times a gate of its own. Default: there is none. */
  readonly sharedWidth?: number;
  /** Layers with one feed-forward block instead, in ascending order. Default: none. */
  readonly dense?: readonly number[];
}

/** The keys of a family, and what transformers takes absent ones for. */
export interface ExpertKeys {
  /** Keys of the number of experts: the first one that is given counts. */
  readonly count: readonly string[];
  readonly width: string;
  readonly sharedWidth?: string;
  readonly defaults: Pick<ExpertsConfig, 'count' | 'chosen' | 'width' | 'sharedWidth'>;
  /** Absent: the weights always add up to 1, and every layer has experts. */
  readonly hasDenseLayers?: boolean;
}

const MAX_WIDTH = 1 << 19;
/** Experts of all layers, several times those of the largest published model: each has three tensors. */
const MAX_IN_ALL = 1 << 16;

function whole(
  json: Json,
  where: string,
  key: string,
  fallback: number,
  [least, most]: readonly [number, number],
): number {
  const value = json[key];
  if (!isGiven(value)) return fallback;
  if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UserError(`${where}: ${key}: expected a whole number from ${least} to ${most}, got ${quote(value)}`);
}

/** Layers in mlp_only_layers, and those that decoder_sparse_step leaves out. */
function denseLayers(json: Json, where: string): readonly number[] {
  const { mlp_only_layers: listed } = json;
  const step = whole(json, where, 'decoder_sparse_step', 1, [1, MAX_LAYERS]);
  const isLayer = (each: unknown): boolean => typeof each === 'number' && Number.isInteger(each) && each >= 0;
  if (isGiven(listed) && !(Array.isArray(listed) && listed.length <= MAX_LAYERS && listed.every(isLayer)))
    throw new UserError(`${where}: mlp_only_layers: expected a list of layers, got ${quote(listed, 60)}`);
  const dense: readonly unknown[] = Array.isArray(listed) ? listed : [];
  return layersOf(json).filter((layer) => dense.includes(layer) || (layer + 1) % step !== 0);
}

/** Throws UserError where there are no experts, or fewer than a token is sent to. */
export function readExperts(json: Json, where: string, keys: ExpertKeys): ExpertsConfig {
  const { defaults } = keys;
  const countKey = keys.count.find((key) => isGiven(json[key])) ?? keys.count[0]!;
  if (json[countKey] === 0) throw new UserError(`${where}: ${countKey} is 0: a router needs experts to choose among`);
  const count = whole(json, where, countKey, defaults.count, [1, MAX_EXPERTS]);
  const chosen = whole(json, where, 'num_experts_per_tok', defaults.chosen, [1, MAX_CHOSEN]);
  if (chosen > count) throw new UserError(`${where}: num_experts_per_tok is ${chosen}, but ${countKey} is ${count}`);
  const width = whole(json, where, keys.width, defaults.width, [1, MAX_WIDTH]);
  const shared =
    keys.sharedWidth === undefined
      ? undefined
      : whole(json, where, keys.sharedWidth, defaults.sharedWidth ?? 1, [1, MAX_WIDTH]);
  const stated = json['norm_topk_prob'] ?? false;
  if (keys.hasDenseLayers === true && typeof stated !== 'boolean')
    throw new UserError(`${where}: norm_topk_prob: expected true or false, got ${quote(stated)}`);
  const dense = keys.hasDenseLayers === true ? denseLayers(json, where) : [];
  const layers = layersOf(json).length - dense.length;
  if (count * layers > MAX_IN_ALL)
    throw new UserError(
      `${where}: ${countKey} ${count} in ${layers} layers: more than ${MAX_IN_ALL} experts are not supported`,
    );
  return {
    count,
    chosen,
    width,
    isNormalized: keys.hasDenseLayers === true ? stated === true : true,
    ...defined({ sharedWidth: shared }),
    ...(dense.length === 0 ? {} : { dense }),
  };
}
