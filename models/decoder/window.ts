/** The sliding window of Qwen and SmolLM3, which no published checkpoint of theirs uses. */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';

/** Default of max_window_layers: the first layer with the window. */
const FIRST_WINDOW_LAYER = 28;

/** Refuses a model in which some layer sees only the last `sliding_window` tokens. Throws UserError. */
export function checkWindow(json: Json, where: string): void {
  const { sliding_window: window, layer_types: types, num_hidden_layers: layers } = json;
  if (json['use_sliding_window'] !== true || !isGiven(window)) return;
  const first = json['max_window_layers'] ?? FIRST_WINDOW_LAYER;
  const hasWindow = Array.isArray(types)
    ? types.includes('sliding_attention')
    : !(typeof first === 'number' && typeof layers === 'number' && first >= layers);
  if (hasWindow) throw new UserError(`${where}: use_sliding_window (sliding_window ${quote(window)}) is not supported`);
}
