/** Ops that move elements without changing them, and ops that create constant vectors. */
import { gumbel } from '../gumbel.js';
import { orderProblem, storedRow, type RotaryOrder } from '../rotaryOrder.js';
import { printType, sameType, type Dim } from '../types.js';
import {
  TypeMismatch,
  dimsAttribute,
  elementCount,
  forEachIndex,
  indexAt,
  slotAt,
  numberAttribute,
  numbersAttribute,
  stringAttribute,
  strides,
  type OpDef,
} from './opDef.js';

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

/** The order that a `pair_halves` node puts rows into. */
export const rotaryOrderOf = (attributes: Parameters<typeof numberAttribute>[0]): RotaryOrder => ({
  headDim: numberAttribute(attributes, 'headDim'),
  rotated: numberAttribute(attributes, 'rotated'),
  interleaved: attributes['interleaved'] === true,
});

export const MOVEMENTS = {
  reshape: {
    summary: 'reshape(x) {shape}: the same elements in row-major order under another shape',
    fuse: 'view',
    attributes: { shape: 'dims' },
    arity: [1, 1],
    infer: ([x], attributes) => {
      const shape = dimsAttribute(attributes, 'shape');
      if (sizeKey(shape) !== sizeKey(x!.shape))
        throw new TypeMismatch(`reshape: [${x!.shape.join(', ')}] and [${shape.join(', ')}] differ in size`);
      return { dtype: x!.dtype, shape };
    },
    evaluate: ([x], _, shape) => ({ shape, data: x!.data }),
  },
  transpose: {
    summary: 'transpose(x) {order}: result axis i is axis order[i] of x',
    fuse: 'movement',
    attributes: { order: 'numbers' },
    arity: [1, 1],
    infer: ([x], attributes) => {
      const order = numbersAttribute(attributes, 'order');
      if ([...order].sort((a, b) => a - b).some((axis, i) => axis !== i) || order.length !== x!.shape.length) {
        throw new TypeMismatch(`transpose: [${order.join(', ')}] is not an order of ${x!.shape.length} axes`);
      }
      return { dtype: x!.dtype, shape: order.map((axis) => x!.shape[axis]!) };
    },
    evaluate: ([x], attributes, shape) => {
      const order = numbersAttribute(attributes, 'order');
      const from = strides(x!.shape);
      const data = new Float64Array(x!.data.length);
      forEachIndex(shape, (flat, index) => {
        let at = 0;
        for (let axis = 0; axis < order.length; axis++) at += index[axis]! * from[order[axis]!]!;
        data[flat] = x!.data[at]!;
      });
      return { shape, data };
    },
  },
  pair_halves: {
    summary:
      'pair_halves(w[N, …]) {headDim, rotated, interleaved}: rows of each head in the order of ir/rotaryOrder, pairs ' +
      'that turn together half a head apart',
    fuse: 'movement',
    attributes: { headDim: 'number', rotated: 'number', interleaved: 'boolean' },
    arity: [1, 1],
    infer: ([x], attributes) => {
      const rows = x!.shape[0];
      const wrong = typeof rows === 'number' ? orderProblem(rotaryOrderOf(attributes), rows) : 'it needs fixed rows';
      if (wrong !== undefined) throw new TypeMismatch(`pair_halves: ${wrong}`);
      return x!;
    },
    evaluate: ([x], attributes, shape) => {
      const order = rotaryOrderOf(attributes);
      const width = elementCount(shape.slice(1));
      const data = x!.data.map(
        (_, flat) => x!.data[storedRow(order, Math.floor(flat / width)) * width + (flat % width)]!,
      );
      return { shape, data };
    },
  },
  repeat: {
    summary: 'repeat(x) {times}: every slice of axis 0 `times` times in a row (key heads that query heads share)',
    fuse: 'movement',
    attributes: { times: 'number' },
    arity: [1, 1],
    infer: ([x], attributes) => {
      const first = x!.shape[0];
      if (typeof first !== 'number') throw new TypeMismatch('repeat needs a fixed extent on axis 0');
      const times = numberAttribute(attributes, 'times');
      if (!Number.isInteger(times) || times < 1)
        throw new TypeMismatch(`repeat: ${times} times is not a whole number, at least 1`);
      return { dtype: x!.dtype, shape: [first * times, ...x!.shape.slice(1)] };
    },
    evaluate: ([x], attributes, shape) => {
      const times = numberAttribute(attributes, 'times');
      const width = x!.data.length / x!.shape[0]!;
      const data = new Float64Array(elementCount(shape));
      for (let i = 0; i < shape[0]!; i++) {
        const from = Math.floor(i / times) * width;
        data.set(x!.data.subarray(from, from + width), i * width);
      }
      return { shape, data };
    },
  },
  rotate_half: {
    summary: 'rotate_half(x[…, d]): (−x[d/2…], x[…d/2]) (RoFormer, arXiv:2104.09864, in the split-half layout)',
    fuse: 'rotation',
    attributes: {},
    arity: [1, 1],
    infer: ([x]) => {
      const last = x!.shape.at(-1);
      if (typeof last !== 'number' || last % 2 !== 0)
        throw new TypeMismatch(`rotate_half needs an even last extent, got ${String(last)}`);
      return x!;
    },
    evaluate: ([x], _, shape) => {
      const d = shape.at(-1)!;
      const data = x!.data.map((_v, flat) => {
        const i = flat % d;
        return i < d / 2 ? -x!.data[flat + d / 2]! : x!.data[flat - d / 2]!;
      });
      return { shape, data };
    },
  },
  gather_rows: {
    summary: 'gather_rows(x[N, …], index[M]): x[index[i], …] (embedding lookup, scored rows)',
    fuse: 'gather',
    attributes: {},
    arity: [2, 2],
    infer: ([x, index]) => {
      if (x!.shape.length < 1 || index!.shape.length !== 1 || index!.dtype !== 'i32')
        throw new TypeMismatch('gather_rows needs x[N, …] and an i32[M] index');
      return { dtype: x!.dtype, shape: [index!.shape[0]!, ...x!.shape.slice(1)] };
    },
    evaluate: ([x, index], _, shape) => {
      const width = elementCount(x!.shape.slice(1));
      const data = new Float64Array(elementCount(shape));
      for (let i = 0; i < shape[0]!; i++) {
        const row = indexAt(index!, i, x!.shape[0]!);
        data.set(x!.data.subarray(row * width, (row + 1) * width), i * width);
      }
      return { shape, data };
    },
  },
  write_rows: {
    summary:
      'write_rows(x[N, …], rows[M, …], slot[M]): x with row slot[i] = rows[i]; −1 writes nothing, no slot comes twice',
    fuse: 'write',
    attributes: {},
    arity: [3, 3],
    infer: ([x, rows, slot]) => {
      if (x!.shape.length < 1 || slot!.shape.length !== 1 || slot!.dtype !== 'i32')
        throw new TypeMismatch('write_rows needs x[N, …] and an i32[M] slot');
      const wanted = { dtype: x!.dtype, shape: [slot!.shape[0]!, ...x!.shape.slice(1)] };
      if (!sameType(rows!, wanted))
        throw new TypeMismatch(`write_rows needs rows that are ${printType(wanted)}, not ${printType(rows!)}`);
      return x!;
    },
    evaluate: ([x, rows, slot], _, shape) => {
      const width = elementCount(shape.slice(1));
      const data = x!.data.slice();
      const written = new Set<number>();
      slot!.data.forEach((_v, i) => {
        const row = slotAt(slot!, i, shape[0]!);
        if (row === undefined) return;
        if (written.has(row)) throw new Error(`slot ${row} at position ${i} comes twice`);
        written.add(row);
        data.set(rows!.data.subarray(i * width, (i + 1) * width), row * width);
      });
      return { shape, data };
    },
  },
  gather_last: {
    summary: 'gather_last(x[M, N], index[M]): [M], x[i, index[i]]',
    fuse: 'movement',
    attributes: {},
    arity: [2, 2],
    infer: ([x, index]) => {
      if (
        x!.shape.length !== 2 ||
        index!.shape.length !== 1 ||
        index!.shape[0] !== x!.shape[0] ||
        index!.dtype !== 'i32'
      ) {
        throw new TypeMismatch('gather_last needs x[M, N] and an i32[M] index');
      }
      return { dtype: x!.dtype, shape: [x!.shape[0]!] };
    },
    evaluate: ([x, index], _, shape) => ({
      shape,
      data: Float64Array.from(index!.data, (_v, i) => x!.data[i * x!.shape[1]! + indexAt(index!, i, x!.shape[1]!)]!),
    }),
  },
  iota: {
    summary: 'iota {size}: i32[size], 0, 1, 2, …',
    fuse: 'index',
    attributes: { size: 'dims' },
    arity: [0, 0],
    infer: (_, attributes) => ({ dtype: 'i32', shape: dimsAttribute(attributes, 'size') }),
    evaluate: (_, __, shape) => ({ shape, data: Float64Array.from({ length: elementCount(shape) }, (_v, i) => i) }),
  },
  gumbel: {
    summary: 'gumbel(low[R], high[R]) {size}: f32[R, size], noise of each token under the key of its row (ir/gumbel)',
    fuse: 'movement',
    attributes: { size: 'number' },
    arity: [2, 2],
    infer: ([low, high], attributes) => {
      const size = numberAttribute(attributes, 'size');
      if (!Number.isInteger(size) || size < 1)
        throw new TypeMismatch(`gumbel: ${size} tokens is not a whole number, at least 1`);
      if (low!.dtype !== 'i32' || low!.shape.length !== 1 || !sameType(low!, high!))
        throw new TypeMismatch('gumbel needs two halves of keys, i32[R]');
      return { dtype: 'f32', shape: [low!.shape[0]!, size] };
    },
    evaluate: ([low, high], _, shape) => ({
      shape,
      data: Float64Array.from({ length: elementCount(shape) }, (_v, flat) => {
        const row = Math.floor(flat / shape[1]!);
        return gumbel({ low: low!.data[row]!, high: high!.data[row]! }, flat % shape[1]!);
      }),
    }),
  },
  vector: {
    summary: 'vector {label, values}: f32[n] — a literal vector (rotary frequencies)',
    fuse: 'literal',
    attributes: { label: 'string', values: 'numbers' },
    arity: [0, 0],
    infer: (_, attributes) => {
      stringAttribute(attributes, 'label');
      return { dtype: 'f32', shape: [numbersAttribute(attributes, 'values').length] };
    },
    evaluate: (_, attributes, shape) => ({ shape, data: Float64Array.from(numbersAttribute(attributes, 'values')) }),
  },
} as const satisfies Record<string, OpDef>;
