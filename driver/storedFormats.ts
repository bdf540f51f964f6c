/** The matrices of a checkpoint that targets can multiply as they are stored. */
import type { CodesEncoding } from '../ir/encoding.js';
import { type BlockName, type CodeFormat, isCodeFormat } from '../ir/storage.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { StoredFormats } from '../passes/keepBlockWeights.js';
import type { Precision } from './target.js';

/** Matrices of layers: their names have a number. The head and embeddings are read in other ways. */
const OF_LAYER = /\.\d+\./;

/** The `--quantize` value that means these codes. */
const PRECISIONS: Readonly<Record<CodeFormat, 'int8' | 'fp8'>> = { i8: 'int8', e4m3: 'fp8' };

/** The format of codes of a byte that have one scale for each row, or for several rows; undefined for others. */
function scaledByRows({ codes, scales, zero, hasGroups }: CodesEncoding, k: number): CodeFormat | undefined {
  const isByRows = scales.blockColumns >= k && zero.kind === 'constant' && zero.value === 0 && !hasGroups;
  return isByRows && isCodeFormat(codes.type) ? codes.type : undefined;
}

/**
 * Blocks of GGUF files, and codes of int8 or E4M3: where the checkpoint says that rows of activations become such codes
 * too, or `precision` does.
 */
export const storedFormats = (
  { tensors, quantized }: Pick<Checkpoint, 'tensors' | 'quantized'>,
  precision: Precision,
): StoredFormats =>
  new Map(
    [...tensors.values()].flatMap((tensor): [string, BlockName | CodeFormat][] => {
      if (tensor.kind !== 'encoded') return [];
      const { name, encoding, shape } = tensor;
      if (encoding.kind === 'blocks') return [[name, encoding.block]];
      const format = OF_LAYER.test(name) ? scaledByRows(encoding, shape[1]!) : undefined;
      if (format === undefined) return [];
      const own = PRECISIONS[format];
      return precision === own || quantized?.activations === own ? [[name, format]] : [];
    }),
  );
