import {
  definitions,
  isOp,
  loadTimeValues,
  rewrite,
  uses,
  type Graph,
  type Node,
  type NodeOf,
  type Rewriter,
  type Value,
} from '../ir/graph/graph.js';
import { ROW_SUM_BLOCK } from '../ir/kernel.js';
import { ROUTE_OPS } from '../ir/ops/experts.js';
import type { CodeFormat } from '../ir/storage.js';
import type { FloatType } from '../ir/types.js';
import { factorByMean, RowScaler, TINY, type Scaled } from './rowScaler.js';

/** Contractions in numbers of 8 bits. */
export interface ContractionQuantization {
  /** Both operands. */
  readonly format: CodeFormat;
  /** `values`: matrices are rounded while they load. `codes`: the checkpoint stores them in this format. */
  readonly from: 'values' | 'codes';
  /** Tensors that stay as they are, by name. */
  readonly keep: readonly string[];
  /** The tensors whose matrices are narrowed, where they are not all. */
  readonly only?: ReadonlySet<string>;
  /** Where layers stay as they are (wideLayers): at both ends, or at the beginning. Default: nowhere. */
  readonly wide?: 'ends' | 'first';
}

/** Layers from which on a model is large: it has time to gain, and answers that depend less on each layer. */
const LARGE_MODEL = 17;

/**
 * How many of the first and of the last layers stay as they are. Their errors go through all layers behind them, so
 * answers in E4M3 depend most on the first (docs/quantized.md): four, at most half of all, and five of 8 to 16. In i8,
 * where answers need no more, two at each end, at most a quarter of all.
 */
export function wideLayers(
  layers: number,
  where: ContractionQuantization['wide'],
): { readonly first: number; readonly last: number } {
  if (where === undefined) return { first: 0, last: 0 };
  const each = Math.min(2, Math.floor(layers / 4));
  if (where === 'ends') return { first: each, last: each };
  return { first: layers < 8 || layers >= LARGE_MODEL ? 2 * each : 5, last: 0 };
}

const layerOf = ({ path }: Node): number | undefined => {
  const [, layer] = /^layers\.(\d+)\./.exec(path) ?? [];
  return layer === undefined ? undefined : Number(layer);
};

/** Whether a product is of the head, as one with classes is. */
const isOfHead = ({ path }: Node): boolean => /^head(?:\.|$)/.test(path);

/** Last name in the path of what rounds rows. */
export const QUANTIZE = 'quantize';

/**
 * linear(x, W) = linear(x8, codes)·scales·s with x8 = x / s in 8 bits, a scale s for each row of x, and scales for rows
 * of W. The head, routers of experts, tensors of `keep` and some layers stay as they are.
 *
 * s of E4M3, where a norm or the stream is read: with r the root mean square of a row of K, no |x| / r exceeds √K. s =
 * r / c for the largest power of two c with c·√K ≤ 448 lets no number saturate, because a float's relative error does
 * not depend on its scale: what becomes denormal is below r / 211 (K = 17,920). Sums of squares are what norms need.
 *
 * s of E4M3, where only contractions read the row (inputs of o and down): its largest magnitude / 256. That number,
 * often much of a row, stays exact, and so does s.
 *
 * s of i8: the largest magnitude / 127, which the contraction finds itself: linear(x, codes) {rounding: K}·scales.
 *
 * A row in E4M3 is stored before its scale is known: in the type `stored` where only contractions read it, and as it is
 * where others do (the stream).
 */
