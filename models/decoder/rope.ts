/** Rotary position embedding: what a model says of it, and the frequencies that follow. */
import { defined } from '../../system/defined.js';
import { at } from '../../system/at.js';
import { UserError } from '../../errors.js';
import { roundToDType } from '../../ir/round.js';
import { readSettings } from '../../settings.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from '../model/model.js';

export type RopeScaling =
  | { readonly type: 'none' }
  /** Positions divided by `factor` (kaiokendev's and Chen et al.'s position interpolation, arXiv:2306.15595). */
  | { readonly type: 'linear'; readonly factor: number }
  /** LLaMA 3.1: long wavelengths are stretched by `factor`, short ones are kept, and those between are blended. */
  | {
      readonly type: 'llama3';
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalMaxPositions: number;
    }
  /**
   * YaRN (arXiv:2309.00071): a pair that turns more than `betaFast` times in the original context keeps its frequency,
   * the frequency of one that turns less than `betaSlow` times is divided by `factor`, and those between are blended
   * along the head.
   */
  | {
      readonly type: 'yarn';
      readonly factor: number;
      readonly originalMaxPositions: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      /** True if the blend begins and ends at whole pairs. */
      readonly truncate: boolean;
      /** Factor of both cosine and sine. */
      readonly attentionFactor: number;
    }
  /**
   * LongRoPE (arXiv:2402.13753), for texts of up to `originalMaxPositions` tokens: the frequency of each pair is
   * divided by a factor of its own. Longer texts would have other factors, also for the tokens that they begin with, so
   * the model is read with the shorter context.
   */
  | {
      readonly type: 'longrope';
      readonly factors: readonly number[];
      readonly originalMaxPositions: number;
      /** Factor of both cosine and sine. */
      readonly attentionFactor: number;
    };

export interface RopeConfig {
  /** Base of the geometric series of frequencies. */
  readonly theta: number;
  readonly scaling: RopeScaling;
  /** Frequencies are rounded to this type. Default: they are exact. */
  readonly rounding?: 'bf16' | 'f16';
}

