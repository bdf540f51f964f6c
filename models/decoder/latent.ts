/**
 * Multi-head latent attention (arXiv:2405.04434): queries, and keys with values, are made of narrow rows. Of the
 * elements of a head the first ones are not turned; the last ones are, and those of keys are the same for all heads.
 *
 * Keys and values of a head are products of the narrow rows with matrices of the head's own. These matrices are
 * multiplied with queries and with what attention gives instead (section 2.1.2: they are absorbed), so that all heads
 * share one head of keys, the narrow rows, which are the values as well.
 */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { ExpectedTensor, TensorPart } from '../model/tensors.js';
import type { Norm } from './ops.js';

export interface LatentConfig {
  /** Width of the normed rows that queries are made of; null: queries are made of the layer's input. */
  readonly queryRank: number | null;
  /** Width of the normed rows that keys and values are made of. */
  readonly rank: number;
  /** Elements of a head of queries and keys that are not turned, and that are. */
  readonly plain: number;
  readonly turned: number;
  /** Elements of a head of values. */
  readonly values: number;
  /** Whether rotary embedding turns pairs of neighbours. Otherwise pairs are half of `turned` apart. */
  readonly interleaved: boolean;
  /** Whether the products that narrow rows add a bias. */
  readonly isBiased: boolean;
}

/** The ε of the norms of narrow rows, whatever that of other norms is, as in transformers. */
export const LATENT_EPSILON = 1e-6;

/** Modules below a layer, and what the graph calls the parts of those that hold two matrices. */
const MODULES = {
  query: 'self_attn.q_proj',
  queryDown: 'self_attn.q_a_proj',
  queryNorm: 'self_attn.q_a_layernorm',
  queryUp: 'self_attn.q_b_proj',
  down: 'self_attn.kv_a_proj_with_mqa',
  norm: 'self_attn.kv_a_layernorm',
  up: 'self_attn.kv_b_proj',
} as const;

const partName = (tensor: string, part: string): string => tensor.replace(/\.(weight|bias)$/, `.${part}.$1`);
const headName = (tensor: string, part: string, head: number): string => partName(tensor, `${part}.${head}`);

/** Rows of a module: of each of `count` heads the first ones and then the others. */
function parted(
  module: string,
  columns: number,
  parts: readonly (readonly [name: string, rows: number])[],
  count: number,
  isBiased = false,
): readonly ExpectedTensor[] {
  const stride = parts.reduce((sum, [, rows]) => sum + rows, 0);
  const of = (tensor: string): readonly TensorPart[] =>
    parts.map(([name, rows], i) => ({
      name: partName(tensor, name),
      first: parts.slice(0, i).reduce((sum, [, before]) => sum + before, 0),
      rows,
      stride,
      count,
    }));
  const [weight, bias] = [`${module}.weight`, `${module}.bias`];
  return [
    { name: weight, shape: [stride * count, columns], role: 'matrix', parts: of(weight) },
    ...(isBiased ? [{ name: bias, shape: [stride * count], role: 'bias', parts: of(bias) } as const] : []),
  ];
}

/** The tensors of a layer's attention before its output. */
export function latentTensors(
  { queryRank, rank, plain, turned, values, isBiased }: LatentConfig,
  layer: string,
  hidden: number,
  heads: number,
): readonly ExpectedTensor[] {
  const norm = (module: string, width: number): ExpectedTensor => ({
    name: `${layer}.${module}.weight`,
    shape: [width],
    role: 'norm',
  });
  const queries = (module: string, columns: number): readonly ExpectedTensor[] =>
    parted(
      `${layer}.${module}`,
      columns,
      [
        ['plain', plain],
        ['turned', turned],
      ],
      heads,
    );
  const down = `${layer}.${MODULES.queryDown}`;
  return [
    ...(queryRank === null
      ? queries(MODULES.query, hidden)
      : [
          { name: `${down}.weight`, shape: [queryRank, hidden], role: 'matrix' } as const,
          ...(isBiased ? [{ name: `${down}.bias`, shape: [queryRank], role: 'bias' } as const] : []),
          norm(MODULES.queryNorm, queryRank),
          ...queries(MODULES.queryUp, queryRank),
        ]),
    ...parted(
      `${layer}.${MODULES.down}`,
      hidden,
      [
        ['latent', rank],
        ['turned', turned],
      ],
      1,
      isBiased,
    ),
    norm(MODULES.norm, rank),
    upTensor(`${layer}.${MODULES.up}.weight`, { rank, plain, values }, heads),
  ];
}

/** The matrices of each head: of keys, which queries are multiplied with, [rank, plain]; and of values. */
function upTensor(
  name: string,
  { rank, plain, values }: Pick<LatentConfig, 'rank' | 'plain' | 'values'>,
  heads: number,
): ExpectedTensor {
  const stride = plain + values;
  return {
    name,
    shape: [stride * heads, rank],
    role: 'matrix',
    parts: Array.from({ length: heads }, (_, head): readonly TensorPart[] => [
      { name: headName(name, 'keys', head), first: head * stride, columns: plain, from: 0, rows: rank },
      { name: headName(name, 'values', head), first: head * stride + plain, rows: values, stride: values, count: 1 },
    ]).flat(),
  };
}

