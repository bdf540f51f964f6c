/** What all versions of Gemma have in common. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import type { NormKind } from '../decoder/config.js';
import { readActivation, readNumber } from '../decoder/settings.js';
import { LLAMA_NAMES, type TensorNames } from '../decoder/tensors.js';
import type { Json } from '../family/model.js';

/** Weights of norms are kept as differences from 1. */
export const GEMMA_NORM: NormKind = { kind: 'rms', offset: 1, hasBias: false };

/** √hidden_size. transformers rounds it to the type in which it computes, which is no difference in f32. */
export function embeddingFactor({ hidden_size: hidden }: Json): number {
  // A hidden size that is none is refused with the keys that all decoders have.
  return typeof hidden === 'number' && hidden > 0 ? Math.sqrt(hidden) : 1;
}

/**
 * Refuses what would change the result. Files of Gemma 1 say "gelu" where GELU by tanh is meant, so `hidden_act`
 * chooses nothing. Throws UserError.
 */
export function checkGemma(json: Json, where: string): void {
  if (readActivation(json, where, 'geluTanh') === 'silu')
    throw new UserError(`${where}: hidden_act is ${quote(json['hidden_act'])}: Gemma computes GELU`);
}

/** Names of models with norms before and behind both branches. */
export const NAMES_WITH_FOUR_NORMS: TensorNames = {
  ...LLAMA_NAMES,
  norms: {
    attention: { before: 'input_layernorm', after: 'post_attention_layernorm' },
    ffn: { before: 'pre_feedforward_layernorm', after: 'post_feedforward_layernorm' },
  },
};

/** 1/√query_pre_attn_scalar, the factor of attention scores. Throws UserError. */
export const scoreFactor = (json: Json, where: string): number =>
  1 / Math.sqrt(readNumber(json, where, 'query_pre_attn_scalar', 256));
