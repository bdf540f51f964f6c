/** Element types of GGUF tensors: names by number, and sizes of those that are read. Facts: ggml's type table. */
import { BLOCKS, type BlockName } from '../../ir/blocks.js';

/** How the elements of a row are stored: blocks of `blockElements` elements in `blockBytes` bytes. */
export interface ElementType {
  readonly name: string;
  readonly blockElements: number;
  readonly blockBytes: number;
  /** Default: elements are floats. */
  readonly block?: BlockName;
}

const quantized = (name: string, block: BlockName): ElementType => ({
  name,
  blockElements: BLOCKS[block].elements,
  blockBytes: BLOCKS[block].bytes,
  block,
});

const READ: Readonly<Record<number, ElementType>> = {
  0: { name: 'F32', blockElements: 1, blockBytes: 4 },
  1: { name: 'F16', blockElements: 1, blockBytes: 2 },
  2: quantized('Q4_0', 'q4_0'),
  8: quantized('Q8_0', 'q8_0'),
  12: quantized('Q4_K', 'q4_k'),
  13: quantized('Q5_K', 'q5_k'),
  14: quantized('Q6_K', 'q6_k'),
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

/** The blocks of a type by its name; undefined if its elements are floats. */
export const blockOf = (name: string): BlockName | undefined =>
  Object.values(READ).find((type) => type.name === name)?.block;

/** The name of a type that is not read. */
export const otherType = (code: number): string =>
  (Object.hasOwn(OTHERS, code) ? OTHERS[code] : undefined) ?? `an unknown type, ${code}`;
