/** softmax(cap(scale·q·kᵀ) + slopes + mask)·v as one op. */
import { softCap } from '../evaluateScalar.js';
import { firstSeen, type Reach } from '../reach.js';
import { slopeTerm } from '../slopes.js';
import { type Dim, extentsOf, isFloat, type TensorType } from '../types.js';
import {
  type Attributes,
  checkPositive,
  elementCount,
  indexAt,
  op,
  type Tensor,
  type TypedAttributes,
  type TypedOperands,
  TypeMismatch,
} from './opDef.js';

const ATTRIBUTES = { scale: 'number', mask: ['column', 'path', 'bias'] } as const;
const OPTIONAL = {
  cap: 'number',
  window: 'number',
  chunk: 'number',
  scaled: 'boolean',
  sloped: 'boolean',
  slopeFactor: 'number',
  sinks: 'boolean',
  tailed: 'boolean',
} as const;

/** Whether it matters to trees at which positions keys are. */
const asksPosition = ({ window, chunk, sloped }: Attributes): boolean =>
  window !== undefined || chunk !== undefined || sloped === true;

const when = (test: (attributes: Attributes) => boolean): { readonly when: typeof test } => ({ when: test });

/** In the order of the text form. The attributes say which operands there are, all but `queryRow`. */
const OPERANDS = {
  q: 'one',
  k: 'one',
  v: 'one',
  /** Where keys and values are codes: what those of each row and head are to be multiplied by. */
  kScale: when(({ scaled }) => scaled === true),
  vScale: when(({ scaled }) => scaled === true),
  /** Further elements of the heads of queries, and those of one head of keys, which all heads share. */
  qTail: when(({ tailed }) => tailed === true),
  kTail: when(({ tailed }) => tailed === true),
  begin: when(({ mask }) => mask === 'path'),
  subtreeEnd: when(({ mask }) => mask === 'column'),
  position: when(
    (attributes) => attributes['mask'] === 'path' || (attributes['mask'] === 'column' && asksPosition(attributes)),
  ),
  key: when(({ mask }) => mask === 'path'),
  bias: when(({ mask }) => mask === 'bias'),
  /** Of each head: what is added to a score for each position that its key is further on. */
  slopes: when(({ sloped }) => sloped === true),
  /** How many positions each key is further on than each query; with a slopeFactor, at which position it is. */
  distance: when(({ mask, sloped }) => mask === 'bias' && sloped === true),
  /** A logit of each head, which has no value. */
  sink: when(({ sinks }) => sinks === true),
  queryRow: 'optional',
} as const;

type AttentionOperands<V> = TypedOperands<typeof OPERANDS, V>;
type AttentionAttributes = TypedAttributes<typeof ATTRIBUTES, typeof OPTIONAL>;

/** The mask of an attention node with its operands. ir/kernel.ts (Mask) says what each kind means. */
export type MaskOperands<V> =
  | { readonly kind: 'column'; readonly subtreeEnd: V; readonly position: V | undefined }
  | { readonly kind: 'path'; readonly begin: V; readonly position: V; readonly key: V }
  | { readonly kind: 'bias'; readonly bias: V };

/** Throws TypeMismatch where an operand is missing. */
export function maskOf<V>(operands: AttentionOperands<V>, { mask: kind }: AttentionAttributes): MaskOperands<V> {
  const given = (name: 'begin' | 'subtreeEnd' | 'position' | 'key' | 'bias'): V => {
    const value = operands[name];
    if (value === undefined) throw new TypeMismatch(`attention with mask '${kind}' needs ${name}`);
    return value;
  };
  switch (kind) {
    case 'column':
      return { kind, subtreeEnd: given('subtreeEnd'), position: operands.position };
    case 'path':
      return { kind, begin: given('begin'), position: given('position'), key: given('key') };
    case 'bias':
      return { kind, bias: given('bias') };
    default:
      return kind satisfies never;
  }
}

