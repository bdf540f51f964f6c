/** Mixtures of experts: what config.json says of them. */
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { MAX_CHOSEN, MAX_EXPERTS } from '../../ir/experts.js';
import { isGiven, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';
import { layersOf } from './window.js';

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
const MAX_LAYERS = 1024;
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
