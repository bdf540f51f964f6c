/** Matrices as codes of 8 bits, while weights load: W[n, k] ≈ codes[n, k] · scales[n]. */
import { roundToDType } from '../round.js';
import { rowScale } from '../rowScale.js';
import { isBlockFormat, isCodeFormat, type CodeFormat } from '../storage.js';
import { TypeMismatch, stringAttribute, type OpDef, type Tensor } from './opDef.js';

type Attributes = Parameters<OpDef['infer']>[1];

function formatOf(attributes: Attributes): CodeFormat {
  const format = stringAttribute(attributes, 'format');
  if (!isCodeFormat(format)) throw new TypeMismatch(`'${format}' is no format of codes`);
  return format;
}

/** Whether values are rounded to codes. Otherwise the matrix is stored as codes, whose values are exact as they are. */
function isRounded(attributes: Attributes): boolean {
  const from = stringAttribute(attributes, 'from');
  if (from !== 'values' && from !== 'codes') throw new TypeMismatch(`codes come from values or codes, not '${from}'`);
  return from === 'values';
}

const requireMatrix: OpDef['infer'] = ([w], attributes) => {
  isRounded(attributes);
  if (w!.dtype !== 'f32' || w!.shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
  return { dtype: formatOf(attributes), shape: w!.shape };
};

const rowsOf = ({ shape, data }: Tensor): readonly Float64Array[] =>
  Array.from({ length: shape[0]! }, (_, row) => data.subarray(row * shape[1]!, (row + 1) * shape[1]!));

const ATTRIBUTES = { format: 'string', from: 'string' } as const;

export const NARROW = {
  blocks: {
    summary: 'blocks(w[N, K]) {format}: w, which is stored in blocks of that format and stays in them',
    fuse: 'movement',
    attributes: { format: 'string' },
    arity: [1, 1],
    infer: ([w], attributes) => {
      const format = stringAttribute(attributes, 'format');
      if (!isBlockFormat(format)) throw new TypeMismatch(`'${format}' is no format of blocks`);
      if (w!.dtype !== 'f32' || w!.shape.length !== 2) throw new TypeMismatch('needs w: f32[N, K]');
      return w!;
    },
    evaluate: ([w]) => w!,
  },
  codes: {
    summary: 'codes(w[N, K]) {format, from}: w / row_scales(w), rounded to the format',
    fuse: 'movement',
    attributes: ATTRIBUTES,
    arity: [1, 1],
    infer: requireMatrix,
    evaluate: ([w], attributes, shape) => {
      const format = formatOf(attributes);
      if (!isRounded(attributes)) return { shape, data: w!.data };
      const rows = rowsOf(w!).map((row) => {
        const scale = rowScale(row, format);
        return row.map((value) => roundToDType(Math.fround(value) / scale, format));
      });
      const data = new Float64Array(w!.data.length);
      rows.forEach((row, i) => data.set(row, i * shape[1]!));
      return { shape, data };
    },
  },
  row_scales: {
    summary: 'row_scales(w[N, K]) {format, from}: f32[N], the scale of each row (ir/rowScale.ts)',
    fuse: 'movement',
    attributes: ATTRIBUTES,
    arity: [1, 1],
    infer: (operands, attributes) => ({ dtype: 'f32', shape: [requireMatrix(operands, attributes).shape[0]!] }),
    evaluate: ([w], attributes, shape) => {
      const format = formatOf(attributes);
      const scales = rowsOf(w!).map((row) => (isRounded(attributes) ? rowScale(row, format) : 1));
      return { shape, data: Float64Array.from(scales) };
    },
  },
} as const satisfies Record<string, OpDef>;
