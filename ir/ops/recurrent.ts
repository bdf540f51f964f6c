/** Ops of recurrent layers: which token is before another on its path, and the states that tokens leave behind. */
import { MAX_BACK, subtreeEnds, tokensBefore, type TokenPaths } from '../paths.js';
import { SCAN_RULES, type ScanData, type ScanTarget, scanRows } from '../scan.js';
import { type Dim, extentsOf, isFloat, isSymbol, type TensorType } from '../types.js';
import {
  type Attributes,
  checkPositive,
  elementCount,
  indexAt,
  slotAt,
  type Tensor,
  op,
  type TypedAttributes,
  type TypedOperands,
  TypeMismatch,
} from './opDef.js';

const when = (test: (attributes: Attributes) => boolean): { readonly when: typeof test } => ({ when: test });

const PATH_OPERANDS = {
  subtreeEnd: when(({ mask }) => mask === 'column'),
  begin: when(({ mask }) => mask === 'path'),
  position: when(({ mask }) => mask === 'path'),
  key: when(({ mask }) => mask === 'path'),
} as const;
const PATH_ATTRIBUTES = { mask: ['column', 'path'], back: 'number' } as const;

/** Which tokens come before others, by an op's operands. */
export function pathsOf<V>(
  operands: TypedOperands<typeof PATH_OPERANDS, V>,
  { mask }: Pick<TypedAttributes<typeof PATH_ATTRIBUTES, object>, 'mask'>,
): TokenPaths<V> {
  const given = (name: keyof typeof PATH_OPERANDS): V => {
    const value = operands[name];
    if (value === undefined) throw new TypeMismatch(`token_before with mask '${mask}' needs ${name}`);
    return value;
  };
  return mask === 'column'
    ? { kind: mask, subtreeEnd: given('subtreeEnd') }
    : { kind: mask, begin: given('begin'), position: given('position'), key: given('key') };
}

function rowVector(what: string, type: TensorType): Dim {
  const [rows, ...more] = type.shape;
  if (type.dtype !== 'i32' || rows === undefined || more.length > 0) throw new TypeMismatch(`${what} must be i32[T]`);
  return rows;
}

/** The last two extents of [T, heads, width], which are fixed. */
function headed(name: string, { shape }: TensorType, rows?: Dim): readonly [rows: Dim, heads: number, width: number] {
  const [first, heads, width] = shape;
  const isFixed = first !== undefined && heads !== undefined && width !== undefined && shape.length === 3;
  if (!isFixed || isSymbol(heads) || isSymbol(width) || (rows !== undefined && first !== rows))
    throw new TypeMismatch(`scan: ${name} is [${shape.join(', ')}], it must be [T, heads, width]`);
  return [first, heads, width];
}

const perHead = (name: string, { dtype, shape }: TensorType, rows: Dim, heads: number): void => {
  if (dtype !== 'f32' || shape.length !== 2 || shape[0] !== rows || shape[1] !== heads)
    throw new TypeMismatch(`scan: ${name} must be f32[${String(rows)}, ${heads}]`);
};

/** Sizes of a scan's heads. Throws TypeMismatch where its operands do not fit. */
function scanSizes({
  k,
  v,
  decay,
  beta,
  before,
  end,
}: Readonly<Record<'k' | 'v' | 'decay' | 'beta' | 'before' | 'end', TensorType>>) {
  const [rows, keyHeads, keyDim] = headed('k', k);
  const [, heads, valueDim] = headed('v', v, rows);
  if (heads % keyHeads !== 0)
    throw new TypeMismatch(`scan: ${heads} heads cannot share ${keyHeads} heads of keys evenly`);
  perHead('decay', decay, rows, heads);
  perHead('beta', beta, rows, heads);
  if (rowVector('rows before', before) !== rows || rowVector('ends', end) !== rows)
    throw new TypeMismatch('scan: rows before and ends are those of the tokens');
  return { rows, keyHeads, heads, keyDim, valueDim };
}

type ScanSizes = ReturnType<typeof scanSizes>;

/** Throws TypeMismatch unless `state` has rows of these heads' states. */
function checkState({ dtype, shape }: TensorType, { heads, keyDim, valueDim }: ScanSizes): void {
  if (dtype !== 'f32' || shape.length !== 4 || shape.slice(1).join() !== [heads, keyDim, valueDim].join())
    throw new TypeMismatch(`scan: states must be f32[N, ${heads}, ${keyDim}, ${valueDim}]`);
}

