/** The files of a checkpoint while its weights are loaded. */
import { UserError } from '../errors.js';
import { PART_NAMES } from '../ir/encoding.js';
import { FORMATS } from '../ir/storage.js';
import { defined } from '../system/defined.js';
import { quote } from '../system/json.js';
import { loadAddon } from './addon.js';
import type { EncodedMatrix, NativeMemory } from './native.js';
import type { EncodedSource, TensorSource } from './tensorSource.js';

export interface LoadProgress {
  /** Bytes of packed weights done and to do. */
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** The weight that was just finished. */
  readonly weight: string;
  /** What reading and packing it took, where it was loaded by itself: seconds and bytes. */
  readonly took?: { readonly seconds: number; readonly bytes: number };
}

/** The files of a checkpoint, each mapped once. */
export class FileMappings {
  private readonly files = new Map<string, NativeMemory>();

  /** Throws UserError if the file cannot be mapped or ends before `offset + bytes`. */
  get(file: string, offset: number, bytes: number): NativeMemory {
    let memory = this.files.get(file);
    if (memory === undefined) {
      const { Memory } = loadAddon();
      try {
        memory = new Memory(file);
      } catch (error) {
        throw new UserError(
          error instanceof Error ? `${error.message}.` : String(error),
          'Is the checkpoint whole? Download it again if not.',
          { cause: error },
        );
      }
      this.files.set(file, memory);
    }
    if (offset + bytes > memory.sizeBytes) {
      throw new UserError(
        `${file} is cut off: it has ${memory.sizeBytes} bytes, a tensor ends at ${offset + bytes}.`,
        'Download it again.',
      );
    }
    return memory;
  }

  release(): void {
    for (const memory of this.files.values()) memory.release();
    this.files.clear();
  }
}

// Encoded tensors on their way into the addon, and what it says of their bytes.

/** The whole matrix of an encoded tensor. Throws UserError where a file is missing or cut off. */
export function encodedMatrix(source: EncodedSource, name: string, files: FileMappings): EncodedMatrix {
  const parts = PART_NAMES.flatMap((part): [string, { memory: NativeMemory; offset: number }][] => {
    const place = source.parts[part];
    if (place === undefined) return [];
    const { file, offset, byteLength } = place;
    return [[part, { memory: files.get(file, offset, byteLength), offset }]];
  });
  const { rows, shape, columns, encoding, format, reads } = source;
  return {
    kind: 'encoded',
    format: FORMATS[format].code,
    rows,
    k: shape[1]!,
    name,
    encoding,
    ...defined({ columns, reads }),
    parts: Object.fromEntries(parts),
  };
}

/** What to do about an encoded tensor that cannot be decoded. */
export const DAMAGED_ENCODING =
  'the checkpoint is damaged, or was quantized wrongly: download it again, or use another one';

const isDamaged = (error: unknown): error is Error =>
  error instanceof Error && 'code' in error && error.code === 'WEIGHTS_DAMAGED';

/** What the addon says of a tensor: of one of its scales, or of the groups of its columns. */
const FOUND = /^Tensor (.+): ((?:(the scale)|column|group) .+)$/s;

/** The message of the addon with the file, and the tensor's name there. */
function located(message: string, sourceOf: (tensor: string) => TensorSource | undefined): string {
  const [, name = '', problem = '', ofScale] = FOUND.exec(message) ?? [];
  const source = sourceOf(name);
  if (source?.kind !== 'encoded') return message;
  const { scales, groups, blocks } = source.parts;
  const part = blocks ?? (ofScale === undefined ? groups : scales);
  return part === undefined ? message : `${part.file}: tensor ${quote(part.tensor ?? name, 120)}: ${problem}`;
}

/** `load`, with what the addon finds in encoded weights as UserError. `sourceOf`: where a tensor is from. */
export async function orDamaged<T>(
  load: () => Promise<T>,
  sourceOf: (tensor: string) => TensorSource | undefined,
): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if (!isDamaged(error)) throw error;
    throw new UserError(located(error.message, sourceOf), DAMAGED_ENCODING, { cause: error });
  }
}
