/** Element types of GGUF tensors: names by number, and sizes of those that are read. Facts: ggml's type table. */

/** How the elements of a row are stored: blocks of so many elements in so many bytes. */
export interface ElementType {
  readonly name: string;
  readonly blockElements: number;
  readonly blockBytes: number;
}

const READ: Readonly<Record<number, ElementType>> = {
  0: { name: 'F32', blockElements: 1, blockBytes: 4 },
  1: { name: 'F16', blockElements: 1, blockBytes: 2 },
  2: { name: 'Q4_0', blockElements: 32, blockBytes: 18 },
  8: { name: 'Q8_0', blockElements: 32, blockBytes: 34 },
  12: { name: 'Q4_K', blockElements: 256, blockBytes: 144 },
  13: { name: 'Q5_K', blockElements: 256, blockBytes: 176 },
  14: { name: 'Q6_K', blockElements: 256, blockBytes: 210 },
  30: { name: 'BF16', blockElements: 1, blockBytes: 2 },
};

/** Types that a file may have and that are not read. */
const OTHERS: Readonly<Record<number, string>> = {
  3: 'Q4_1',
  6: 'Q5_0',
  7: 'Q5_1',
  9: 'Q8_1',
  10: 'Q2_K',
  11: 'Q3_K',
  15: 'Q8_K',
  16: 'IQ2_XXS',
  17: 'IQ2_XS',
  18: 'IQ3_XXS',
  19: 'IQ1_S',
  20: 'IQ4_NL',
  21: 'IQ3_S',
  22: 'IQ2_S',
  23: 'IQ4_XS',
  24: 'I8',
  25: 'I16',
  26: 'I32',
  27: 'I64',
  28: 'F64',
  29: 'IQ1_M',
  34: 'TQ1_0',
  35: 'TQ2_0',
  39: 'MXFP4',
  40: 'NVFP4',
};

export const READ_TYPES: readonly string[] = Object.values(READ).map(({ name }) => name);

/** The type of this number; undefined if it is not read. */
export const elementType = (code: number): ElementType | undefined =>
  Object.hasOwn(READ, code) ? READ[code] : undefined;

/** The name of a type that is not read. */
export const otherType = (code: number): string =>
  (Object.hasOwn(OTHERS, code) ? OTHERS[code] : undefined) ?? `an unknown type, ${code}`;
