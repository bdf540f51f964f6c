/** Sets of bytes: bit b % 32 of word b >> 5 stands for byte b. 8 words. */
export type ByteSet = Uint32Array;

export const hasByte = (set: ByteSet, byte: number): boolean => ((set[byte >>> 5]! >>> (byte & 31)) & 1) === 1;

export const bytesBetween = (first: number, last: number): ByteSet => {
  const set = new Uint32Array(8);
  for (let byte = first; byte <= last; byte++) set[byte >>> 5]! |= 1 << (byte & 31);
  return set;
};

export const unionOf = (one: ByteSet, other: ByteSet): ByteSet => one.map((word, index) => word | other[index]!);

export const commonOf = (one: ByteSet, other: ByteSet): ByteSet => one.map((word, index) => word & other[index]!);

export const isNoByte = (set: ByteSet): boolean => set.every((word) => word === 0);

export const isEveryByte = (set: ByteSet): boolean => set.every((word) => word === 0xffffffff);

export const EVERY_BYTE = bytesBetween(0, 255);
