/**
 * Elements of 16 and 8 bits in 32-bit words: words of two adjacent elements, of one group or, for bytes, of two groups.
 */
import type { Operand } from './operands.js';

const wordOf = (name: string, { dtype }: Operand, group: string): string =>
  dtype === 'u8' ? `${name}[(${group}) / 2]` : `${name}[${group}]`;

/** C expression of an element of pair `pair` in such words: float, or unsigned for a byte. */
export function unpackElement(operand: Operand, name: string, pair: string, lane: number): string {
  const word = wordOf(name, operand, pair);
  switch (operand.dtype) {
    case 'bf16':
      return `__uint_as_float(${lane === 0 ? `${word} << 16` : `${word} & 0xffff0000u`})`;
    case 'f16':
      return `tw_from_f16((unsigned short)(${word}${lane === 0 ? '' : ' >> 16'}))`;
    default:
      return `(${word} >> (16 * ((${pair}) % 2) + ${8 * lane}) & 255u)`;
  }
}

/**
 * Statement that keeps pair `pair`, given C expressions of the two values, in such words. Words of bytes start as
 * zeros.
 */
export const packElement = (operand: Operand, name: string, pair: string, [x, y]: readonly string[]): string =>
  operand.dtype === 'u8'
    ? `${wordOf(name, operand, pair)} |= (${x!} | ${y!} << 8) << 16 * ((${pair}) % 2);`
    : `${name}[${pair}] = tw_pack_${operand.dtype}(${x!}, ${y!});`;
