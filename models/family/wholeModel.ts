/**
 * What any config.json may say that makes it no language model by itself, or none that reads from left to right. Such
 * settings stand beside the `model_type` of a family that is read, and nothing else in the file tells.
 */
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from './model.js';

/** What to do about a model that is not read. */
export const FAMILIES_HINT = 'docs/families.md lists the supported models and settings';

/** Keys that say the same, the value that a language model may have, and what any other one means. */
interface Switch {
  readonly keys: readonly string[];
  readonly harmless: boolean;
  readonly means: string;
}

const SEES_ALL = 'tokens see only those before them here, and in this model also those behind them';

const SWITCHES: readonly Switch[] = [
  { keys: ['is_causal', 'causal', 'causal_attention', 'use_causal_mask'], harmless: true, means: SEES_ALL },
  {
    keys: ['use_bidirectional_attention', 'bidirectional_attention', 'is_bidirectional', 'bidirectional'],
    harmless: false,
    means: SEES_ALL,
  },
  {
    keys: ['is_prefix_lm', 'use_prefix_lm', 'prefix_lm'],
    harmless: false,
    means: 'tokens see only those before them here, and in this model those of a prompt see all of it',
  },
  { keys: ['is_encoder_decoder'], harmless: false, means: 'it is an encoder with a decoder' },
  { keys: ['add_cross_attention'], harmless: false, means: 'its layers also see what another model has read' },
];

/** Keys of draft models, and what kind each is of. */
const DRAFT_KEYS: readonly (readonly [key: string, kind: string])[] = [
  ['speculators_model_type', 'speculators'],
  ['speculators_config', 'speculators'],
  ['aux_hidden_state_layer_ids', 'speculators'],
  ['dflash_config', 'DFlash'],
  ['eagle_config', 'EAGLE'],
  ['draft_vocab_size', 'EAGLE'],
  ['target_hidden_size', 'EAGLE'],
  ['medusa_num_heads', 'Medusa'],
  ['hydra_num_heads', 'Hydra'],
  ['num_target_layers', 'DFlash'],
];

/** For sentences that begin with "it is". */
export const DRAFT_MODEL = 'a draft model, which guesses tokens that another model checks';

/** The model that a draft model guesses for, where its file says so. */
function targetOf(json: Json): string {
  const config = json['speculators_config'];
  const verifier = isRecord(config) ? config['verifier'] : undefined;
  const name = (isRecord(verifier) ? verifier['name_or_path'] : undefined) ?? json['base_model_name_or_path'];
  return typeof name === 'string' && name !== '' ? ` (${quote(name)})` : '';
}

/** Throws UserError where `json` has keys of a draft model, whose file may name no class and no `model_type`. */
export function refuseDraft(json: Json, where: string): void {
  const draft = DRAFT_KEYS.find(([key]) => isGiven(json[key]));
  if (draft !== undefined) {
    const [key, kind] = draft;
    const stated = json['speculators_model_type'];
    const own = kind === 'speculators' && typeof stated === 'string' ? quote(stated).slice(1, -1) : kind;
    throw new UserError(
      `${where}: ${key} is ${quote(json[key])}: it is ${DRAFT_MODEL}${targetOf(json)}, of the kind ${own}`,
      `use the model that it guesses for; ${FAMILIES_HINT}`,
    );
  }
}

/** Throws UserError where `json` describes a model that is none by itself, or whose tokens see those behind them. */
export function requireWholeModel(json: Json, where: string): void {
  refuseDraft(json, where);
  for (const { keys, harmless, means } of SWITCHES)
    for (const key of keys)
      if (isGiven(json[key]) && json[key] !== harmless)
        throw new UserError(`${where}: ${key} is ${quote(json[key])}: ${means}`, FAMILIES_HINT);
}
