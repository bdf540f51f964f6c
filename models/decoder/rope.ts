/** Rotary position embedding: what a model says of it, and the frequencies that follow. */

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
 * between. yarn: see RopeScaling.
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
      return plain.map((frequency, i) => frequency / scaling.factors[i]!);
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
  inverseFrequencies.set(ropeInverseFrequencies({ headDim: rotated, rope }));
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
  return { rotary: tableOf(rope), ...(windowRope === undefined ? {} : { windowRotary: tableOf(windowRope) }) };
}
