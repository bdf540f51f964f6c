/** Sliding windows: which layers have one, and how wide it is. */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';

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
