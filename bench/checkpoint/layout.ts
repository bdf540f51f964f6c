/** The place of every byte of a made-up checkpoint. Pure: writes nothing. */
import { UserError } from '../../errors.js';
import { roundUp } from '../../ir/types.js';
import type { Model } from '../../models/model/model.js';
import type { ExpectedTensor } from '../../models/model/tensors.js';
import { BLOCK_BYTES, ELEMENT_BYTES, type MadeDType } from './values.js';

export interface MadeTensor {
  readonly name: string;
  readonly role: ExpectedTensor['role'];
  /** Offset in its file, bytes. */
  readonly offset: number;
  readonly bytes: number;
}

export interface MadeFile {
  readonly name: string;
  /** The length and JSON that precede the tensors. */
  readonly header: Uint8Array;
  readonly tensors: readonly MadeTensor[];
  readonly bytes: number;
}

export interface MadeCheckpoint {
  readonly dtype: MadeDType;
  readonly files: readonly MadeFile[];
  /** Text of model.safetensors.index.json; undefined for a checkpoint of one file, which has none. */
  readonly index: string | undefined;
  /** The size of all weight files together, bytes. */
  readonly bytes: number;
}

/** The most files that a checkpoint may have and still be read. */
const MAX_FILES = 4096;
/** The JSON is padded so that tensors start at a multiple of this. */
const ALIGNMENT = 8;

type Sized = ExpectedTensor & { readonly bytes: number };

function layOutFile(name: string, tensors: readonly Sized[], dtype: MadeDType): MadeFile {
  const described: Record<string, object> = { __metadata__: { format: 'pt' } };
  let end = 0;
  const starts = tensors.map(({ name: tensor, shape, bytes }) => {
    const begin = end;
    end += bytes;
    described[tensor] = { dtype: dtype.toUpperCase(), shape, data_offsets: [begin, end] };
    return begin;
  });
  const text = JSON.stringify(described);
  const json = Buffer.from(text.padEnd(roundUp(Buffer.byteLength(text), ALIGNMENT)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const header = Buffer.concat([length, json]);
  return {
    name,
    header,
    bytes: header.length + end,
    tensors: tensors.map(({ name: tensor, role, bytes }, i) => ({
      name: tensor,
      role,
      bytes,
      offset: header.length + starts[i]!,
    })),
  };
}

/**
 * Places tensors in the order of the computation, and starts a new file where the next tensor would exceed `fileBytes`
 * (a larger tensor gets its own file). Throws UserError if the limit is so small that there would be too many files.
 */
export function layOut(model: Model, dtype: MadeDType, fileBytes: number): MadeCheckpoint {
  const groups: Sized[][] = [];
  let room = 0;
  for (const tensor of model.tensors) {
    const bytes = tensor.shape.reduce((product, extent) => product * extent, ELEMENT_BYTES);
    if (groups.length === 0 || bytes > room) {
      groups.push([]);
      room = fileBytes;
    }
    groups.at(-1)!.push({ ...tensor, bytes });
    room -= bytes;
  }
  if (groups.length > MAX_FILES)
    throw new UserError(
      `--shard: ${groups.length} files; a checkpoint may have ${MAX_FILES}`,
      'give a larger size, for example: --shard 10GB',
    );
  const digits = (number: number): string => String(number).padStart(5, '0');
  const nameOf = (i: number): string =>
    groups.length === 1 ? 'model.safetensors' : `model-${digits(i + 1)}-of-${digits(groups.length)}.safetensors`;
  const files = groups.map((tensors, i) => layOutFile(nameOf(i), tensors, dtype));
  const map = Object.fromEntries(files.flatMap(({ name, tensors }) => tensors.map((tensor) => [tensor.name, name])));
  const total = groups.flat().reduce((sum, { bytes }) => sum + bytes, 0);
  return {
    dtype,
    files,
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    index:
      files.length === 1
        ? undefined
        : `${JSON.stringify({ metadata: { total_size: total }, weight_map: map }, undefined, 1)}\n`,
  };
}

/** A part of a tensor that is filled and written at once. */
export interface Block {
  readonly file: number;
  readonly tensor: MadeTensor;
  /** Offset in the tensor. */
  readonly number: number;
  /** Offset in the file. */
  readonly offset: number;
  readonly bytes: number;
}

/** All blocks. Neighbours are in different files, because one file takes one writer at a time. */
export function blocksOf({ files }: MadeCheckpoint): Block[] {
  const byFile = files.map(({ tensors }, file) =>
    tensors.flatMap((tensor) =>
      Array.from({ length: Math.ceil(tensor.bytes / BLOCK_BYTES) }, (_, number): Block => ({
        file,
        tensor,
        number,
        offset: tensor.offset + number * BLOCK_BYTES,
        bytes: Math.min(BLOCK_BYTES, tensor.bytes - number * BLOCK_BYTES),
      })),
    ),
  );
  const longest = Math.max(...byFile.map((blocks) => blocks.length));
  return Array.from({ length: longest }, (_, i) => byFile.flatMap((blocks) => blocks[i] ?? [])).flat();
}