/** What the layers of a decoder bring. */
export interface LatentContext {
  readonly b: GraphBuilder;
  readonly heads: number;
  readonly weight: (name: string, dims: readonly number[]) => Value;
  readonly toF32: (v: Value, hint: string) => Value;
  /** Of narrow rows. */
  readonly norm: Norm;
  /** Rotary embedding of [T, h, turned], whose pairs are half a head apart. */
  readonly rope: (x: Value) => Value;
}

/** Queries [T, heads, …] and one head of keys [T, 1, …]; of `tail` are the elements that follow. */
export interface LatentHeads {
  readonly q: Value;
  /** Keys, and values. */
  readonly k: Value;
  readonly tail: { readonly q: Value; readonly k: Value };
  /** Heads of values [T, heads, …], of what attention gives. */
  readonly values: (mixed: Value) => Value;
}

/** Heads of queries and keys of rows of the stream. */
export function latentHeads(context: LatentContext, latent: LatentConfig, x: Value, layer: string): LatentHeads {
  const { b, heads, weight, toF32, norm, rope } = context;
  const { queryRank, rank, plain, turned, values, interleaved, isBiased } = latent;
  const byPairs = (stored: Value): Value =>
    interleaved
      ? b.add('pair_halves', { x: stored }, { headDim: turned, rotated: turned, interleaved }, 'by_pairs')
      : stored;
  const asStored = (stored: Value): Value => stored;
  const product = (from: Value, module: string, part: string | undefined, out: number, rows = asStored): Value => {
    const name = (tensor: string): string => (part === undefined ? tensor : partName(tensor, part));
    const columns = from.type.shape.at(-1) as number;
    const matrix = rows(weight(name(`${layer}.${module}.weight`), [out, columns]));
    return b.add('linear', { x: from, w: matrix }, {}, part ?? 'narrow');
  };
  /** The same from rows of the stream, which may have a bias. */
  const narrowed = (module: string, part: string | undefined, out: number, rows = asStored): Value => {
    const own = product(x, module, part, out, rows);
    if (!isBiased) return own;
    const tensor = `${layer}.${module}.bias`;
    const bias = rows(weight(part === undefined ? tensor : partName(tensor, part), [out]));
    return b.add('add', { a: own, b: toF32(bias, 'bias') }, {}, `${part ?? 'narrow'}_sum`);
  };
  const inHeads = (v: Value, count: number, width: number, hint: string): Value =>
    b.add('reshape', { x: v }, { shape: ['T', count, width] }, hint);

  const q = b.scope('q', () => {
    const from =
      queryRank === null
        ? x
        : norm(
            b.scope('down', () => narrowed(MODULES.queryDown, undefined, queryRank)),
            `${layer}.${MODULES.queryNorm}`,
          );
    const module = queryRank === null ? MODULES.query : MODULES.queryUp;
    const tail = inHeads(product(from, module, 'turned', heads * turned, byPairs), heads, turned, 'q_turned');
    return { own: inHeads(product(from, module, 'plain', heads * plain), heads, plain, 'q_heads'), tail: rope(tail) };
  });
  const { latentRows, tail } = b.scope('kv', () => ({
    latentRows: narrowed(MODULES.down, 'latent', rank),
    tail: rope(inHeads(narrowed(MODULES.down, 'turned', turned, byPairs), 1, turned, 'k_turned')),
  }));
  const from = b.scope('kv', () => norm(latentRows, `${layer}.${MODULES.norm}`));
  /** Heads x[T, heads, k], each times `out` rows of the part of its own. */
  const byHead = (x: Value, part: string, out: number): Value => {
    const k = x.type.shape.at(-1) as number;
    const turned = (v: Value, order: readonly number[], hint: string): Value =>
      b.add('transpose', { x: v }, { order }, hint);
    const tensor = `${layer}.${MODULES.up}.weight`;
    const matrices = Array.from({ length: heads }, (_, head) => weight(headName(tensor, part, head), [out, k]));
    const stacked = b.add('concat', { matrices }, { axis: 0 }, `${part}_of_each`);
    const own = b.add('reshape', { x: stacked }, { shape: [heads, out, k] }, `${part}_by_head`);
    const operands = { a: turned(x, [1, 0, 2], 'rows_by_head'), b: turned(own, [0, 2, 1], `${part}_turned`) };
    return turned(b.add('matmul', operands, {}, part), [1, 0, 2], `${part}_heads`);
  };
  return {
    q: b.scope('absorb', () => byHead(q.own, 'keys', rank)),
    k: b.scope('kv', () => inHeads(from, 1, rank, 'latent_head')),
    tail: { q: q.tail, k: tail },
    values: (mixed) => b.scope('values', () => byHead(mixed, 'values', values)),
  };
}
