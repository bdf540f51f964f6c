/** What a configuration says of recurrent layers. */

/** What every kind has. */
interface RecurrentLayers {
  /** The layers of this kind, in ascending order. */
  readonly layers: readonly number[];
  /** Tokens that a convolution sees: a token itself and those right before it. */
  readonly taps: number;
}

/** Value heads share the queries and keys of key heads evenly. */
export interface DeltaConfig extends RecurrentLayers {
  readonly kind: 'delta';
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  /** One tensor has q, k, v and gate of each key head one behind another. Default: q, k and v of all heads in turn. */
  readonly isByHead?: boolean;
  /** One tensor has b and a of each key head one behind another. Default: each has a tensor, where isByHead is not. */
  readonly hasPairs?: true;
  /** A_log holds −e^A_log. */
  readonly hasDecays?: true;
  /** Value heads take key heads in turn. Default: neighbours share one. */
  readonly takesTurns?: true;
}

export interface ConvConfig extends RecurrentLayers {
  readonly kind: 'conv';
  readonly isBiased: boolean;
}

/** Heads share the B and C of groups evenly. */
export interface MambaConfig extends RecurrentLayers {
  readonly kind: 'mamba';
  readonly heads: number;
  readonly headDim: number;
  readonly groups: number;
  readonly stateSize: number;
  readonly isBiased: boolean;
  readonly isConvBiased: boolean;
  /** Bounds of the time step; the upper one may be absent. */
  readonly timeStep: readonly [min: number, max?: number];
  /** A_log holds −e^A_log. */
  readonly hasDecays?: true;
}

export type RecurrentConfig = DeltaConfig | ConvConfig | MambaConfig;
