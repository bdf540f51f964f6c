/** The attribute `rounding` of contractions: that many neighbours of a row of x become codes of 8 bits with a scale. */
import { roundToCodes } from '../rounding.js';
import { checkPositive, TypeMismatch, type Tensor } from './opDef.js';

export const ROUNDING = { rounding: 'number' } as const;

/** Throws TypeMismatch unless the attribute is absent, or columns that divide those of x. */
export function checkRounding(columns: number | undefined, k: string | number | undefined): void {
  checkPositive('rounding', columns);
  if (columns !== undefined && (typeof k !== 'number' || !Number.isInteger(columns) || k % columns !== 0))
    throw new TypeMismatch(`rounding ${columns} does not divide ${String(k)} columns`);
}

/** x as it is multiplied. */
export const roundedRows = (x: Tensor, columns: number | undefined): Tensor =>
  columns === undefined ? x : { ...x, data: roundToCodes(x.data, columns) };
