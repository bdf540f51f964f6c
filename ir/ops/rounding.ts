/** The attribute `rounding` of contractions: that many neighbours of a row of x become codes of 8 bits with a scale. */
import { roundToCodes } from '../rounding.js';
import { positiveAttribute, TypeMismatch, type OpDef, type Tensor } from './opDef.js';

type Attributes = Parameters<OpDef['infer']>[1];

export const ROUNDING = { rounding: 'number' } as const;

/** Throws TypeMismatch unless the attribute is absent, or columns that divide those of x. */
export function checkRounding(attributes: Attributes, k: string | number | undefined): void {
  const columns = positiveAttribute(attributes, 'rounding');
  if (columns !== undefined && (typeof k !== 'number' || !Number.isInteger(columns) || k % columns !== 0))
    throw new TypeMismatch(`rounding ${columns} does not divide ${String(k)} columns`);
}

/** x as it is multiplied. */
export function roundedRows(x: Tensor, attributes: Attributes): Tensor {
  const columns = positiveAttribute(attributes, 'rounding');
  return columns === undefined ? x : { ...x, data: roundToCodes(x.data, columns) };
}
