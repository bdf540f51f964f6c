/** softmax(cap(scale·q·kᵀ) + mask)·v as one op. */
import { softCap } from '../softCap.js';
import type { Dim, TensorType } from '../types.js';
import {
  TypeMismatch,
  elementCount,
  indexAt,
  numberAttribute,
  positiveAttribute,
  stringAttribute,
  type OpDef,
  type Tensor,
} from './opDef.js';

type Attributes = Parameters<typeof stringAttribute>[0];

/** How a mask is given. ir/kernel.ts (Mask) says what each kind means. */
const MASK_KINDS = ['column', 'path', 'bias'] as const;
export type MaskKind = (typeof MASK_KINDS)[number];

/** Operands of an attention node by what they are. */
export interface AttentionOperands<V> {
  readonly q: V;
  readonly k: V;
  readonly v: V;
  /** Where keys and values are codes: what those of each row and head are to be multiplied by. */
  readonly scales: { readonly k: V; readonly v: V } | undefined;
  /** `column`: subtreeEnd, and position under a window; `path`: begin, position and key; `bias`: the bias. */
  readonly mask: readonly V[];
  readonly queryRow: V | undefined;
}

const MASK_OPERANDS: Readonly<Record<MaskKind, number>> = { column: 1, path: 3, bias: 1 };

/** The width of the window, in keys; undefined without one. Throws TypeMismatch if it is invalid. */
export function windowOf({ mask, window }: Attributes): number | undefined {
  if (window === undefined) return undefined;
  if (typeof window === 'number' && Number.isSafeInteger(window) && window > 0 && mask !== 'bias') return window;
  throw new TypeMismatch("attribute 'window' must be a whole number above 0; a mask 'bias' has it inside");
}

/** Whether keys and values are codes, with scales of their own. */
export const isScaled = ({ scaled }: Attributes): boolean => scaled === true;

const isMaskKind = (text: string): text is MaskKind => MASK_KINDS.some((kind) => kind === text);

/** The operands of a node with these attributes. Throws TypeMismatch for an unknown mask. */
export function attentionOperands<V>(operands: readonly V[], attributes: Attributes): AttentionOperands<V> {
  const kind = stringAttribute(attributes, 'mask');
  if (!isMaskKind(kind)) throw new TypeMismatch(`'${kind}' is no mask: ${MASK_KINDS.join(', ')}`);
  const first = isScaled(attributes) ? 5 : 3;
  const count = MASK_OPERANDS[kind] + (kind === 'column' && windowOf(attributes) !== undefined ? 1 : 0);
  if (operands.length !== first + count && operands.length !== first + 1 + count)
    throw new TypeMismatch(`attention with mask '${kind}' takes ${first + count} or ${first + 1 + count} operands`);
  const [q, k, v, kScale, vScale] = operands as readonly [V, V, V, V, V];
  const scales = first === 5 ? { k: kScale, v: vScale } : undefined;
  return { q, k, v, scales, mask: operands.slice(first, first + count), queryRow: operands[first + count] };
}

const isVector = (type: TensorType, rows: Dim): boolean =>
  type.dtype === 'i32' && type.shape.length === 1 && type.shape[0] === rows;

function requireScales({ dtype, shape }: TensorType, { shape: [rows, heads] }: TensorType): void {
  if (dtype !== 'f32' || shape.length !== 2 || shape[0] !== rows || shape[1] !== heads)
    throw new TypeMismatch(`scales of keys and values must be f32[${String(rows)}, ${String(heads)}]`);
}

/** Whether the operands of a mask have the right types, with these rows of queries and keys. */
function masksMatch(kind: string, mask: readonly TensorType[], queries: Dim, keys: Dim): boolean {
  if (kind === 'column') return mask.every((type) => isVector(type, keys));
  if (kind === 'bias')
    return mask[0]!.shape.length === 2 && mask[0]!.shape[0] === queries && mask[0]!.shape[1] === keys;
  const [begin, position, key] = mask as readonly [TensorType, TensorType, TensorType];
  return isVector(begin, queries) && isVector(position, queries) && isVector(key, key.shape[0]!);
}