/** Scales of codes; undefined where keys and values are numbers. */
export const scalesOf = <V>({ kScale, vScale }: AttentionOperands<V>): { readonly k: V; readonly v: V } | undefined =>
  kScale === undefined || vScale === undefined ? undefined : { k: kScale, v: vScale };

/** Elements of queries and keys that stand behind their heads, those of keys the same for all heads. */
export const tailOf = <V>({ qTail, kTail }: AttentionOperands<V>): { readonly q: V; readonly k: V } | undefined =>
  qTail === undefined || kTail === undefined ? undefined : { q: qTail, k: kTail };

function checkTail(
  { q, k }: { readonly q: TensorType; readonly k: TensorType },
  queries: Dim,
  heads: Dim,
  keys: Dim,
): void {
  const [width] = q.shape.slice(2);
  const isRight =
    q.shape.length === 3 && k.shape.length === 3 && q.shape[0] === queries && q.shape[1] === heads && k.shape[1] === 1;
  if (!isRight || k.shape[0] !== keys || k.shape[2] !== width || typeof width !== 'number')
    throw new TypeMismatch(`tails must be [${String(queries)}, ${String(heads)}, r] and [${String(keys)}, 1, r]`);
}

function checkReach({ mask, window, chunk }: AttentionAttributes): void {
  for (const [name, width] of Object.entries({ window, chunk }))
    if (width !== undefined && !(Number.isSafeInteger(width) && width > 0 && mask !== 'bias'))
      throw new TypeMismatch(`attribute '${name}' must be a whole number above 0; a mask 'bias' has it inside`);
  if (window !== undefined && chunk !== undefined) throw new TypeMismatch('attention has a window or chunks, not both');
}

function checkSlopes(
  { slopes, distance }: Pick<AttentionOperands<TensorType>, 'slopes' | 'distance'>,
  heads: Dim,
  queries: Dim,
  keys: Dim,
): void {
  if (slopes !== undefined && (slopes.dtype !== 'f32' || slopes.shape.length !== 1 || slopes.shape[0] !== heads))
    throw new TypeMismatch(`slopes must be f32[${String(heads)}]`);
  if (distance === undefined) return;
  const { dtype, shape } = distance;
  if (dtype !== 'i32' || shape.length !== 2 || shape[0] !== queries || shape[1] !== keys)
    throw new TypeMismatch(`distances must be i32[${String(queries)}, ${String(keys)}]`);
}

const isVector = ({ dtype, shape }: TensorType, rows: Dim | undefined): boolean =>
  dtype === 'i32' && shape.length === 1 && shape[0] === rows;

function checkScale({ dtype, shape }: TensorType, rows: Dim, heads: Dim): void {
  if (dtype !== 'f32' || shape.length !== 2 || shape[0] !== rows || shape[1] !== heads)
    throw new TypeMismatch(`scales of keys and values must be f32[${String(rows)}, ${String(heads)}]`);
}

function checkSink(sink: TensorType | undefined, heads: Dim): void {
  if (sink === undefined) return;
  const { dtype, shape } = sink;
  if (!isFloat(dtype) || shape.length !== 1 || shape[0] !== heads)
    throw new TypeMismatch(`sinks must be floats [${String(heads)}], one for each head`);
}

/** Whether the operands of a mask have the right types, with these rows of queries and keys. */
function isMaskTyped(mask: MaskOperands<TensorType>, queries: Dim, keys: Dim): boolean {
  switch (mask.kind) {
    case 'column':
      return isVector(mask.subtreeEnd, keys) && (mask.position === undefined || isVector(mask.position, keys));
    case 'path': {
      const { begin, position, key } = mask;
      return isVector(begin, queries) && isVector(position, queries) && isVector(key, key.shape[0]);
    }
    case 'bias': {
      const { shape } = mask.bias;
      return shape.length === 2 && shape[0] === queries && shape[1] === keys;
    }
    default:
      return mask satisfies never;
  }
}