/** The pairs between which YaRN blends. The pair that turns n times in the original context is at `pairOf(n)`. */
function yarnRange(
  headDim: number,
  theta: number,
  scaling: Extract<RopeScaling, { type: 'yarn' }>,
): { low: number; high: number } {
  const pairOf = (turns: number): number =>
    (headDim * Math.log(scaling.originalMaxPositions / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const [first, last] = [pairOf(scaling.betaFast), pairOf(scaling.betaSlow)];
  const low = Math.max(scaling.truncate ? Math.floor(first) : first, 0);
  const high = Math.min(scaling.truncate ? Math.ceil(last) : last, headDim - 1);
  return { low, high: high === low ? low + 0.001 : high };
}

/**
 * f64[headDim/2]: radians per position for each rotated pair, with scaling applied. Unscaled: theta^(−2i/headDim).
 * Linear: divided by factor. llama3 (as in transformers' modeling_rope_utils): with turns = originalMaxPositions /
 * wavelength, kept above highFreqFactor turns, divided by factor below lowFreqFactor, blended linearly in turns
 * between; Llama 4 blends nothing, both being 1. yarn: see RopeScaling.
 */
export function ropeInverseFrequencies(config: { readonly headDim: number; readonly rope: RopeConfig }): Float64Array {
  const { headDim, rope } = config;
  const { theta, scaling } = rope;
  const plain = Float64Array.from({ length: headDim / 2 }, (_, i) => theta ** ((-2 * i) / headDim));
  switch (scaling.type) {
    case 'none':
      return plain;
    case 'linear':
      return plain.map((frequency) => frequency / scaling.factor);
    case 'llama3':
      return plain.map((frequency) => {
        const turns = (scaling.originalMaxPositions * frequency) / (2 * Math.PI);
        if (turns > scaling.highFreqFactor) return frequency;
        if (turns < scaling.lowFreqFactor) return frequency / scaling.factor;
        if (scaling.lowFreqFactor === scaling.highFreqFactor) return frequency;
        const kept = (turns - scaling.lowFreqFactor) / (scaling.highFreqFactor - scaling.lowFreqFactor);
        return (1 - kept) * (frequency / scaling.factor) + kept * frequency;
      });
    case 'yarn': {
      const { low, high } = yarnRange(headDim, theta, scaling);
      return plain.map((frequency, i) => {
        const stretched = Math.min(1, Math.max(0, (i - low) / (high - low)));
        return (frequency / scaling.factor) * stretched + frequency * (1 - stretched);
      });
    }
    case 'longrope':
      return plain.map((frequency, i) => frequency / at(scaling.factors, i));
    default:
      return scaling satisfies never;
  }
}

/** What the graph needs for rotary embedding. */
export interface RotaryTable {
  /** f64[headDim/2], with scaling applied; 0 for pairs that are not turned, which come last. */
  readonly inverseFrequencies: Float64Array;
  /** Factor of cosine and sine. */
  readonly factor: number;
}

/** Frequencies of heads of which the first `rotated` elements are turned. */
function rotaryTable(headDim: number, rotated: number, rope: RopeConfig): RotaryTable {
  const inverseFrequencies = new Float64Array(headDim / 2);
  const exact = ropeInverseFrequencies({ headDim: rotated, rope });
  const { rounding } = rope;
  inverseFrequencies.set(rounding === undefined ? exact : exact.map((each) => roundToDType(each, rounding)));
  return { inverseFrequencies, factor: 'attentionFactor' in rope.scaling ? rope.scaling.attentionFactor : 1 };
}

/** The tables of a model's layers. `rotary`: how many elements of a head are turned; default: all. */
export function rotaryTables(config: {
  readonly headDim: number;
  readonly rope: RopeConfig;
  readonly windowRope?: RopeConfig;
  readonly rotary?: { readonly rotated: number };
}): { readonly rotary: RotaryTable; readonly windowRotary?: RotaryTable } {
  const { headDim, rope, windowRope, rotary } = config;
  const tableOf = (own: RopeConfig): RotaryTable => rotaryTable(headDim, rotary?.rotated ?? headDim, own);
  return { rotary: tableOf(rope), ...defined({ windowRotary: windowRope && tableOf(windowRope) }) };
}

// Rotary settings of a config.json, in the spellings of transformers 4 and 5.

const SUPPORTED = 'default, linear, dynamic, llama3, yarn, longrope';
const DEFAULT_THETA = 10_000;

function number(source: Json, key: string, where: string, min: number, max: number): number {
  const value = source[key];
  if (typeof value === 'number' && value >= min && value <= max) return value;
  throw new UserError(`${where}.${key}: expected a number from ${min} to ${max}, got ${quote(value)}`);
}

const numberOr = (source: Json, key: string, fallback: number, where: string, min: number, max: number): number =>
  isGiven(source[key]) ? number(source, key, where, min, max) : fallback;

/**
 * The context before it was scaled: that at the top of the file or of the settings, which must not disagree; else the
 * longest one. As in transformers, a family's own stands for one at the top. Throws UserError.
 */
function originalContext(source: Json, where: string, config: Json, { originalContext: own }: RopeDefaults): unknown {
  const key = 'original_max_position_embeddings';
  const [inner, outer] = [source[key], config[key]];
  if (isGiven(inner) && isGiven(outer) && inner !== outer)
    throw new UserError(`${where}.${key} ${quote(inner)} and that outside of it, ${quote(outer)}, disagree`);
  return outer ?? own ?? inner ?? config['max_position_embeddings'];
}

/** Defaults and formulas are those of transformers' modeling_rope_utils. */
function parseYarn(source: Json, where: string, originalMaxPositions: unknown): RopeScaling {
  const factor = number(source, 'factor', where, 1, 1e6);
  const truncate = source['truncate'] ?? true;
  if (typeof truncate !== 'boolean')
    throw new UserError(`${where}.truncate: expected true or false, got ${quote(truncate)}`);
  const mscale = (weight: number): number => 0.1 * weight * Math.log(factor) + 1;
  const [over, under] = [
    numberOr(source, 'mscale', 0, where, 0, 100),
    numberOr(source, 'mscale_all_dim', 0, where, 0, 100),
  ];
  const attentionFactor = over > 0 && under > 0 ? mscale(over) / mscale(under) : mscale(1);
  const scaling = {
    type: 'yarn',
    factor,
    originalMaxPositions: number(
      { original_max_position_embeddings: originalMaxPositions },
      'original_max_position_embeddings',
      where,
      1,
      2 ** 24,
    ),
    betaFast: numberOr(source, 'beta_fast', 32, where, 1e-6, 1e6),
    betaSlow: numberOr(source, 'beta_slow', 1, where, 1e-6, 1e6),
    truncate,
    attentionFactor: numberOr(source, 'attention_factor', attentionFactor, where, 1e-6, 1e6),
  } as const;
  if (scaling.betaFast < scaling.betaSlow)
    throw new UserError(`${where}: beta_fast ${scaling.betaFast} must not be less than beta_slow ${scaling.betaSlow}`);
  return scaling;
}

/** Defaults are those of transformers' modeling_rope_utils. */
function parseLongRope(source: Json, where: string, originalMaxPositions: unknown, maxPositions: unknown): RopeScaling {
  const key = 'original_max_position_embeddings';
  const original = number({ [key]: originalMaxPositions }, key, where, 2, 2 ** 24);
  const ratio = isGiven(source['factor'])
    ? number(source, 'factor', where, 1e-6, 1e6)
    : number({ max_position_embeddings: maxPositions }, 'max_position_embeddings', where, 1, 2 ** 24) / original;
  const factors: unknown = source['short_factor'];
  if (!Array.isArray(factors) || factors.length > 512 || !factors.every(isFactor))
    throw new UserError(`${where}.short_factor: expected a list of numbers above 0, got ${quote(factors)}`);
  const attentionFactor = ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(original));
  return {
    type: 'longrope',
    factors,
    originalMaxPositions: original,
    attentionFactor: numberOr(source, 'attention_factor', attentionFactor, where, 1e-6, 1e6),
  };
}

const isFactor = (value: unknown): value is number => typeof value === 'number' && value >= 1e-6 && value <= 1e6;

function parseScaling(source: Json, where: string, config: Json, defaults: RopeDefaults): RopeScaling {
  const { types = {} } = defaults;
  const stated = source['rope_type'] ?? source['type'] ?? 'default';
  const named = (typeof stated === 'string' && Object.hasOwn(types, stated) ? types[stated] : undefined) ?? stated;
  if (isGiven(source['rope_type']) && isGiven(source['type']) && source['rope_type'] !== source['type']) {
    throw new UserError(`${where}: rope_type ${quote(source['rope_type'])} and type ${quote(source['type'])} disagree`);
  }
  switch (named) {
    case 'default':
    case 'none':
      return { type: 'none' };
    case 'linear':
      return { type: 'linear', factor: number(source, 'factor', where, 1, 1e6) };
    // Stretches texts that are longer than the model's context, which are cut or refused before they come here.
    case 'dynamic':
      number(source, 'factor', where, 1, 1e6);
      return { type: 'none' };
    case 'longrope':
      return parseLongRope(
        source,
        where,
        originalContext(source, where, config, defaults),
        config['max_position_embeddings'],
      );
    case 'llama3': {
      const filled = {
        ...source,
        original_max_position_embeddings: originalContext(source, where, config, defaults),
      };
      const scaling = {
        type: 'llama3',
        factor: number(filled, 'factor', where, 1, 1e6),
        lowFreqFactor: number(filled, 'low_freq_factor', where, 1e-6, 1e6),
        highFreqFactor: number(filled, 'high_freq_factor', where, 1e-6, 1e6),
        originalMaxPositions: number(filled, 'original_max_position_embeddings', where, 1, 2 ** 24),
      } as const;
      if (scaling.highFreqFactor < scaling.lowFreqFactor) {
        throw new UserError(
          `${where}: high_freq_factor ${scaling.highFreqFactor} must be at least ` +
            `low_freq_factor ${scaling.lowFreqFactor}`,
        );
      }
      return scaling;
    }
    case 'yarn':
      return parseYarn(source, where, originalContext(source, where, config, defaults));
    default:
      throw new UserError(`${where}: rope type ${quote(named)} is not supported; supported: ${SUPPORTED}`);
  }
}

/** What a family says of rotary settings. */
export interface RopeDefaults {
  /** rope_theta if a file names none. Default: 10,000. */
  readonly theta?: number | undefined;
  /** Another key of theta. Default: none. */
  readonly thetaKey?: string | undefined;
  /** Scaling that is given once is that of layers without a window. Default: of all. */
  readonly scalesFullLayersOnly?: boolean | undefined;
  /** original_max_position_embeddings if a file names none. Default: none. */
  readonly originalContext?: number | undefined;
  /** Other names of types of scaling. Default: none. */
  readonly types?: Readonly<Record<string, string>> | undefined;
}

/** Layers of a model whose layers differ, as `layer_types` names them. */
const KINDS = ['full_attention', 'sliding_attention'] as const;

/**
 * Rotary settings of a config.json whose rope_parameters may hold them by the kind of a layer: `rope`, and `windowRope`
 * where layers with a window have others. Throws UserError.
 */
export function parseRopes(config: Json, where: string, defaults: RopeDefaults): Ropes {
  const { rope, windowRope } = statedRopes(config, where, defaults);
  const rounded = defined({ rounding: roundingOf(readSettings().ropeRounding) });
  return { rope: { ...rope, ...rounded }, ...defined({ windowRope: windowRope && { ...windowRope, ...rounded } }) };
}

function roundingOf(asked: string | undefined): RopeConfig['rounding'] {
  if (asked === undefined || asked === 'bf16' || asked === 'f16') return asked;
  throw new UserError(`TILEWRIGHT_ROPE_ROUNDING: expected bf16 or f16, got ${quote(asked)}`, 'unset it for exact ones');
}

interface Ropes {
  readonly rope: RopeConfig;
  readonly windowRope?: RopeConfig;
}

function statedRopes(config: Json, where: string, defaults: RopeDefaults): Ropes {
  const nested = config['rope_parameters'];
  if (!isRecord(nested) || !KINDS.some((kind) => kind in nested)) {
    const rope = parseRope(config, where, defaults);
    const isScaled = defaults.scalesFullLayersOnly === true && rope.scaling.type !== 'none';
    return { rope, ...(isScaled ? { windowRope: { theta: rope.theta, scaling: { type: 'none' } } } : {}) };
  }
  if (isGiven(config['rope_scaling']))
    throw new UserError(`${where}: rope_scaling is given beside rope_parameters of kinds of layers`);
  const stray = Object.keys(nested).find((key) => !KINDS.some((kind) => kind === key));
  if (stray !== undefined)
    throw new UserError(
      `${where}: rope_parameters: expected ${KINDS.join(' and ')} alone, got ${quote(stray)} as well`,
    );
  const [rope, windowRope] = KINDS.map((kind) => {
    const place = `${where}: rope_parameters.${kind}`;
    const own = nested[kind];
    if (isGiven(own) && !isRecord(own)) throw new UserError(`${place}: expected an object, got ${quote(own)}`);
    // A theta of its own goes before that of the file.
    const theta = isGiven(own?.['rope_theta']) ? null : config['rope_theta'];
    return parseRope({ ...config, rope_theta: theta, rope_scaling: null, rope_parameters: own ?? {} }, place, defaults);
  });
  const isSame = JSON.stringify(rope) === JSON.stringify(windowRope);
  return { rope: rope!, ...(isSame ? {} : { windowRope: windowRope! }) };
}

/**
 * Rotary settings of a config.json, from the old keys (`rope_theta`, `rope_scaling`) or the new one (`rope_parameters`,
 * which holds both). If a file has both, they must agree. Throws UserError.
 */
function parseRope(config: Json, where: string, defaults: RopeDefaults): RopeConfig {
  const { theta: defaultTheta = DEFAULT_THETA, thetaKey: otherKey = 'rope_theta' } = defaults;
  const thetas = new Map<string, number>();
  for (const key of new Set(['rope_theta', otherKey]))
    if (isGiven(config[key])) thetas.set(`${where}: ${key}`, number(config, key, where, 1, 1e12));
  const scalings: RopeScaling[] = [];
  for (const key of ['rope_parameters', 'rope_scaling']) {
    const source = config[key];
    if (!isGiven(source)) continue;
    const place = `${where}: ${key}`;
    if (!isRecord(source)) throw new UserError(`${place}: expected an object, got ${quote(source)}`);
    if (isGiven(source['rope_theta'])) thetas.set(`${place}.rope_theta`, number(source, 'rope_theta', place, 1, 1e12));
    scalings.push(parseScaling(source, place, config, defaults));
  }
  // rope_scaling has the default of what it leaves out, whatever stands in rope_parameters.
  const scaling = config['rope_scaling'];
  const isScaled = isRecord(scaling) && Object.keys(scaling).length > 0;
  if (isScaled && [...thetas.keys()].join() === `${where}: rope_parameters.rope_theta`)
    thetas.set(`${where}: default of rope_scaling`, defaultTheta);
  const [first, second] = scalings;
  if (first !== undefined && second !== undefined && JSON.stringify(first) !== JSON.stringify(second)) {
    throw new UserError(
      `${where}: rope_parameters and rope_scaling disagree: ${quote(first, 120)} and ${quote(second, 120)}`,
    );
  }
  const distinct = new Set(thetas.values());
  if (distinct.size > 1) {
    throw new UserError(
      `${where}: values of rope_theta disagree: ` +
        `${[...thetas].map(([key, value]) => `${key.slice(where.length + 2)} ${value}`).join(', ')}`,
    );
  }
  const [theta = defaultTheta] = distinct;
  return { theta, scaling: first ?? { type: 'none' } };
}