/** Whether query `at` sees key `t`, and at which row of k and v that key is; for `bias` also what is added. */
function keysOf(
  kind: string,
  mask: readonly Tensor[],
  at: number,
  rows: number,
  window = Infinity,
): readonly { readonly row: number; readonly bias: number }[] {
  const all = (count: number): readonly number[] => Array.from({ length: count }, (_, t) => t);
  if (kind === 'bias') return all(rows).map((row) => ({ row, bias: mask[0]!.data[at * rows + row]! }));
  if (kind === 'column')
    return all(rows)
      .filter((t) => t <= at && at < mask[0]!.data[t]!)
      .filter((t) => window === Infinity || mask[1]!.data[at]! - mask[1]!.data[t]! < window)
      .map((row) => ({ row, bias: 0 }));
  const [begin, position, key] = mask as readonly [Tensor, Tensor, Tensor];
  const first = indexAt(begin, at, key.shape[0]!);
  return all(position.data[at]! + 1)
    .filter((i) => first + i < key.shape[0]! && position.data[at]! - i < window)
    .map((i) => ({ row: indexAt(key, first + i, rows), bias: 0 }));
}

export const attention: OpDef = {
  summary:
    'attention(q[Q, h, d], k[T, g, d], v[T, g, d], kScale?, vScale?, mask…, queryRow?) ' +
    '{scale, mask, cap?, window?, scaled?}: softmax(s + mask)·v, where s = scale·q·kᵀ or cap·tanh(scale·q·kᵀ / cap); ' +
    "mask 'bias': f32[Q, T] added; 'column': i32[T] subtreeEnd, key k visible to query q when k <= q < " +
    "subtreeEnd[k]; 'path': i32[Q] begin, i32[Q] position, i32[C] key, query q sees rows key[begin[q] + i] for i " +
    'from 0 to position[q]. With a window, a query sees the last keys of its path, so many by position; a column ' +
    'mask then has i32[T] position after subtreeEnd. If scaled, row t of head g of k and v is to be multiplied by ' +
    'f32[T, g] kScale and vScale',
  fuse: 'opaque',
  attributes: { scale: 'number', mask: 'string' },
  optional: { cap: 'number', window: 'number', scaled: 'boolean' },
  arity: [4, 9],
  infer: (operands, attributes) => {
    const kind = stringAttribute(attributes, 'mask');
    numberAttribute(attributes, 'scale');
    positiveAttribute(attributes, 'cap');
    const { q, k, v, scales, mask, queryRow } = attentionOperands(operands, attributes);
    windowOf(attributes);
    if (q.shape.length !== 3 || k.shape.length !== 3 || v.shape.length !== 3)
      throw new TypeMismatch('attention needs q, k and v of rank 3');
    const [heads, kvHeads] = [q.shape[1], k.shape[1]];
    if (typeof heads !== 'number' || typeof kvHeads !== 'number' || heads % kvHeads !== 0)
      throw new TypeMismatch(`${String(heads)} query heads cannot be shared evenly among ${String(kvHeads)} key heads`);
    if (q.shape[2] !== k.shape[2] || k.shape[0] !== v.shape[0] || kvHeads !== v.shape[1])
      throw new TypeMismatch('attention: the shapes of q, k and v do not match');
    if (scales !== undefined) [scales.k, scales.v].forEach((scale) => requireScales(scale, k));
    if (!masksMatch(kind, mask, q.shape[0]!, k.shape[0]!))
      throw new TypeMismatch(`an operand of mask '${kind}' has the wrong type`);
    if (queryRow !== undefined && (queryRow.dtype !== 'i32' || queryRow.shape.length !== 1))
      throw new TypeMismatch('queryRow must be i32[R]');
    return { dtype: 'f32', shape: [queryRow === undefined ? q.shape[0]! : queryRow.shape[0]!, heads, v.shape[2]!] };
  },
  evaluate: (operands, attributes, shape) => {
    const scale = numberAttribute(attributes, 'scale');
    const cap = positiveAttribute(attributes, 'cap');
    const kind = stringAttribute(attributes, 'mask');
    const { q, k, v, scales, mask, queryRow } = attentionOperands(operands, attributes);
    const [rows, heads, width] = [shape[0]!, shape[1]!, shape[2]!];
    const [all, groups, depth] = [k.shape[0]!, k.shape[1]!, k.shape[2]!];
    const data = new Float64Array(elementCount(shape));
    for (let r = 0; r < rows; r++) {
      const at = queryRow === undefined ? r : indexAt(queryRow, r, q.shape[0]!);
      const keys = keysOf(kind, mask, at, all, windowOf(attributes));
      for (let h = 0; h < heads; h++) {
        const g = Math.floor((h * groups) / heads);
        const scores = keys.map(({ row, bias }) => {
          let dot = 0;
          for (let i = 0; i < depth; i++)
            dot += q.data[(at * heads + h) * depth + i]! * k.data[(row * groups + g) * depth + i]!;
          return softCap(dot * scale * (scales?.k.data[row * groups + g] ?? 1), cap) + bias;
        });
        const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
        const weights = scores.map((s) => Math.exp(s - top));
        const total = weights.reduce((a, b) => a + b, 0);
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
};
