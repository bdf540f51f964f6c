/** The matrices of a checkpoint that are stored in blocks. */
import type { BlockName } from '../ir/storage.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { StoredBlocks } from '../passes/multiplyBlocks.js';

export const storedBlocks = ({ tensors }: Pick<Checkpoint, 'tensors'>): StoredBlocks =>
  new Map(
    [...tensors.values()].flatMap((tensor): [string, BlockName][] =>
      tensor.kind === 'encoded' && tensor.encoding.kind === 'blocks' ? [[tensor.name, tensor.encoding.block]] : [],
    ),
  );