export function quantizeContractions(
  graph: Graph,
  narrow: ContractionQuantization | undefined,
  stored: FloatType,
): Graph {
  if (narrow === undefined) return graph;
  const loaded = loadTimeValues(graph);
  const defs = definitions(graph);
  const readers = uses(graph);
  const kept = new Set(narrow.keep);
  const isKept = (matrix: Value): boolean => {
    const node = defs.get(matrix);
    const isNamed = kept.has(matrix.name) || narrow.only?.has(matrix.name) === false;
    return (matrix.kind === 'weight' && isNamed) || (node?.inputs.some(isKept) ?? false);
  };
  const layers = Math.max(0, ...graph.nodes.map((node) => (layerOf(node) ?? -1) + 1));
  const { first, last } = wideLayers(layers, narrow.wide);
  const isWide = (node: Node): boolean => {
    const layer = layerOf(node);
    return layer !== undefined && (layer < first || layer >= layers - last);
  };
  /** Whether only contractions read the rows, and loops find the largest of them. */
  const isOwn = (x: Value): boolean =>
    Number(x.type.shape[1]) % ROW_SUM_BLOCK === 0 && (readers.get(x) ?? []).every(({ op }) => op === 'linear');
  const inMemory = (x: Value, rewriter: Rewriter): Value => {
    const own = rewriter.map(x);
    if (stored === 'f32' || own.type.dtype !== 'f32') return own;
    const cast = rewriter.add('cast', { x: own }, { dtype: stored }, `${x.name}_${stored}`);
    return rewriter.add('cast', { x: cast }, { dtype: 'f32' }, `${x.name}_wide`);
  };
  const rows = new Map<Value, Scaled>();
  const products = new Map<Value, UnscaledProduct>();
  return rewrite(graph, (node, rewriter) => {
    if (node.op === 'mul') return rescaled(rewriter, node, products);
    if (node.op !== 'linear') return undefined;
    const { x, w: matrix } = node.operands;
    if (!loaded.has(matrix) || isKept(matrix) || x.type.shape.length !== 2) return undefined;
    if (isWide(node) || isOfHead(node)) return undefined;
    if ((readers.get(node.result) ?? []).some((reader) => isOp(reader, ...ROUTE_OPS))) return undefined;
    const { name } = node.result;
    const attributes = { format: narrow.format, from: narrow.from };
    const own = rewriter.map(matrix);
    const values =
      own.type.dtype === 'f32' ? own : rewriter.add('cast', { x: own }, { dtype: 'f32' }, `${name}_matrix`);
    const codes = rewriter.add('codes', { w: values }, attributes, `${name}_codes`);
    const scales = rewriter.add('row_scales', { w: values }, attributes, `${name}_scales`);
    if (narrow.format === 'i8') {
      const rounding = Number(x.type.shape[1]);
      const product = rewriter.add('linear', { x: rewriter.map(x), w: codes }, { rounding }, `${name}_narrow`);
      return rewriter.add('mul', { a: product, b: scales }, {}, name);
    }
    const path = `${node.path}.${QUANTIZE}`;
    const scale = (): Scaled => {
      const rowsOfX = isOwn(x) ? inMemory(x, rewriter) : rewriter.map(x);
      const scaler = new RowScaler(rewriter, rowsOfX);
      return rewriter.scope(path, () => (isOwn(x) ? scaleByLargest(scaler) : scaleByMean(scaler)));
    };
    const scaled = rows.get(x) ?? scale();
    rows.set(x, scaled);
    const product = rewriter.add('linear', { x: scaled.codes, w: codes }, {}, `${name}_narrow`);
    const wide = rewriter.add('mul', { a: product, b: scales }, {}, `${name}_unscaled`);
    products.set(node.result, { wide, scale: scaled.scale });
    return rewriter.add('mul', { a: wide, b: scaled.scale }, {}, name);
  });
}

/** A product without the scale of its rows. */
interface UnscaledProduct {
  readonly wide: Value;
  readonly scale: Value;
}

/** product · s for a factor s of each row, as 1/rms of a norm: both factors of a row become one. */
function rescaled(
  rewriter: Rewriter,
  { operands: { a, b }, result }: NodeOf<'mul'>,
  products: ReadonlyMap<Value, UnscaledProduct>,
): Value | undefined {
  const left = products.get(a);
  const [product, factor] = left === undefined ? [products.get(b), a] : [left, b];
  if (product === undefined || factor.type.shape.length !== 2 || factor.type.shape[1] !== 1) return undefined;
  const scale = rewriter.add('mul', { a: product.scale, b: rewriter.map(factor) }, {}, `${result.name}_scale`);
  return rewriter.add('mul', { a: product.wide, b: scale }, {}, result.name);
}

/** What a row's largest magnitude becomes. */
const LARGEST_CODE = 256;

function scaleByMean(rows: RowScaler): Scaled {
  const { x } = rows;
  const squares = rows.binary('mul', x, x, 'squares');
  const mean = rows.binary('add', rows.unary('mean', squares, 'mean'), rows.literal(TINY), 'mean_square');
  return rows.bySquare(mean, factorByMean(Number(x.type.shape.at(-1))), 'e4m3');
}

function scaleByLargest(rows: RowScaler): Scaled {
  const { x } = rows;
  const magnitude = rows.binary('max', x, rows.unary('neg', x, 'negative'), 'magnitude');
  const largest = rows.binary('max', rows.unary('reduce_max', magnitude, 'most'), rows.literal(TINY), 'largest');
  return {
    codes: rows.codes(rows.binary('div', rows.literal(LARGEST_CODE), largest, 'inverse'), 'e4m3'),
    scale: rows.binary('mul', largest, rows.literal(1 / LARGEST_CODE), 'scale'),
  };
}
