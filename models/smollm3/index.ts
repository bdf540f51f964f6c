/** SmolLM3: every fourth layer has no rotary embedding (arXiv:2501.18795). */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { layersOf, readWindows, usesWindow } from '../decoder/window.js';
import type { Json } from '../family/model.js';

const INTERVAL = 4;

/**
 * Layers without rotary embedding: those with 0 in no_rope_layers, which may be longer than the model, else every
 * no_rope_layer_interval-th.
 */
function readUnrotated(json: Json, where: string): readonly number[] {
  const { no_rope_layers: marks, no_rope_layer_interval: stated } = json;
  const all = layersOf(json);
  if (!isGiven(marks)) {
    const interval = stated ?? INTERVAL;
    if (typeof interval !== 'number' || !Number.isInteger(interval) || interval < 1)
      throw new UserError(`${where}: no_rope_layer_interval: expected a whole number from 1, got ${quote(interval)}`);
    return all.filter((layer) => (layer + 1) % interval === 0);
  }
  if (!Array.isArray(marks) || marks.length < all.length || !marks.every((mark) => mark === 0 || mark === 1))
    throw new UserError(
      `${where}: no_rope_layers: expected a list of 0 and 1 for ${all.length} layers, got ${quote(marks, 60)}`,
    );
  return all.filter((layer) => marks[layer] === 0);
}

export const smollm3 = decoderFamily({
  name: 'SmolLM3ForCausalLM',
  modelType: 'smollm3',
  covers: 'SmolLM3',
  maxPositions: 32_768,
  kvHeads: 4,
  theta: 2_000_000,
  isTied: true,
  differences: (json, where) => {
    const unrotated = readUnrotated(json, where);
    const hasWindow = usesWindow(json, where);
    const { layer_types: types } = json;
    if (!hasWindow && Array.isArray(types) && types.includes('sliding_attention'))
      throw new UserError(`${where}: layer_types names sliding_attention, but use_sliding_window is not true`);
    return {
      biased: readBiases(json, where),
      unrotated,
      // Layers that do not turn have the window.
      windows: hasWindow ? readWindows(json, where, null, (layer) => unrotated.includes(layer)) : [],
    };
  },
});
