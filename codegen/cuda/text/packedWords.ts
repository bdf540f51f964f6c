/**
 * Elements of 16 and 8 bits in 32-bit words: words of two adjacent elements, of one group or, for bytes, of two groups.
 */
import type { Operand } from './operands.js';

/** Whether a word holds four elements, of two pairs. */
export const isByte = ({ dtype }: Pick<Operand, 'dtype'>): boolean =>
  dtype === 'u8' || dtype === 'e4m3' || dtype === 'i8';

const wordOf = (name: string, operand: Operand, group: string): string =>
  isByte(operand) ? `${name}[(${group}) / 2]` : `${name}[${group}]`;

/** C expression of two bytes, given the bytes themselves, or floats to be rounded to them. */
const bytePair = ({ dtype }: Operand, x: string, y: string): string =>
  dtype === 'u8' ? `(${x} | ${y} << 8)` : `tw_pack_${dtype}(${x}, ${y})`;

/** C expression of an element of pair `pair` in such words: float, or unsigned for a byte. */
export function unpackElement(operand: Operand, name: string, pair: string, lane: number): string {
  const word = wordOf(name, operand, pair);
  switch (operand.dtype) {
    case 'bf16':
      return `__uint_as_float(${lane === 0 ? `${word} << 16` : `${word} & 0xffff0000u`})`;
    case 'f16':
      return `tw_from_f16((unsigned short)(${word}${lane === 0 ? '' : ' >> 16'}))`;
    case 'e4m3':
      return `tw_from_e4m3((unsigned char)(${word} >> (16 * ((${pair}) % 2) + ${8 * lane})))`;
    case 'i8':
      return `(float)(signed char)(${word} >> (16 * ((${pair}) % 2) + ${8 * lane}))`;
    default:
      return `(${word} >> (16 * ((${pair}) % 2) + ${8 * lane}) & 255u)`;
  }
}

/**
 * Statement that keeps pair `pair`, given C expressions of the two values, in such words. Words of bytes start as
 * zeros.
 */
export const packElement = (operand: Operand, name: string, pair: string, [x, y]: readonly string[]): string =>
  isByte(operand)
    ? `${wordOf(name, operand, pair)} |= ${bytePair(operand, x!, y!)} << 16 * ((${pair}) % 2);`
    : `${name}[${pair}] = tw_pack_${operand.dtype}(${x!}, ${y!});`;
