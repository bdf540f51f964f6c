/** Matrices as codes of 8 bits, while weights load: W[n, k] ≈ codes[n, k] · scales[n]. */
import { GROUP_SIZES } from '../groups.js';
import { roundToDType } from '../round.js';
import { rowScale } from '../rounding.js';
import { BLOCK_NAMES, CODE_FORMATS, type CodeFormat } from '../storage.js';
import { extentsOf, type TensorType } from '../types.js';
import { op, rowsOf, TypeMismatch } from './opDef.js';

/** Checks that `w` is a matrix, and gives the type of its codes. */
function codesType({ dtype, shape }: TensorType, format: CodeFormat): TensorType {
  if (dtype !== 'f32' || shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
  return { dtype: format, shape };
}

/** `from`: whether values are rounded to codes, or the matrix is stored as codes, whose values are exact. */
const ATTRIBUTES = { format: CODE_FORMATS, from: ['values', 'codes'] } as const;

export const NARROW = {
  blocks: op({
    summary: 'blocks(w[N, K]) {format}: w, which is stored in blocks of that format and stays in them',
    fuse: 'movement',
    operands: { w: 'one' },
    attributes: { format: BLOCK_NAMES },
    infer: ({ w }) => {
      if (w.dtype !== 'f32' || w.shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
      return w;
    },
    evaluate: ({ w }) => w,
  }),
  codes: op({
    summary: 'codes(w[N, K]) {format, from}: w / row_scales(w), rounded to the format',
    fuse: 'movement',
    operands: { w: 'one' },
    attributes: ATTRIBUTES,
    infer: ({ w }, { format }) => codesType(w, format),
    evaluate: ({ w }, { format, from }, shape) => {
      if (from === 'codes') return { shape, data: w.data };
      const [, columns] = extentsOf(shape, 2);
      const rows = rowsOf(w).map((row) => {
        const scale = rowScale(row, format);
        return row.map((value) => roundToDType(Math.fround(value) / scale, format));
      });
      const data = new Float64Array(w.data.length);
      rows.forEach((row, i) => data.set(row, i * columns));
      return { shape, data };
    },
  }),
  row_scales: op({
    summary: 'row_scales(w[N, K]) {format, from}: f32[N], the scale of each row (ir/rounding.ts)',
    fuse: 'movement',
    operands: { w: 'one' },
    attributes: ATTRIBUTES,
    infer: ({ w }, { format }) => ({ dtype: 'f32', shape: codesType(w, format).shape.slice(0, 1) }),
    evaluate: ({ w }, { format, from }, shape) => {
      const scales = rowsOf(w).map((row) => (from === 'values' ? rowScale(row, format) : 1));
      return { shape, data: Float64Array.from(scales) };
    },
  }),
};

// Matrices that stay in 4 bits.

export const GROUPED = {
  grouped: op({
    summary: 'grouped(w[N, K]) {group}: w, which is stored as codes of 4 bits with a scale for each `group` columns',
    fuse: 'movement',
    operands: { w: 'one' },
    attributes: { group: 'number' },
    infer: ({ w }, { group }) => {
      if (w.dtype !== 'f32' || w.shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
      if (!GROUP_SIZES.some((size) => size === group))
        throw new TypeMismatch(`there are no groups of ${group} columns`);
      return w;
    },
    evaluate: ({ w }, _attributes, shape) => ({ shape, data: w.data }),
  }),
  microscaled: op({
    summary: 'microscaled(w[N, K]): w, which is stored as codes of 4 bits with a power of two for every 32 columns',
    fuse: 'movement',
    operands: { w: 'one' },
    attributes: {},
    infer: ({ w }) => {
      if (w.dtype !== 'f32' || w.shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
      return w;
    },
    evaluate: ({ w }) => w,
  }),
};