/** A key that a query sees: its row of k and v, and what is added to its score. */
interface SeenKey {
  readonly row: number;
  readonly bias: number;
  /** How many positions it is further on than the query; undefined where nobody asks. */
  readonly distance: number | undefined;
  /** Its position on the path of the query, where that is known. */
  readonly position?: number | undefined;
}

const placeIn = (place: number | undefined): Pick<SeenKey, 'distance' | 'position'> => ({
  distance: place,
  position: place,
});

/** The keys that query `at` sees, of `rows` rows of keys. */
function keysOf(
  mask: MaskOperands<Tensor>,
  at: number,
  rows: number,
  reach: Reach,
  distance: Tensor | undefined,
): readonly SeenKey[] {
  const all = (count: number): readonly number[] => Array.from({ length: count }, (_, t) => t);
  switch (mask.kind) {
    case 'bias':
      return all(rows).map((row) => ({
        row,
        bias: mask.bias.data[at * rows + row]!,
        ...placeIn(distance?.data[at * rows + row]),
      }));
    case 'column': {
      const { subtreeEnd, position } = mask;
      const isNear = (t: number): boolean =>
        position === undefined || position.data[t]! >= firstSeen(position.data[at]!, reach);
      return all(rows)
        .filter((t) => t <= at && at < subtreeEnd.data[t]! && isNear(t))
        .map((row) => ({
          row,
          bias: 0,
          distance: position && position.data[row]! - position.data[at]!,
          position: position?.data[row],
        }));
    }
    case 'path': {
      const { begin, position, key } = mask;
      const [entries] = extentsOf(key.shape, 1);
      const [first, last] = [indexAt(begin, at, entries), position.data[at]!];
      return all(last + 1)
        .filter((i) => first + i < entries && i >= firstSeen(last, reach))
        .map((i) => ({ row: indexAt(key, first + i, rows), bias: 0, distance: i - last, position: i }));
    }
    default:
      return mask satisfies never;
  }
}

