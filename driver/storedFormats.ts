/** The matrices of a checkpoint that CPUs can multiply as they are stored. */
import type { CodesEncoding } from '../ir/encoding.js';
import type { BlockName } from '../ir/storage.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { StoredFormats } from '../passes/multiplyBlocks.js';
import type { Precision } from './target.js';

/** Whether values are codes of a byte with signs, times one scale for each row. */
const hasRowScales = ({ codes, scales, zero, hasGroups }: CodesEncoding, k: number): boolean =>
  codes.type === 'i8' && scales.blockColumns >= k && zero.kind === 'constant' && zero.value === 0 && !hasGroups;

/** Matrices of layers: their names have a number. The head and embeddings are read in other ways. */
const OF_LAYER = /\.\d+\./;

/**
 * Blocks of GGUF files, and codes of int8: where the checkpoint says that rows of activations become such codes too, or
 * `precision` does.
 */
export const storedFormats = (
  { tensors, quantised }: Pick<Checkpoint, 'tensors' | 'quantised'>,
  precision: Precision,
): StoredFormats =>
  new Map(
    [...tensors.values()].flatMap((tensor): [string, BlockName | 'i8'][] => {
      if (tensor.kind !== 'encoded') return [];
      const { name, encoding, shape } = tensor;
      if (encoding.kind === 'blocks') return [[name, encoding.block]];
      const isAsked = precision === 'int8' || quantised?.activations === 'int8';
      return isAsked && OF_LAYER.test(name) && hasRowScales(encoding, shape[1]!) ? [[name, 'i8']] : [];
    }),
  );
