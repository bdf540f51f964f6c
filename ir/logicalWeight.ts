/** The logical matrix that a WeightDecl stands for, before any packing. */
import { roundToGroups, valuesOfGroups } from './groups.js';
import type { WeightDecl } from './kernel.js';
import { roundToMicroscaled } from './microscaled.js';
import { sourceRows, tensorRow } from './packing.js';
import { rowScale } from './rounding.js';
import { type CodeFormat, FORMATS, isBlockFormat, isCodeFormat } from './storage.js';

/** A checkpoint tensor, row-major [rows, columns]; a vector (a norm weight) has rows 1. */
export interface RawTensor {
  readonly rows: number;
  readonly columns: number;
  readonly data: Float64Array;
}

/**
 * The logical matrix [Σ rows, k] of a weight: sources are stacked by rows, column c is multiplied by columnScale[c]
 * (plus columnOffset), and elements are rounded to the weight's format if `round`. Of codes it holds the codes, and of
 * scales one for each row. Throws if a tensor is missing or has the wrong shape.
 */
export function logicalWeight(decl: WeightDecl, tensors: ReadonlyMap<string, RawTensor>, round: boolean): Float64Array {
  const find = (name: string): RawTensor => {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw new Error(`Weight '${decl.name}' needs tensor '${name}', which was not given.`);
    return tensor;
  };
  const k = decl.scalesOf?.k ?? decl.k;
  const result = new Float64Array(sourceRows(decl) * k);
  let at = 0;
  for (const source of decl.sources) {
    const tensor = find(source.tensor);
    if (tensor.rows !== source.rows || tensor.columns !== k || tensor.data.length !== source.rows * k) {
      throw new Error(
        `Weight '${decl.name}' needs tensor '${source.tensor}' as [${source.rows}, ${k}], ` +
          `but it is [${tensor.rows}, ${tensor.columns}] with ${tensor.data.length} elements.`,
      );
    }
    for (let row = 0; row < source.rows; row++) {
      const from = tensorRow(source, row) * k;
      result.set(tensor.data.subarray(from, from + k), at);
      at += k;
    }
  }
  if (decl.columnScale !== undefined) {
    const scale = find(decl.columnScale).data;
    if (scale.length !== k) {
      throw new Error(
        `Weight '${decl.name}': column scale '${decl.columnScale}' has ${scale.length} elements, k is ${k}.`,
      );
    }
    const { columnOffset: added } = decl;
    const factors = added === undefined ? scale : scale.map((v) => (round ? Math.fround(v + added) : v + added));
    for (let i = 0; i < result.length; i++) result[i] = result[i]! * factors[i % k]!;
  }
  if (decl.scalesOf !== undefined) return scalesOf(k, decl.from, result, decl.scalesOf.format);
  if (isCodeFormat(decl.format) && decl.from !== 'codes') {
    const scales = scalesOf(k, decl.from, result, decl.format);
    for (let i = 0; i < result.length; i++)
      result[i] = (round ? Math.fround(result[i]!) : result[i]!) / scales[Math.floor(i / k)]!;
  }
  if (!round || decl.from === 'codes' || isBlockFormat(decl.format)) return result;
  if (decl.group !== undefined) return valuesOfGroups(roundToGroups(result, decl.group), decl.group);
  if (decl.format === 'mxfp4') return roundToMicroscaled(result);
  const format = FORMATS[decl.format];
  return format.decode(format.encode(result));
}

/** Codes that are stored as such have the scale 1 here, because tensors hold their values. */
const scalesOf = (k: number, from: WeightDecl['from'], values: Float64Array, format: CodeFormat): Float64Array =>
  Float64Array.from({ length: values.length / k }, (_, row) =>
    from === 'codes' ? 1 : rowScale(values.subarray(row * k, (row + 1) * k), format),
  );
