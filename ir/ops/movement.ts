/** Ops that move elements without changing them, and ops that create constant vectors. */
import { gumbel } from '../gumbel.js';
import { orderProblem, storedRow } from '../rotaryOrder.js';
import { extentsOf, printType, sameType, type Dim } from '../types.js';
import { TypeMismatch, elementCount, forEachIndex, indexAt, slotAt, strides, op } from './opDef.js';

/** Product of the fixed extents, and the multiset of symbols. Two shapes have equally many elements if these agree. */
function sizeKey(shape: readonly Dim[]): string {
  let fixed = 1;
  const symbols: string[] = [];
  for (const dim of shape) {
    if (typeof dim === 'number') fixed *= dim;
    else symbols.push(dim);
  }
  return `${symbols.sort().join('·')}·${fixed}`;
}

export const MOVEMENTS = {
  reshape: op({
    summary: 'reshape(x) {shape}: the same elements in row-major order under another shape',
    fuse: 'view',
    operands: { x: 'one' },
    attributes: { shape: 'dims' },
    infer: ({ x }, { shape }) => {
      if (sizeKey(shape) !== sizeKey(x.shape))
        throw new TypeMismatch(`reshape: [${x.shape.join(', ')}] and [${shape.join(', ')}] differ in size`);
      return { dtype: x.dtype, shape };
    },
    evaluate: ({ x }, _, shape) => ({ shape, data: x.data }),
  }),
  transpose: op({
    summary: 'transpose(x) {order}: result axis i is axis order[i] of x',
    fuse: 'movement',
    operands: { x: 'one' },
    attributes: { order: 'numbers' },
    infer: ({ x }, { order }) => {
      if ([...order].sort((a, b) => a - b).some((axis, i) => axis !== i) || order.length !== x.shape.length) {
        throw new TypeMismatch(`transpose: [${order.join(', ')}] is not an order of ${x.shape.length} axes`);
      }
      return { dtype: x.dtype, shape: order.map((axis) => x.shape[axis]!) };
    },
    evaluate: ({ x }, { order }, shape) => {
      const from = strides(x.shape);
      const data = new Float64Array(x.data.length);
      forEachIndex(shape, (flat, index) => {
        let at = 0;
        for (let axis = 0; axis < order.length; axis++) at += index[axis]! * from[order[axis]!]!;
        data[flat] = x.data[at]!;
      });
      return { shape, data };
    },
  }),
  pair_halves: op({
    summary:
      'pair_halves(w[N, …]) {headDim, rotated, interleaved}: rows of each head in the order of ir/rotaryOrder, pairs ' +
      'that turn together half a head apart',
    fuse: 'movement',
    operands: { x: 'one' },
    attributes: { headDim: 'number', rotated: 'number', interleaved: 'boolean' },
    infer: ({ x }, order) => {
      const [rows] = x.shape;
      const wrong = typeof rows === 'number' ? orderProblem(order, rows) : 'it needs fixed rows';
      if (wrong !== undefined) throw new TypeMismatch(`pair_halves: ${wrong}`);
      return x;
    },
    evaluate: ({ x }, order, shape) => {
      const width = elementCount(shape.slice(1));
      const data = x.data.map(
        (_, flat) => x.data[storedRow(order, Math.floor(flat / width)) * width + (flat % width)]!,
      );
      return { shape, data };
    },
  }),
  repeat: op({
    summary: 'repeat(x) {times}: every slice of axis 0 `times` times in a row (key heads that query heads share)',
    fuse: 'movement',
    operands: { x: 'one' },
    attributes: { times: 'number' },
    infer: ({ x }, { times }) => {
      const [first, ...rest] = x.shape;
      if (typeof first !== 'number') throw new TypeMismatch('repeat needs a fixed extent on axis 0');
      if (!Number.isInteger(times) || times < 1)
        throw new TypeMismatch(`repeat: ${times} times is not a whole number, at least 1`);
      return { dtype: x.dtype, shape: [first * times, ...rest] };
    },
    evaluate: ({ x }, { times }, shape) => {
      const [count = 1] = shape;
      const width = (x.data.length * times) / count;
      const data = new Float64Array(elementCount(shape));
      for (let i = 0; i < count; i++) {
        const from = Math.floor(i / times) * width;
        data.set(x.data.subarray(from, from + width), i * width);
      }
      return { shape, data };
    },
  }),
  rotate_half: op({
    summary: 'rotate_half(x[…, d]): (−x[d/2…], x[…d/2]) (RoFormer, arXiv:2104.09864, in the split-half layout)',
    fuse: 'rotation',
    operands: { x: 'one' },
    infer: ({ x }) => {
      const last = x.shape.at(-1);
      if (typeof last !== 'number' || last % 2 !== 0)
        throw new TypeMismatch(`rotate_half needs an even last extent, got ${String(last)}`);
      return x;
    },
    evaluate: ({ x }, _, shape) => {
      const d = shape.at(-1)!;
      const data = x.data.map((_v, flat) => {
        const i = flat % d;
        return i < d / 2 ? -x.data[flat + d / 2]! : x.data[flat - d / 2]!;
      });
      return { shape, data };
    },
  }),
  gather_rows: op({
    summary: 'gather_rows(x[N, …], index[M]): x[index[i], …] (embedding lookup, scored rows)',
    fuse: 'gather',
    operands: { x: 'one', index: 'one' },
    infer: ({ x, index }) => {
      const [count, ...more] = index.shape;
      if (x.shape.length < 1 || count === undefined || more.length > 0 || index.dtype !== 'i32')
        throw new TypeMismatch('gather_rows needs x[N, …] and an i32[M] index');
      return { dtype: x.dtype, shape: [count, ...x.shape.slice(1)] };
    },
    evaluate: ({ x, index }, _, shape) => {
      const [[count = 0], [rows = 0, ...columns]] = [shape, x.shape];
      const width = elementCount(columns);
      const data = new Float64Array(elementCount(shape));
      for (let i = 0; i < count; i++) {
        const row = indexAt(index, i, rows);
        data.set(x.data.subarray(row * width, (row + 1) * width), i * width);
      }
      return { shape, data };
    },
  }),
  write_rows: op({
    summary:
      'write_rows(x[N, …], rows[M, …], slot[M]): x with row slot[i] = rows[i]; −1 writes nothing, no slot comes twice',
    fuse: 'write',
    operands: { x: 'one', rows: 'one', slot: 'one' },
    infer: ({ x, rows, slot }) => {
      const [count, ...more] = slot.shape;
      if (x.shape.length < 1 || count === undefined || more.length > 0 || slot.dtype !== 'i32')
        throw new TypeMismatch('write_rows needs x[N, …] and an i32[M] slot');
      const wanted = { dtype: x.dtype, shape: [count, ...x.shape.slice(1)] };
      if (!sameType(rows, wanted))
        throw new TypeMismatch(`write_rows needs rows that are ${printType(wanted)}, not ${printType(rows)}`);
      return x;
    },
    evaluate: ({ x, rows, slot }, _, shape) => {
      const [all = 0, ...columns] = shape;
      const width = elementCount(columns);
      const data = x.data.slice();
      const written = new Set<number>();
      slot.data.forEach((_v, i) => {
        const row = slotAt(slot, i, all);
        if (row === undefined) return;
        if (written.has(row)) throw new Error(`slot ${row} at position ${i} comes twice`);
        written.add(row);
        data.set(rows.data.subarray(i * width, (i + 1) * width), row * width);
      });
      return { shape, data };
    },
  }),
  gather_last: op({
    summary: 'gather_last(x[M, N], index[M]): [M], x[i, index[i]]',
    fuse: 'movement',
    operands: { x: 'one', index: 'one' },
    infer: ({ x, index }) => {
      if (x.shape.length !== 2 || index.shape.length !== 1 || index.shape[0] !== x.shape[0] || index.dtype !== 'i32') {
        throw new TypeMismatch('gather_last needs x[M, N] and an i32[M] index');
      }
      return { dtype: x.dtype, shape: index.shape };
    },
    evaluate: ({ x, index }, _, shape) => {
      const [, width] = extentsOf(x.shape, 2);
      return {
        shape,
        data: Float64Array.from(index.data, (_v, i) => x.data[i * width + indexAt(index, i, width)]!),
      };
    },
  }),
  iota: op({
    summary: 'iota {size}: i32[size], 0, 1, 2, …',
    fuse: 'index',
    operands: {},
    attributes: { size: 'dims' },
    infer: (_, { size }) => ({ dtype: 'i32', shape: size }),
    evaluate: (_, __, shape) => ({ shape, data: Float64Array.from({ length: elementCount(shape) }, (_v, i) => i) }),
  }),
  gumbel: op({
    summary:
      'gumbel(low[R], high[R], ids?[size]) {size}: f32[R, size], noise of each token under the key of its row ' +
      '(ir/gumbel); column j stands for token j, or ids[j]',
    fuse: 'movement',
    operands: { low: 'one', high: 'one', ids: 'optional' },
    attributes: { size: 'number' },
    infer: ({ low, high, ids }, { size }) => {
      if (!Number.isInteger(size) || size < 1)
        throw new TypeMismatch(`gumbel: ${size} tokens is not a whole number, at least 1`);
      if (low.dtype !== 'i32' || low.shape.length !== 1 || !sameType(low, high))
        throw new TypeMismatch('gumbel needs two halves of keys, i32[R]');
      if (ids !== undefined && (ids.dtype !== 'f32' || ids.shape.join() !== String(size)))
        throw new TypeMismatch(`gumbel needs a token for each column, f32[${size}]`);
      return { dtype: 'f32', shape: [...low.shape, size] };
    },
    evaluate: ({ low, high, ids }, { size }, shape) => ({
      shape,
      data: Float64Array.from({ length: elementCount(shape) }, (_v, flat) => {
        const row = Math.floor(flat / size);
        const column = flat % size;
        return gumbel({ low: low.data[row]!, high: high.data[row]! }, ids === undefined ? column : ids.data[column]!);
      }),
    }),
  }),
  vector: op({
    summary: 'vector {label, values}: f32[n] — a literal vector (rotary frequencies)',
    fuse: 'literal',
    operands: {},
    attributes: { label: 'string', values: 'numbers' },
    infer: (_, attributes) => {
      attributes.label;
      return { dtype: 'f32', shape: [attributes.values.length] };
    },
    evaluate: (_, attributes, shape) => ({ shape, data: Float64Array.from(attributes.values) }),
  }),
};
