/** Rotary settings of a GGUF file in the words of config.json. */
import { defined } from '../../system/defined.js';
import type { Json } from '../family/model.js';
import type { Facts } from './facts.js';

const MAX_POSITIONS = 2 ** 24;
const FACTOR: readonly [number, number] = [1e-6, 1e6];

/** The tensors with a factor for each frequency, by what they are for. */
const FACTORS = { all: 'rope_freqs.weight', short: 'rope_factors_short.weight', long: 'rope_factors_long.weight' };

/** Tensors that hold settings. */
export const SETTING_TENSORS: readonly string[] = Object.values(FACTORS);

/** The factor by which positions are divided, or frequencies blended. */
function factorOf(facts: Facts, type: string): number {
  const factor = facts.number('rope.scaling.factor', 1, 1e6) ?? facts.number('rope.scale_linear', 1, 1e6);
  return factor ?? facts.refuse(`${facts.key('rope.scaling.type')} is ${type}, and no factor is given`);
}

/** The factors in a tensor, one for each frequency; undefined if there is no such tensor. */
function factorsIn(facts: Facts, tensor: string, frequencies: number): readonly number[] | undefined {
  const factors = facts.values(tensor);
  if (factors === undefined) return undefined;
  if (factors.length !== frequencies)
    facts.refuse(`tensor ${tensor} has ${factors.length} numbers, and rotary embedding turns ${frequencies} pairs`);
  const stray = factors.findIndex((factor) => !(factor >= FACTOR[0] && factor <= FACTOR[1]));
  if (stray !== -1)
    facts.refuse(`tensor ${tensor}: number ${stray} is ${factors[stray]}; expected ${FACTOR[0]} to ${FACTOR[1]}`);
  return factors;
}

/** Frequencies divided by the numbers of a tensor, for texts of up to `positions` tokens. */
const divided = (factors: readonly number[], positions: number, attention: number): Json => ({
  rope_type: 'longrope',
  short_factor: factors,
  original_max_position_embeddings: positions,
  attention_factor: attention,
});

function readYarn(facts: Facts): Json {
  const extrapolation = facts.number('rope.scaling.yarn_ext_factor', 0, 1e6) ?? 1;
  const logMultiplier = facts.number('rope.scaling.yarn_log_multiplier', 0, 1e6) ?? 0;
  const attention = facts.number('rope.scaling.yarn_attn_factor', ...FACTOR) ?? 1;
  const [fast, slow] = ['yarn_beta_fast', 'yarn_beta_slow'].map((key) =>
    facts.number(`rope.scaling.${key}`, ...FACTOR),
  );
  const factor = factorOf(facts, 'yarn');
  // What YaRN multiplies by anyway may be said.
  const isUsual = attention === 1 || Math.abs(attention - (0.1 * Math.log(factor) + 1)) < 1e-5;
  if (extrapolation !== 1 || logMultiplier !== 0 || !isUsual)
    facts.refuse('YaRN with factors of its own (yarn_ext_factor, yarn_log_multiplier, yarn_attn_factor)');
  return {
    rope_type: 'yarn',
    factor,
    original_max_position_embeddings: facts.required('rope.scaling.original_context_length', 1, MAX_POSITIONS),
    ...defined({ beta_fast: fast, beta_slow: slow }),
  };
}

/** rope_scaling of config.json; undefined if positions are not stretched. Throws UserError for what is not known. */
function readScaling(facts: Facts, frequencies: number): Json | undefined {
  const { metadata } = facts;
  const type = metadata.text(facts.key('rope.scaling.type')) ?? 'none';
  const positions = facts.required('context_length', 1, MAX_POSITIONS);
  // Whether the model was trained with it, which changes nothing.
  metadata.flag(facts.key('rope.scaling.finetuned'));
  const original = facts.whole('rope.scaling.original_context_length', 1, MAX_POSITIONS);
  const attention = facts.number('rope.scaling.attn_factor', ...FACTOR) ?? 1;
  const [all, short] = [FACTORS.all, FACTORS.short].map((tensor) => factorsIn(facts, tensor, frequencies));
  if (all !== undefined) {
    if (type !== 'none' || short !== undefined) facts.refuse(`${FACTORS.all} beside scaling of type ${type}`);
    return divided(all, positions, 1);
  }
  if (short !== undefined) {
    if (type !== 'none' && type !== 'longrope') facts.refuse(`${FACTORS.short} beside scaling of type ${type}`);
    return divided(short, original ?? positions, attention);
  }
  if (facts.has(FACTORS.long) || type === 'longrope') facts.refuse(`LongRoPE without ${FACTORS.short}`);
  if (attention !== 1) facts.refuse(`${facts.key('rope.scaling.attn_factor')} is ${attention} without LongRoPE`);
  switch (type) {
    case 'none': {
      const linear = facts.number('rope.scale_linear', 1, 1e6) ?? facts.number('rope.scaling.factor', 0, 1e6) ?? 1;
      return linear === 1 || linear === 0 ? undefined : { rope_type: 'linear', factor: linear };
    }
    case 'linear':
      return { rope_type: 'linear', factor: factorOf(facts, type) };
    case 'yarn':
      return readYarn(facts);
    default:
      return facts.refuse(`${facts.key('rope.scaling.type')} is ${JSON.stringify(type)}, which is not known`);
  }
}

/**
 * Rotary settings: the same for all layers, or others for those with a window. `frequencies`: pairs of dimensions that
 * are turned.
 */
export function readRotary(facts: Facts, hasWindowTheta: boolean, frequencies: number): Json {
  const theta = facts.number('rope.freq_base', 1, 1e12) ?? 10_000;
  const scaling = readScaling(facts, frequencies);
  // Families may have a value of their own for files that do not say it outside of the scaling.
  const original = scaling?.['original_max_position_embeddings'];
  const context = original === undefined ? {} : { original_max_position_embeddings: original };
  if (!hasWindowTheta) return { rope_theta: theta, ...context, ...defined({ rope_scaling: scaling }) };
  return {
    rope_parameters: {
      full_attention: { rope_theta: theta, ...scaling },
      sliding_attention: { rope_theta: facts.number('rope.freq_base_swa', 1, 1e12) ?? 10_000 },
    },
  };
}
