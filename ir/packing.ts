/** The order of columns in a packed weight. The packer (runtime) and the code that reads it (codegen) share this. */
import type { WeightDecl, WeightSource } from './kernel.js';
import { storedRow } from './rotaryOrder.js';
import { groupedBytes } from './groups.js';
import { isQuads, QUAD_COLUMNS, QUADS, unitDepth } from './quads.js';
import { FORMATS } from './storage.js';
import { roundUp } from './types.js';

/** Physical columns are padded with zeros to a multiple of this, a whole number of panels of any format. */
export const PACKED_COLUMNS = 32;
/** Bytes of a panel for each k, or with `vnni` for each pair of k: a cache line, so that a panel is one stream. */
const LINE_BYTES = 64;
/** Adjacent columns in one panel of AMX tiles. */
const VNNI_COLUMNS = 16;
/** Rows of `kmajor` weights start at multiples of this many bytes, as tensor maps require. */
const KMAJOR_BYTES = 16;
/** The depth of one AMX step. The k of `vnni` weights is padded with zeros to a multiple of it. */
const VNNI_DEPTH = 32;

/** Rows of all sources together: the logical columns of the product. */
export const sourceRows = (weight: WeightDecl): number => weight.sources.reduce((sum, source) => sum + source.rows, 0);

/** The row of a source's tensor that is its row `row`. */
export const tensorRow = ({ order }: Pick<WeightSource, 'order'>, row: number): number =>
  order === undefined ? row : storedRow(order, row);

function fail(weight: WeightDecl, problem: string): never {
  throw new Error(`Weight ${weight.name} cannot be packed: ${problem}.`);
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value > 0;

/**
 * For each physical column of the packed weight, the row of the stacked sources that it holds, or −1 for padding.
 * Length: a multiple of PACKED_COLUMNS, except for layout `rows`, which is never padded.
 * - `rotate`: for each head, blocks of `width` columns i, then the `width` columns i + headDim/2.
 * - `interleave`: blocks of `width` columns of the first source, then of the second, each source padded to `width`.
 * The columns of experts follow one another, each expert's as if it were alone.
 * Throws if the pairing does not match the sources.
 */
export function physicalToLogical(weight: WeightDecl): Int32Array {
  const { experts, sources, ...rest } = weight;
  if (experts === undefined) return matrixColumns(weight);
  // All experts have equal matrices, each of a whole number of panels.
  const own = { ...rest, sources: sources.slice(0, sources.length / experts) };
  const columns = matrixColumns(own);
  const rows = sourceRows(own);
  const all = new Int32Array(columns.length * experts);
  for (let expert = 0; expert < experts; expert++)
    columns.forEach((row, at) => {
      all[expert * columns.length + at] = row < 0 ? row : expert * rows + row;
    });
  return all;
}

function matrixColumns(weight: WeightDecl): Int32Array {
  for (const source of weight.sources)
    if (!isCount(source.rows)) fail(weight, `source ${source.tensor} has ${source.rows} rows`);
  const { pairing } = weight;
  const total = sourceRows(weight);
  const padded = (count: number): number => (weight.layout === 'rows' ? count : roundUp(count, PACKED_COLUMNS));
  if (pairing.kind !== 'none' && !isCount(pairing.width))
    fail(weight, `the pairing width ${pairing.width} is not a positive integer`);
  switch (pairing.kind) {
    case 'none': {
      const columns = new Int32Array(padded(total)).fill(-1, total);
      for (let i = 0; i < total; i++) columns[i] = i;
      return columns;
    }
    case 'rotate': {
      const { headDim, width } = pairing;
      const half = headDim / 2;
      if (!isCount(half) || half % width !== 0)
        fail(weight, `pairs of width ${width} do not divide half of head_dim ${headDim}`);
      if (total % headDim !== 0) fail(weight, `${total} rows are not whole heads of ${headDim}`);
      const columns = new Int32Array(padded(total)).fill(-1, total);
      let at = 0;
      for (let head = 0; head < total; head += headDim) {
        for (let block = head; block < head + half; block += width) {
          for (let i = 0; i < width; i++) columns[at++] = block + i;
          for (let i = 0; i < width; i++) columns[at++] = block + half + i;
        }
      }
      return columns;
    }
    case 'interleave': {
      const { width } = pairing;
      const [first, second] = weight.sources;
      if (first === undefined || second === undefined || weight.sources.length !== 2)
        return fail(weight, 'interleaving takes exactly two sources');
      if (first.rows !== second.rows)
        fail(weight, `interleaved sources differ in their number of rows: ${first.rows} and ${second.rows}`);
      const columns = new Int32Array(padded(2 * roundUp(first.rows, width))).fill(-1);
      let at = 0;
      for (let block = 0; block < first.rows; block += width) {
        for (const base of [0, first.rows]) {
          for (let i = block; i < block + width; i++) columns[at++] = i < first.rows ? base + i : -1;
        }
      }
      return columns;
    }
    default:
      return pairing satisfies never;
  }
}

/** physicalToLogical for all weights of a model. Layers have the same shapes, and each shape is computed once. */
export function rowMaps(): (weight: WeightDecl) => Int32Array {
  const known = new Map<string, Int32Array>();
  return (weight) => {
    const key = JSON.stringify([weight.layout, weight.sources.map(({ rows }) => rows), weight.pairing, weight.experts]);
    const map = known.get(key) ?? physicalToLogical(weight);
    known.set(key, map);
    return map;
  };
}

type DepthOf = Pick<WeightDecl, 'layout' | 'format' | 'k'>;

/** Elements along k that each physical column takes in memory, including padding. */
export function packedDepth({ layout, format, k }: DepthOf): number {
  switch (layout) {
    case 'rows':
    case 'panels':
    case 'groups':
    case 'microscaled':
      return k;
    case 'vnni':
      return roundUp(k, VNNI_DEPTH);
    case 'quads':
      return isQuads(format) ? roundUp(k, unitDepth(QUADS[format])) : k;
    case 'kmajor':
      return roundUp(k, (8 * KMAJOR_BYTES) / FORMATS[format].elementBits);
    default:
      return layout satisfies never;
  }
}

/** Adjacent columns in one panel: 16 of f32, 32 of a 16-bit format. */
export const panelColumns = ({ layout, format }: Pick<WeightDecl, 'layout' | 'format'>): number =>
  layout === 'vnni' ? VNNI_COLUMNS : layout === 'quads' ? QUAD_COLUMNS : (LINE_BYTES * 8) / FORMATS[format].elementBits;

/** Bytes of a packed weight with `columns` physical columns (the length of physicalToLogical), of all its slots. */
export const packedBytes = (weight: WeightDecl, columns: number): number =>
  (weight.slots?.count ?? 1) * slotBytes(weight, columns);

/** The same of one slot. */
export function slotBytes(weight: WeightDecl, columns: number): number {
  if (weight.group !== undefined) return groupedBytes(columns, weight.k, weight.group);
  const isInPanels = weight.layout === 'panels' || weight.layout === 'vnni' || weight.layout === 'quads';
  return FORMATS[weight.format].bytes(
    isInPanels ? roundUp(columns, panelColumns(weight)) : columns,
    packedDepth(weight),
  );
}