/** What updates a state, token by token. */
const UPDATES = { k: 'one', v: 'one', decay: 'one', beta: 'one', before: 'one', end: 'one' } as const;

/** The states behind row `from[row]`, −1 for none. */
const statesAt =
  (state: Tensor, from: Tensor): NonNullable<ScanTarget['first']> =>
  (row) => {
    const [all = 0, ...more] = state.shape;
    const [at, size] = [slotAt(from, row, all), elementCount(more)];
    return at === undefined ? undefined : state.data.subarray(at * size, (at + 1) * size);
  };

export const RECURRENT = {
  token_before: op({
    summary:
      "token_before(subtreeEnd[T]) {mask: 'column', back} or (begin[T], position[T], key[C]) {mask: 'path', back}: " +
      'i32[T], the row of the token that is `back` before each on its path; its own row where there is none. ' +
      'Tokens lie in depth-first order (ir/paths)',
    fuse: 'opaque',
    operands: PATH_OPERANDS,
    attributes: PATH_ATTRIBUTES,
    infer: (operands, attributes) => {
      const { back } = attributes;
      if (!Number.isInteger(back) || back < 0 || back > MAX_BACK)
        throw new TypeMismatch(`token_before: ${back} is not a number of tokens from 0 to ${MAX_BACK}`);
      const paths = pathsOf<TensorType>(operands, attributes);
      const rows = rowVector('ends or positions', paths.kind === 'column' ? paths.subtreeEnd : paths.position);
      if (paths.kind === 'path') {
        rowVector('keys', paths.key);
        if (rowVector('beginnings', paths.begin) !== rows) throw new TypeMismatch('begin and position differ in rows');
      }
      return { dtype: 'i32', shape: [rows] };
    },
    evaluate: (operands, attributes, shape) => {
      const paths = pathsOf(operands, attributes);
      const data =
        paths.kind === 'column'
          ? ({ kind: 'column', subtreeEnd: paths.subtreeEnd.data } as const)
          : ({
              kind: 'path',
              begin: paths.begin.data,
              position: paths.position.data,
              key: paths.key.data,
            } as const);
      return { shape, data: tokensBefore(data, attributes.back) };
    },
  }),
  subtree_end: op({
    summary:
      'subtree_end(position[T]): i32[T], the first row behind each that is not below it: of no larger position. ' +
      'Tokens lie in depth-first order',
    fuse: 'opaque',
    operands: { position: 'one' },
    infer: ({ position }) => ({ dtype: 'i32', shape: [rowVector('positions', position)] }),
    evaluate: ({ position }, _, shape) => ({ shape, data: subtreeEnds(position.data) }),
  }),
  scan: op({
    summary:
      'scan(q[T, g, d], k[T, g, d], v[T, h, e], decay f32[T, h], beta f32[T, h], before[T], end[T], state, from[T], ' +
      'skip?[h]) {rule, scale?, epsilon?, kept?, takesTurns?}: f32[T, h, e], skip·v + Sᵀq of the state S[d, e] ' +
      'behind each token: ' +
      'that behind row before[t] (where that is t: zero, or row from[t] of state f32[N, h, d, e] if kept, zero for ' +
      "−1) after S ← decay·S; then with rule 'add' S ← S + k·(beta·v)ᵀ, with 'delta' " +
      'S ← S + k·(beta·(v − Sᵀk))ᵀ (arXiv:2412.06464, arXiv:2405.21060). Head h has q and k of head ⌊h·g/heads⌋, or ' +
      'of head h mod g if takesTurns. ' +
      'With epsilon, q and k are divided by √(Σx² + epsilon) first; q is multiplied by scale. end: where the rows ' +
      'below each end',
    fuse: 'opaque',
    operands: {
      q: 'one',
      ...UPDATES,
      state: when(({ kept }) => kept === true),
      from: when(({ kept }) => kept === true),
      skip: 'optional',
    },
    attributes: { rule: SCAN_RULES },
    optional: { scale: 'number', epsilon: 'number', kept: 'boolean', takesTurns: 'boolean' },
    infer: ({ q, skip, state, from, ...others }, { scale, epsilon }) => {
      checkPositive('scale', scale);
      checkPositive('epsilon', epsilon);
      const sizes = scanSizes(others);
      const { rows, keyHeads, keyDim, heads, valueDim } = sizes;
      const [, sameHeads, sameDim] = headed('q', q, rows);
      if (sameHeads !== keyHeads || sameDim !== keyDim) throw new TypeMismatch('scan: q and k differ in shape');
      if (skip !== undefined && !(isFloat(skip.dtype) && skip.shape.join() === String(heads)))
        throw new TypeMismatch(`scan: skip must have ${heads} numbers`);
      if (state !== undefined) checkState(state, sizes);
      if (from !== undefined && rowVector('rows of states', from) !== rows)
        throw new TypeMismatch('scan: each token has a row of states');
      return { dtype: 'f32', shape: [rows, heads, valueDim] };
    },
    evaluate: ({ q, k, v, decay, beta, before, skip, state, from }, { rule, scale, epsilon, takesTurns }, shape) => {
      const [rows, heads, valueDim] = extentsOf(shape, 3);
      const [, keyHeads, keyDim] = extentsOf(q.shape, 3);
      const data = new Float64Array(elementCount(shape));
      const shared = { rule, keyDim, valueDim, heads, keyHeads, scale, epsilon, takesTurns };
      scanRows(
        { ...shared, q: q.data, k: k.data, v: v.data, decay: decay.data, beta: beta.data, skip: skip?.data },
        rows,
        {
          before: (row) => indexAt(before, row, row + 1),
          out: data,
          ...(state === undefined || from === undefined ? {} : { first: statesAt(state, from) }),
        },
      );
      return { shape, data };
    },
  }),
  scan_state: op({
    summary:
      'scan_state(state f32[N, h, d, e], k, v, decay, beta, before, end, from[T], to[T], also[T]) ' +
      '{rule, epsilon?, takesTurns?}: ' +
      'state, where rows to[t] and also[t] are S behind token t, as scan has it (−1: none; no row comes twice)',
    fuse: 'write',
    operands: {
      state: 'one',
      ...UPDATES,
      from: 'one',
      to: 'one',
      also: 'one',
    },
    attributes: { rule: SCAN_RULES },
    optional: { epsilon: 'number', takesTurns: 'boolean' },
    infer: ({ state, from, to, also, ...others }, { epsilon }) => {
      checkPositive('epsilon', epsilon);
      const sizes = scanSizes(others);
      checkState(state, sizes);
      for (const each of [from, to, also])
        if (rowVector('rows of states', each) !== sizes.rows)
          throw new TypeMismatch('scan_state: each token has rows of states');
      return state;
    },
    evaluate: ({ state, k, v, decay, beta, before, from, to, also }, { rule, epsilon, takesTurns }, shape) => {
      const [rows, keyHeads, keyDim] = extentsOf(k.shape, 3);
      const [, heads, valueDim] = extentsOf(v.shape, 3);
      const [all = 0] = shape;
      const data = state.data.slice();
      const size = keyDim * valueDim;
      const written = new Set<number>();
      const numbers: ScanData = {
        ...{
          rule,
          keyDim,
          valueDim,
          heads,
          keyHeads,
          epsilon,
          scale: undefined,
          skip: undefined,
          takesTurns,
        },
        ...{ q: k.data, k: k.data, v: v.data, decay: decay.data, beta: beta.data },
      };
      scanRows(numbers, rows, {
        before: (row) => indexAt(before, row, row + 1),
        first: statesAt(state, from),
        keep: (row, head, own) => {
          for (const slots of [to, also]) {
            const at = slotAt(slots, row, all);
            if (at === undefined) continue;
            if (head === 0 && written.has(at)) throw new Error(`row ${at} of the states comes twice`);
            written.add(at);
            data.set(own, (at * heads + head) * size);
          }
        },
      });
      return { shape, data };
    },
  }),
};

/** Ops of one kernel, which takes states from token to token. */
export const SCAN_OPS = ['scan', 'scan_state'] as const;
export type ScanOp = (typeof SCAN_OPS)[number];

/** Ops of one kernel, which finds the tokens before others. */
export const LINK_OPS = ['token_before', 'subtree_end'] as const;
export type LinkOp = (typeof LINK_OPS)[number];
