/** Where tensors lie in a safetensors file that is to be written: https://github.com/huggingface/safetensors#format. */
import type { WeightEntry } from './family/weightFile.js';

export interface SafetensorsLayout {
  /** What the file begins with. */
  readonly header: Uint8Array;
  readonly entries: readonly WeightEntry[];
  readonly sizeBytes: number;
}

const ALIGNMENT = 8;
const LENGTH_BYTES = 8;

/** Bytes of an element, for its place; 8 where it is unknown. */
const elementBytes = ({ dtype }: Pick<WeightEntry, 'dtype'>): number => Number(/(\d+)/.exec(dtype)?.[1] ?? 64) / 8;

/** Wider elements come first, so that all are aligned. Readers in Python want to be told that it is theirs. */
export function layOut(tensors: readonly Omit<WeightEntry, 'offset'>[]): SafetensorsLayout {
  const sorted = [...tensors].sort((a, b) => elementBytes(b) - elementBytes(a) || (a.name < b.name ? -1 : 1));
  const described: [string, unknown][] = [['__metadata__', { format: 'pt' }]];
  let at = 0;
  const places = sorted.map((tensor) => {
    const place = { ...tensor, offset: at };
    at += tensor.byteLength;
    described.push([tensor.name, { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [place.offset, at] }]);
    return place;
  });
  const json = Buffer.from(JSON.stringify(Object.fromEntries(described)));
  const length = Math.ceil(json.length / ALIGNMENT) * ALIGNMENT;
  const header = Buffer.alloc(LENGTH_BYTES + length, ' ');
  header.writeBigUInt64LE(BigInt(length), 0);
  json.copy(header, LENGTH_BYTES);
  const entries = places.map((place) => ({ ...place, offset: place.offset + header.length }));
  return { header, entries, sizeBytes: header.length + at };
}