export const attention = op({
  summary:
    'attention(q[Q, h, d], k[T, g, d], v[T, g, e], kScale?, vScale?, qTail?, kTail?, mask…, slopes?, distance?, ' +
    'sink?, queryRow?) {scale, mask, cap?, window?, chunk?, scaled?, sloped?, slopeFactor?, sinks?, tailed?}: ' +
    'softmax(s + mask)·v, ' +
    'where s = scale·q·kᵀ or cap·tanh(scale·q·kᵀ / cap); ' +
    "mask 'bias': f32[Q, T] bias added; 'column': i32[T] subtreeEnd, key k visible to query q when k <= q < " +
    "subtreeEnd[k]; 'path': i32[Q] begin, i32[Q] position, i32[C] key, query q sees rows key[begin[q] + i] for i " +
    'from 0 to position[q]. With a window, a query sees the last keys of its path, so many by position; a column ' +
    'mask then has i32[T] position after subtreeEnd. With chunks it sees those keys of its path whose position ' +
    'divided by the chunk gives the same whole number as its own. If sloped, f32[h] slopes times how many positions ' +
    "a key is further on than the query are added to s; a mask 'bias' then has i32[Q, T] distance. With a " +
    'slopeFactor it is that times slopes times positions of keys, which and whose product are bf16; distance is the ' +
    'positions then. If scaled, row t of head g of k and v is to be multiplied by f32[T, g] kScale and vScale. With ' +
    'sinks, sink[h] is one more logit of head h, without a value. If tailed, heads of q and k go on with those of ' +
    'qTail[Q, h, r] and kTail[T, 1, r]',
  fuse: 'opaque',
  operands: OPERANDS,
  attributes: ATTRIBUTES,
  optional: OPTIONAL,
  infer: (operands, attributes) => {
    const { q, k, v, queryRow } = operands;
    checkPositive('cap', attributes.cap);
    checkPositive('slopeFactor', attributes.slopeFactor);
    checkReach(attributes);
    const mask = maskOf(operands, attributes);
    if (q.shape.length !== 3 || k.shape.length !== 3 || v.shape.length !== 3)
      throw new TypeMismatch('attention needs q, k and v of rank 3');
    const [queries, heads, width] = extentsOf(q.shape, 3);
    const [keys, kvHeads, keyWidth] = extentsOf(k.shape, 3);
    const [values, valueHeads, valueWidth] = extentsOf(v.shape, 3);
    if (typeof heads !== 'number' || typeof kvHeads !== 'number' || heads % kvHeads !== 0)
      throw new TypeMismatch(`${String(heads)} query heads cannot be shared evenly among ${String(kvHeads)} key heads`);
    if (width !== keyWidth || keys !== values || kvHeads !== valueHeads)
      throw new TypeMismatch('attention: the shapes of q, k and v do not match');
    const scales = scalesOf(operands);
    if (scales !== undefined) for (const scale of [scales.k, scales.v]) checkScale(scale, keys, kvHeads);
    checkSlopes(operands, heads, queries, keys);
    checkSink(operands.sink, heads);
    const tail = tailOf(operands);
    if (tail !== undefined) checkTail(tail, queries!, heads, keys!);
    if (!isMaskTyped(mask, queries, keys))
      throw new TypeMismatch(`an operand of mask '${mask.kind}' has the wrong type`);
    if (queryRow === undefined) return { dtype: 'f32', shape: [queries, heads, valueWidth] };
    if (queryRow.dtype !== 'i32' || queryRow.shape.length !== 1) throw new TypeMismatch('queryRow must be i32[R]');
    return { dtype: 'f32', shape: [...queryRow.shape, heads, valueWidth] };
  },
  evaluate: (operands, attributes, shape) => {
    const { q, k, v, sink, queryRow, slopes, distance } = operands;
    const { scale, cap, window, chunk, slopeFactor } = attributes;
    const [mask, scales, tail] = [maskOf(operands, attributes), scalesOf(operands), tailOf(operands)];
    const [, , more = 0] = tail?.k.shape ?? [];
    const [rows, heads, width] = extentsOf(shape, 3);
    const [queries] = q.shape;
    const [all, groups, depth] = extentsOf(k.shape, 3);
    const data = new Float64Array(elementCount(shape));
    for (let r = 0; r < rows; r++) {
      const at = queryRow === undefined ? r : indexAt(queryRow, r, queries ?? 0);
      const keys = keysOf(mask, at, all, { window, chunk }, distance);
      for (let h = 0; h < heads; h++) {
        const g = Math.floor((h * groups) / heads);
        const slope = slopes?.data[h] ?? 0;
        const scores = keys.map(({ row, bias, distance = 0, position = 0 }) => {
          let dot = 0;
          for (let i = 0; i < depth; i++)
            dot += q.data[(at * heads + h) * depth + i]! * k.data[(row * groups + g) * depth + i]!;
          for (let i = 0; i < more; i++)
            dot += tail!.q.data[(at * heads + h) * more + i]! * tail!.k.data[row * more + i]!;
          return (
            softCap(dot * scale * (scales?.k.data[row * groups + g] ?? 1), cap) +
            slopeTerm(slope, { distance, position }, slopeFactor) +
            bias
          );
        });
        const own = sink?.data[h] ?? -Infinity;
        const top = scores.reduce((a, b) => Math.max(a, b), own);
        const weights = scores.map((s) => Math.exp(s - top));
        const total = weights.reduce((a, b) => a + b, sink === undefined ? 0 : Math.exp(own - top));
        weights.forEach((p, t) => {
          if (p === 0) return;
          const row = keys[t]!.row * groups + g;
          const weight = (p / total) * (scales?.v.data[row] ?? 1);
          for (let i = 0; i < width; i++) data[(r * heads + h) * width + i]! += weight * v.data[row * width + i]!;
        });
      }
    }
    return { shape, data };
  },
});
