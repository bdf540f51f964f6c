/** Elements of the heads of attention. */

/** Elements of a head behind its others. Those of keys are one head's, which all share. */
export interface AttentionTail {
  readonly q: string;
  readonly k: string;
  readonly headDim: number;
}

export interface AttentionDims {
  readonly headDim: number;
  readonly valueDim?: number;
  readonly tail?: AttentionTail;
}

/** Elements of a head of keys with its tail, and of a head of values. */
export const keyDimOf = ({ headDim, tail }: AttentionDims): number => headDim + (tail?.headDim ?? 0);
export const valueDimOf = ({ headDim, valueDim = headDim }: AttentionDims): number => valueDim;
