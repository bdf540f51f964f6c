/**
 * Mixtures of experts. Models write `concat` and `top_mask` among primitive ops; recognizeExperts makes the others of
 * them, which have kernels of their own. A pair is a row and one of the experts that it is sent to. Pairs in order of
 * their experts, and for one expert in order of rows, are the rows of grouped values: [rows times k, …].
 */
import { expertOrder, largestOf } from '../experts.js';
import { productName } from '../extents.js';
import { isSymbol } from '../types.js';
import { TypeMismatch, elementCount, numberAttribute, type OpDef } from './opDef.js';
import { checkRounding, roundedRows, ROUNDING } from './rounding.js';

type Attributes = Parameters<OpDef['infer']>[1];

/** A whole number of at least 1. */
function count(attributes: Attributes, name: string, most = Infinity): number {
  const value = numberAttribute(attributes, name);
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  throw new TypeMismatch(`attribute '${name}' must be a whole number from 1 to ${most}, got ${value}`);
}

/** The k of `attributes`, and the place of one of k choices. */
function slotOf(attributes: Attributes, k: number): number {
  const slot = numberAttribute(attributes, 'slot');
  if (Number.isInteger(slot) && slot >= 0 && slot < k) return slot;
  throw new TypeMismatch(`attribute 'slot' must be a whole number below ${k}, got ${slot}`);
}

/** Rows and columns of a matrix with fixed columns. */
function matrix(op: string, type: Parameters<OpDef['infer']>[0][number]): readonly [string | number, number] {
  const [rows, columns, ...rest] = type.shape;
  if (rows === undefined || typeof columns !== 'number' || rest.length > 0)
    throw new TypeMismatch(`${op} needs a matrix with fixed columns, got [${type.shape.join(', ')}]`);
  return [rows, columns];
}

const MOST = 4096;

