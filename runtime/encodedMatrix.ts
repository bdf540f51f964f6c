/** Encoded tensors on their way into the addon, and what it says of their bytes. */
import { UserError } from '../errors.js';
import { PART_NAMES } from '../ir/encoding.js';
import { FORMATS } from '../ir/storage.js';
import type { EncodedMatrix, NativeMemory } from './addon.js';
import type { FileMappings } from './files.js';
import type { EncodedSource } from './tensorSource.js';

/** The whole matrix of an encoded tensor. Throws UserError where a file is missing or cut off. */
export function encodedMatrix(source: EncodedSource, name: string, files: FileMappings): EncodedMatrix {
  const parts = PART_NAMES.flatMap((part): [string, { memory: NativeMemory; offset: number }][] => {
    const place = source.parts[part];
    if (place === undefined) return [];
    const { file, offset, byteLength } = place;
    return [[part, { memory: files.get(file, offset, byteLength), offset }]];
  });
  const { rows, shape, encoding, format, reads } = source;
  return {
    kind: 'encoded',
    format: FORMATS[format].code,
    rows,
    k: shape[1]!,
    name,
    encoding,
    ...(reads === undefined ? {} : { reads }),
    parts: Object.fromEntries(parts),
  };
}

const isDamaged = (error: unknown): error is Error =>
  error instanceof Error && 'code' in error && error.code === 'WEIGHTS_DAMAGED';

/** `load`, with what the addon finds in encoded weights as UserError. */
export async function orDamaged<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if (!isDamaged(error)) throw error;
    throw new UserError(`${error.message}.`, 'The checkpoint is damaged, or was quantised wrongly: get another one.', {
      cause: error,
    });
  }
}
