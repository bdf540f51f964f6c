/**
 * Multimodal models, whose config.json holds that of a language model as `text_config`. Only that part is read: texts
 * without pictures or sound are those of the language model alone.
 */
import { UserError } from '../errors.js';
import { isGiven, isRecord, quote } from '../system/json.js';
import type { Json } from './family/model.js';

/** Keys that the outer file may have for both. */
const SHARED_KEYS = [
  'tie_word_embeddings',
  'dtype',
  'torch_dtype',
  'bos_token_id',
  'eos_token_id',
  'quantization_config',
] as const;

/**
 * The language model's own config.json inside that of a multimodal model; undefined if there is none. A key that only
 * the outer file has, such as the element type, holds for both. Throws UserError.
 */
export function textConfig(json: Json, where: string): Json | undefined {
  const text = json['text_config'];
  if (!isGiven(text)) return undefined;
  if (!isRecord(text)) throw new UserError(`${where}: text_config: expected an object, got ${quote(text)}`);
  const outer = SHARED_KEYS.filter((key) => !isGiven(text[key]) && isGiven(json[key])).map((key) => [key, json[key]]);
  return { ...text, ...(Object.fromEntries(outer) as Json) };
}

/** Modules beside the language model. */
const OTHER_MODULES =
  /^(?:model\.)?(?:vision_tower|vision_model|visual|multi_modal_projector|mm_projector|audio_tower|embed_vision)\./;

/**
 * The name of a tensor in the language model alone; undefined for one of another module. Older files put the whole
 * model below `language_model`, newer ones what is below `model`.
 */
export function textTensor(name: string): string | undefined {
  if (OTHER_MODULES.test(name)) return undefined;
  if (name.startsWith('language_model.')) return name.slice('language_model.'.length);
  return name.startsWith('model.language_model.') ? `model.${name.slice('model.language_model.'.length)}` : name;
}
