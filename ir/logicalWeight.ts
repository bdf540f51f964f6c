/** The logical matrix that a WeightDecl stands for, before any packing. */
import type { WeightDecl } from './kernel.js';
import { sourceRows, tensorRow } from './packing.js';
import { FORMATS } from './storage.js';

/** A checkpoint tensor, row-major [rows, columns]; a vector (a norm weight) has rows 1. */
export interface RawTensor {
  readonly rows: number;
  readonly columns: number;
  readonly data: Float64Array;
}

/**
 * The logical matrix [Σ rows, k] of a weight: sources are stacked by rows, column c is multiplied by columnScale[c]
 * (plus columnOffset), and elements are rounded to the weight's format if `round`. Throws if a tensor is missing or has
 * the wrong shape.
 */
export function logicalWeight(decl: WeightDecl, tensors: ReadonlyMap<string, RawTensor>, round: boolean): Float64Array {
  const find = (name: string): RawTensor => {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw new Error(`Weight '${decl.name}' needs tensor '${name}', which was not given.`);
    return tensor;
  };
  const result = new Float64Array(sourceRows(decl) * decl.k);
  let at = 0;
  for (const source of decl.sources) {
    const tensor = find(source.tensor);
    if (tensor.rows !== source.rows || tensor.columns !== decl.k || tensor.data.length !== source.rows * decl.k) {
      throw new Error(
        `Weight '${decl.name}' needs tensor '${source.tensor}' as [${source.rows}, ${decl.k}], ` +
          `but it is [${tensor.rows}, ${tensor.columns}] with ${tensor.data.length} elements.`,
      );
    }
    for (let row = 0; row < source.rows; row++) {
      const from = tensorRow(source, row) * decl.k;
      result.set(tensor.data.subarray(from, from + decl.k), at);
      at += decl.k;
    }
  }
  if (decl.columnScale !== undefined) {
    const scale = find(decl.columnScale).data;
    if (scale.length !== decl.k) {
      throw new Error(
        `Weight '${decl.name}': column scale '${decl.columnScale}' has ${scale.length} elements, k is ${decl.k}.`,
      );
    }
    const { columnOffset: added } = decl;
    const factors = added === undefined ? scale : scale.map((v) => (round ? Math.fround(v + added) : v + added));
    for (let i = 0; i < result.length; i++) result[i] = result[i]! * factors[i % decl.k]!;
  }
  if (!round) return result;
  const format = FORMATS[decl.format];
  return format.decode(format.encode(result));
}
