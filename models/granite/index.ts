/** Granite 3 (arXiv:2408.13359, maximal update parametrisation): literal factors at four places. */
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import type { Json } from '../family/model.js';

const [LEAST, MOST] = [1e-6, 1e6];

/** The factor `key`; 1 if it is absent, as in transformers. Throws UserError. */
function readFactor(json: Json, key: string, where: string): number {
  const value = json[key];
  if (!isGiven(value)) return 1;
  if (typeof value === 'number' && value >= LEAST && value <= MOST) return value;
  throw new UserError(`${where}: ${key}: expected a number from ${LEAST} to ${MOST}, got ${quote(value)}`);
}

export const granite = decoderFamily({
  name: 'GraniteForCausalLM',
  modelType: 'granite',
  covers: 'Granite 3, dense',
  maxPositions: 2048,
  differences: (json, where) => ({
    biased: readBiases(json, where),
    factors: {
      embedding: readFactor(json, 'embedding_multiplier', where),
      residual: readFactor(json, 'residual_multiplier', where),
      scores: readFactor(json, 'attention_multiplier', where),
      logits: 1 / readFactor(json, 'logits_scaling', where),
    },
  }),
});
