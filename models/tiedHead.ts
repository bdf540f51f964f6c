/**
 * Models whose configuration says that the head is the embedding table, beside what the weights hold: as transformers
 * does, a head in the files that differs from the table is used, and a table that is missing is the head.
 */
import { readInto, withFile } from '../system/read.js';
import type { Model } from './family/model.js';
import type { StoredTensor, WholeTensor } from './family/storedTensors.js';
import { weightFormat } from './family/tensors.js';

/** Bytes of each tensor that are compared at once. */
const CHUNK_BYTES = 1 << 20;

export interface SettledHead {
  /** The tensors of the files; the head under the name of the table where there is no table. */
  readonly found: ReadonlyMap<string, StoredTensor>;
  /** True if the model is tied by its configuration and has a head of its own in the files. */
  readonly isOwn: boolean;
}

/** Compares bytes from the start on, and stops at the first chunk that differs. */
function haveSameBytes(a: WholeTensor, b: WholeTensor): boolean {
  if (a.byteLength !== b.byteLength) return false;
  if (a.file === b.file && a.offset === b.offset) return true; // torch.save stores shared memory once.
  return withFile(a.file, (left) =>
    withFile(b.file, (right) => {
      const [own, other] = [Buffer.alloc(CHUNK_BYTES), Buffer.alloc(CHUNK_BYTES)];
      for (let at = 0; at < a.byteLength; at += CHUNK_BYTES) {
        const size = Math.min(CHUNK_BYTES, a.byteLength - at);
        const chunk = readInto(left, a.offset + at, own.subarray(0, size));
        if (!chunk.equals(readInto(right, b.offset + at, other.subarray(0, size)))) return false;
      }
      return true;
    }),
  );
}

const isFloats = (stored: StoredTensor): stored is WholeTensor =>
  'file' in stored && weightFormat(stored.dtype) !== undefined;

/** Whether two tensors are the same floats, stored the same way. */
const areEqual = (a: StoredTensor, b: StoredTensor): boolean =>
  isFloats(a) && isFloats(b) && a.dtype === b.dtype && a.shape.join() === b.shape.join() && haveSameBytes(a, b);

/**
 * What the head of a model is among the tensors `found`. `isQuantized`: modules may be stored as other tensors than
 * `weight`; a head that is stored so is not the table. Reads both tensors where the files hold both.
 */
export function settleHead(
  { tied }: Pick<Model, 'tied'>,
  found: ReadonlyMap<string, StoredTensor>,
  isQuantized: boolean,
): SettledHead {
  if (tied === undefined) return { found, isOwn: false };
  const table = found.get(tied.embedding);
  const head = found.get(tied.head);
  const module = tied.head.replace(/weight$/, '');
  const isPart = (name: string): boolean => name.startsWith(module) && name !== tied.head && name !== `${module}bias`;
  if (isQuantized && [...found.keys()].some(isPart)) return { found, isOwn: true };
  if (head === undefined) return { found, isOwn: false };
  if (table !== undefined) return { found, isOwn: !areEqual(table, head) };
  return { found: new Map([...found, [tied.embedding, head]]), isOwn: false };
}
