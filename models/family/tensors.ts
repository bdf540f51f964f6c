/** The tensors of a checkpoint: which ones it must have, and where each is stored. */
import type { FormatName } from '../../ir/storage.js';

interface Described {
  readonly name: string;
  readonly format: FormatName;
  /** Linear weights are [out, in]. */
  readonly shape: readonly number[];
}

/** Bytes of a file. The offset is aligned to the element size only if the file's writer did so. */
export interface FileTensor extends Described {
  readonly kind: 'file';
  /** Absolute path. */
  readonly file: string;
  /** Bytes from the start of the file. */
  readonly offset: number;
  readonly byteLength: number;
}

/** Made-up values: mean 0, standard deviation `scale`, a pure function of `seed` and the element's index. */
export interface RandomTensor extends Described {
  readonly kind: 'random';
  /** 64 bits, unsigned. */
  readonly seed: bigint;
  readonly scale: number;
}

/** Every element is `value`. */
export interface ConstantTensor extends Described {
  readonly kind: 'constant';
  readonly value: number;
}

export type TensorLocation = FileTensor | RandomTensor | ConstantTensor;

export interface ExpectedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly role: 'matrix' | 'norm' | 'bias';
  /** A hint for checkpoints without this tensor, for the message. */
  readonly missingHint?: string;
}

/** Keyed by the names of safetensors. */
export const FORMATS_OF: Readonly<Record<string, FormatName>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };

/** The storage format of a safetensors dtype; undefined if it is not supported for weights. */
export const weightFormat = (dtype: string): FormatName | undefined =>
  Object.hasOwn(FORMATS_OF, dtype) ? FORMATS_OF[dtype] : undefined;