export const EXPERTS = {
  concat: {
    summary: 'concat(m₀[…], m₁[…], …): matrices of one type one behind another, along axis 0 (rows) or 1 (columns)',
    fuse: 'movement',
    attributes: { axis: 'number' },
    arity: [1, MOST],
    infer: (operands, attributes) => {
      const axis = numberAttribute(attributes, 'axis');
      const [first, ...rest] = operands;
      const shape = [...first!.shape];
      if ((axis !== 0 && axis !== 1) || shape.length !== 2 || shape.some(isSymbol))
        throw new TypeMismatch('concat takes matrices with fixed extents, along axis 0 or 1');
      for (const { dtype, shape: own } of rest)
        if (dtype !== first!.dtype || own.length !== 2 || own[1 - axis] !== shape[1 - axis] || own.some(isSymbol))
          throw new TypeMismatch(`concat along axis ${axis}: ${dtype}[${own.join(', ')}] beside [${shape.join(', ')}]`);
      shape[axis] = operands.reduce((sum, { shape: own }) => sum + (own[axis] as number), 0);
      return { dtype: first!.dtype, shape };
    },
    evaluate: (operands, attributes, shape) => {
      const data = new Float64Array(elementCount(shape));
      const axis = numberAttribute(attributes, 'axis');
      let first = 0;
      for (const { shape: own, data: values } of operands) {
        const [rows, columns] = [own[0]!, own[1]!];
        for (let row = 0; row < rows; row++)
          data.set(
            values.subarray(row * columns, (row + 1) * columns),
            axis === 0 ? (first + row) * columns : row * shape[1]! + first,
          );
        first += own[axis]!;
      }
      return { shape, data };
    },
  },
  top_mask: {
    summary: 'top_mask(x[…, N]): f32[…, N], 1 at the k largest of a row, of equal ones the first, and 0 elsewhere',
    fuse: 'reduction',
    attributes: { k: 'number' },
    arity: [1, 1],
    infer: ([x], attributes) => {
      const width = x!.shape.at(-1);
      if (typeof width !== 'number' || x!.dtype !== 'f32') throw new TypeMismatch('top_mask needs f32[…, N]');
      count(attributes, 'k', width);
      return x!;
    },
    evaluate: ([x], attributes, shape) => {
      const width = shape.at(-1)!;
      const data = new Float64Array(elementCount(shape));
      for (let at = 0; at < data.length; at += width)
        for (const column of largestOf(x!.data.subarray(at, at + width), numberAttribute(attributes, 'k')))
          data[at + column] = 1;
      return { shape, data };
    },
  },
  top_experts: {
    summary:
      'top_experts(logits[T, E]): i32[T, k], the k largest of a row in descending order, of equal ones the first',
    fuse: 'opaque',
    attributes: { k: 'number' },
    arity: [1, 1],
    infer: ([logits], attributes) => {
      const [rows, experts] = matrix('top_experts', logits!);
      return { dtype: 'i32', shape: [rows, count(attributes, 'k', experts)] };
    },
    evaluate: ([logits], _, shape) => {
      const [rows, k] = [shape[0]!, shape[1]!];
      const experts = logits!.shape[1]!;
      const data = new Float64Array(rows * k);
      for (let row = 0; row < rows; row++)
        data.set(largestOf(logits!.data.subarray(row * experts, (row + 1) * experts), k), row * k);
      return { shape, data };
    },
  },
  expert_weight: {
    summary:
      'expert_weight(logits[T, E], experts[T, k]): f32[T, 1], softmax(logits) at expert `slot` of a row; ' +
      'with `normalized` divided by the sum over its k experts',
    fuse: 'opaque',
    attributes: { slot: 'number', normalized: 'boolean' },
    arity: [2, 2],
    infer: ([logits, experts], attributes) => {
      const [rows] = matrix('expert_weight', logits!);
      const [same, k] = matrix('expert_weight', experts!);
      if (rows !== same) throw new TypeMismatch(`expert_weight: ${rows} and ${same} rows`);
      slotOf(attributes, k);
      return { dtype: 'f32', shape: [rows, 1] };
    },
    evaluate: ([logits, experts], attributes, shape) => {
      const [width, k] = [logits!.shape[1]!, experts!.shape[1]!];
      const data = Float64Array.from({ length: shape[0]! }, (_, row) => {
        const own = logits!.data.subarray(row * width, (row + 1) * width);
        const chosen = Array.from({ length: k }, (__, i) => own[experts!.data[row * k + i]!]!);
        const top = own.reduce((a, b) => Math.max(a, b), -Infinity);
        const among = attributes['normalized'] === true ? chosen : [...own];
        const total = among.reduce((sum, z) => sum + Math.exp(z - top), 0);
        return Math.exp(chosen[slotOf(attributes, k)]! - top) / total;
      });
      return { shape, data };
    },
  },
  expert_rows: {
    summary: 'expert_rows(experts[T, k]): i32[T·k], the row of each pair, in order of experts',
    fuse: 'opaque',
    attributes: { experts: 'number' },
    arity: [1, 1],
    infer: ([experts], attributes) => {
      const [rows, k] = matrix('expert_rows', experts!);
      count(attributes, 'experts');
      return { dtype: 'i32', shape: [isSymbol(rows) ? productName(rows, k) : rows * k] };
    },
    evaluate: ([experts], _, shape) => {
      const k = experts!.shape[1]!;
      return { shape, data: Float64Array.from(expertOrder(experts!.data).order, (pair) => Math.floor(pair / k)) };
    },
  },
  expert_place: {
    summary:
      'expert_place(experts[T, k]): i32[T], where the pair of a row and its expert `slot` is in order of experts',
    fuse: 'opaque',
    attributes: { slot: 'number' },
    arity: [1, 1],
    infer: ([experts], attributes) => {
      const [rows, k] = matrix('expert_place', experts!);
      slotOf(attributes, k);
      return { dtype: 'i32', shape: [rows] };
    },
    evaluate: ([experts], attributes, shape) => {
      const k = experts!.shape[1]!;
      const { places } = expertOrder(experts!.data);
      const slot = slotOf(attributes, k);
      return { shape, data: Float64Array.from({ length: shape[0]! }, (_, row) => places[row * k + slot]!) };
    },
  },
  expert_linear: {
    summary:
      'expert_linear(x[T·k, K], w[E·N, K], experts[T, k]): f32[T·k, N], rows in order of experts by their matrix',
    fuse: 'contraction',
    attributes: { experts: 'number' },
    optional: ROUNDING,
    arity: [3, 3],
    infer: ([x, w, experts], attributes) => {
      const [rows, depth] = matrix('expert_linear', x!);
      const [all, k] = matrix('expert_linear', w!);
      const [each, slots] = matrix('expert_linear', experts!);
      const number = count(attributes, 'experts');
      checkRounding(attributes, k);
      if (depth !== k) throw new TypeMismatch(`expert_linear: x has ${depth} columns, w has ${k}`);
      if (isSymbol(all) || all % number !== 0)
        throw new TypeMismatch(`expert_linear: ${all} rows are not those of ${number} matrices`);
      if (rows !== (isSymbol(each) ? productName(each, slots) : each * slots))
        throw new TypeMismatch(`expert_linear: ${rows} rows are not ${slots} for each of ${each}`);
      return { dtype: 'f32', shape: [rows, all / number] };
    },
    evaluate: ([given, w, experts], attributes, shape) => {
      const x = roundedRows(given!, attributes);
      const [rows, n, k] = [shape[0]!, shape[1]!, x.shape[1]!];
      const { order } = expertOrder(experts!.data);
      const data = new Float64Array(rows * n);
      for (let row = 0; row < rows; row++) {
        const first = experts!.data[order[row]!]! * n;
        for (let j = 0; j < n; j++) {
          let acc = 0;
          for (let i = 0; i < k; i++) acc += x.data[row * k + i]! * w!.data[(first + j) * k + i]!;
          data[row * n + j] = acc;
        }
      }
      return { shape, data };
    },
  },
} as const satisfies Record<string, OpDef>;

/** Ops of one kernel, which chooses the experts of rows, and of one that puts pairs in order. */
export const ROUTE_OPS = ['top_experts', 'expert_weight'] as const;
export const GROUP_OPS = ['expert_rows', 'expert_place'] as const;

export const isRouteOp = (op: string): op is (typeof ROUTE_OPS)[number] => ROUTE_OPS.some((each) => each === op);
export const isGroupOp = (op: string): op is (typeof GROUP_OPS)[number] => GROUP_OPS.some((each) => each === op);
