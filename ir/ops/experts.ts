/**
 * Mixtures of experts. Models write `concat` and `top_mask` among primitive ops; recognizeExperts makes the others of
 * them, which have kernels of their own. A pair is a row and one of the experts that it is sent to. Pairs in order of
 * their experts, and for one expert in order of rows, are the rows of grouped values: [rows times k, …].
 */
import { chosenExperts, chosenWeights, type ExpertGroups, expertOrder, groupsProblem, largestOf } from '../experts.js';
import { productName } from '../extents.js';
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { extentsOf, isFloat, isSymbol, type TensorType } from '../types.js';
import { checkRounding, roundedRows, ROUNDING } from './contraction.js';
import { checkPositive, elementCount, op, TypeMismatch } from './opDef.js';

/** `value`, the attribute `name`, if it is a whole number of at least 1. */
function count(name: string, value: number, max = Infinity): number {
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new TypeMismatch(`attribute '${name}' must be a whole number from 1 to ${max}, got ${value}`);
}

/** Checks the place of one of k choices. */
function checkSlot(slot: number, k: number): void {
  if (!Number.isInteger(slot) || slot < 0 || slot >= k)
    throw new TypeMismatch(`attribute 'slot' must be a whole number below ${k}, got ${slot}`);
}

/** The groups that attributes of top_experts name; undefined if they name none. */
export function groupsOf({
  groups,
  kept,
  best,
}: {
  readonly groups?: number | undefined;
  readonly kept?: number | undefined;
  readonly best?: number | undefined;
}): ExpertGroups | undefined {
  if (groups === undefined && kept === undefined && best === undefined) return undefined;
  if (groups === undefined || kept === undefined || best === undefined)
    throw new TypeMismatch("attributes 'groups', 'kept' and 'best' belong together");
  return { count: groups, kept, best };
}

/** Rows and columns of a matrix with fixed columns. */
function matrix(name: string, { shape }: TensorType): readonly [string | number, number] {
  const [rows, columns, ...rest] = shape;
  if (rows === undefined || typeof columns !== 'number' || rest.length > 0)
    throw new TypeMismatch(`${name} needs a matrix with fixed columns, got [${shape.join(', ')}]`);
  return [rows, columns];
}

export const EXPERTS = {
  concat: op({
    summary: 'concat(m₀[…], m₁[…], …): matrices of one type one behind another, along axis 0 (rows) or 1 (columns)',
    fuse: 'movement',
    operands: { matrices: 'list' },
    attributes: { axis: 'number' },
    infer: ({ matrices }, { axis }) => {
      const [first, ...rest] = matrices;
      if (first === undefined || (axis !== 0 && axis !== 1) || first.shape.length !== 2 || first.shape.some(isSymbol))
        throw new TypeMismatch('concat takes matrices with fixed extents, along axis 0 or 1');
      const { dtype, shape } = first;
      const across = 1 - axis;
      for (const { dtype: other, shape: own } of rest)
        if (other !== dtype || own.length !== 2 || own[across] !== shape[across] || own.some(isSymbol))
          throw new TypeMismatch(`concat along axis ${axis}: ${other}[${own.join(', ')}] beside [${shape.join(', ')}]`);
      const along = matrices.reduce((sum, { shape: own }) => sum + Number(own[axis]), 0);
      return { dtype, shape: shape.with(axis, along) };
    },
    evaluate: ({ matrices }, { axis }, shape) => {
      const [, width] = extentsOf(shape, 2);
      const data = new Float64Array(elementCount(shape));
      let first = 0;
      for (const { shape: own, data: values } of matrices) {
        const [rows, columns] = extentsOf(own, 2);
        for (let row = 0; row < rows; row++)
          data.set(
            values.subarray(row * columns, (row + 1) * columns),
            axis === 0 ? (first + row) * columns : row * width + first,
          );
        first += axis === 0 ? rows : columns;
      }
      return { shape, data };
    },
  }),
  top_mask: op({
    summary: 'top_mask(x[…, N]): f32[…, N], 1 at the k largest of a row, of equal ones the first, and 0 elsewhere',
    fuse: 'reduction',
    operands: { x: 'one' },
    attributes: { k: 'number' },
    infer: ({ x }, { k }) => {
      const width = x.shape.at(-1);
      if (typeof width !== 'number' || x.dtype !== 'f32') throw new TypeMismatch('top_mask needs f32[…, N]');
      count('k', k, width);
      return x;
    },
    evaluate: ({ x }, { k }, shape) => {
      const [width = 1] = shape.slice(-1);
      const data = new Float64Array(elementCount(shape));
      for (let at = 0; at < data.length; at += width)
        for (const column of largestOf(x.data.subarray(at, at + width), k)) data[at + column] = 1;
      return { shape, data };
    },
  }),
  top_experts: op({
    summary:
      'top_experts(logits[T, E], bias?[E]) {k, scores?, groups?, kept?, best?}: i32[T, k], the k largest of a row in ' +
      'descending order, of equal ones the first; with scores, a bias or groups those of softmax or sigmoid plus ' +
      'bias, in the kept groups with the largest sums of their best',
    fuse: 'opaque',
    operands: { logits: 'one', bias: 'optional' },
    attributes: { k: 'number' },
    optional: { scores: ['sigmoid'], groups: 'number', kept: 'number', best: 'number' },
    infer: ({ logits, bias }, { k, ...attributes }) => {
      const [rows, experts] = matrix('top_experts', logits);
      const chosen = count('k', k, experts);
      if (bias !== undefined && !(isFloat(bias.dtype) && bias.shape.length === 1 && bias.shape[0] === experts))
        throw new TypeMismatch(`the bias of ${experts} experts must be a vector of as many numbers`);
      const groups = groupsOf(attributes);
      const problem = groups === undefined ? undefined : groupsProblem(groups, experts, chosen);
      if (problem !== undefined) throw new TypeMismatch(problem);
      return { dtype: 'i32', shape: [rows, chosen] };
    },
    evaluate: ({ logits, bias }, { scores, ...attributes }, shape) => {
      const [rows, k] = extentsOf(shape, 2);
      const [, experts] = extentsOf(logits.shape, 2);
      const rule = defined({ scores, groups: groupsOf(attributes) });
      const data = new Float64Array(rows * k);
      for (let row = 0; row < rows; row++) {
        const own = logits.data.subarray(row * experts, (row + 1) * experts);
        data.set(chosenExperts(own, rule, k, bias?.data), row * k);
      }
      return { shape, data };
    },
  }),
  expert_weight: op({
    summary:
      'expert_weight(logits[T, E], experts[T, k]) {slot, normalized, scores?, factor?, inTurn?}: f32[T, 1], ' +
      'softmax(logits), or their sigmoids, at expert `slot` of a row; with `normalized` divided by the sum over its ' +
      'k experts; with `inTurn` among those near it that no slot before has; times factor',
    fuse: 'opaque',
    operands: { logits: 'one', experts: 'one' },
    attributes: { slot: 'number', normalized: 'boolean' },
    optional: { scores: ['sigmoid'], factor: 'number', inTurn: 'number' },
    infer: ({ logits, experts }, { slot, normalized, scores, factor, inTurn }) => {
      checkPositive('factor', factor);
      checkPositive('inTurn', inTurn);
      if (inTurn !== undefined && (normalized || scores !== undefined))
        throw new TypeMismatch('expert_weight: weights in turn are parts of softmaxes of their own');
      const [rows] = matrix('expert_weight', logits);
      const [same, k] = matrix('expert_weight', experts);
      if (rows !== same) throw new TypeMismatch(`expert_weight: ${rows} and ${same} rows`);
      checkSlot(slot, k);
      return { dtype: 'f32', shape: [rows, 1] };
    },
    evaluate: ({ logits, experts }, { slot, normalized, scores, factor, inTurn }, shape) => {
      const [rows, width] = extentsOf(logits.shape, 2);
      const [, k] = extentsOf(experts.shape, 2);
      const rule = { normalized, ...defined({ scores, factor, inTurn }) };
      const data = Float64Array.from({ length: rows }, (_, row) => {
        const own = logits.data.subarray(row * width, (row + 1) * width);
        return at(chosenWeights(own, rule, [...experts.data.subarray(row * k, (row + 1) * k)]), slot);
      });
      return { shape, data };
    },
  }),
  expert_rows: op({
    summary: 'expert_rows(experts[T, k]): i32[T·k], the row of each pair, in order of experts',
    fuse: 'opaque',
    operands: { experts: 'one' },
    attributes: { experts: 'number' },
    infer: ({ experts }, { experts: number }) => {
      const [rows, k] = matrix('expert_rows', experts);
      count('experts', number);
      return { dtype: 'i32', shape: [isSymbol(rows) ? productName(rows, k) : rows * k] };
    },
    evaluate: ({ experts }, _, shape) => {
      const [, k] = extentsOf(experts.shape, 2);
      return { shape, data: Float64Array.from(expertOrder(experts.data).order, (pair) => Math.floor(pair / k)) };
    },
  }),
  expert_owners: op({
    summary: 'expert_owners(experts[T, k]): i32[T·k], the expert of each pair, in order of experts',
    fuse: 'opaque',
    operands: { experts: 'one' },
    attributes: {},
    infer: ({ experts }) => {
      const [rows, k] = matrix('expert_owners', experts);
      return { dtype: 'i32', shape: [isSymbol(rows) ? productName(rows, k) : rows * k] };
    },
    evaluate: ({ experts }, _, shape) => ({ shape, data: Float64Array.from(experts.data).sort() }),
  }),
  expert_place: op({
    summary:
      'expert_place(experts[T, k]): i32[T], where the pair of a row and its expert `slot` is in order of experts',
    fuse: 'opaque',
    operands: { experts: 'one' },
    attributes: { slot: 'number' },
    infer: ({ experts }, { slot }) => {
      const [rows, k] = matrix('expert_place', experts);
      checkSlot(slot, k);
      return { dtype: 'i32', shape: [rows] };
    },
    evaluate: ({ experts }, { slot }, shape) => {
      const [rows, k] = extentsOf(experts.shape, 2);
      const { places } = expertOrder(experts.data);
      return { shape, data: Float64Array.from({ length: rows }, (_, row) => places[row * k + slot]!) };
    },
  }),
  expert_linear: op({
    summary:
      'expert_linear(x[T·k, K], w[E·N, K], experts[T, k]): f32[T·k, N], rows in order of experts by their matrix',
    fuse: 'contraction',
    operands: { x: 'one', w: 'one', experts: 'one' },
    attributes: { experts: 'number' },
    optional: ROUNDING,
    infer: ({ x, w, experts }, { experts: given, rounding }) => {
      const [rows, depth] = matrix('expert_linear', x);
      const [all, k] = matrix('expert_linear', w);
      const [each, slots] = matrix('expert_linear', experts);
      const number = count('experts', given);
      checkRounding(rounding, k);
      if (depth !== k) throw new TypeMismatch(`expert_linear: x has ${depth} columns, w has ${k}`);
      if (isSymbol(all) || all % number !== 0)
        throw new TypeMismatch(`expert_linear: ${all} rows are not those of ${number} matrices`);
      if (rows !== (isSymbol(each) ? productName(each, slots) : each * slots))
        throw new TypeMismatch(`expert_linear: ${rows} rows are not ${slots} for each of ${each}`);
      return { dtype: 'f32', shape: [rows, all / number] };
    },
    evaluate: ({ x: given, w, experts }, { rounding }, shape) => {
      const x = roundedRows(given, rounding);
      const [rows, n] = extentsOf(shape, 2);
      const [, k] = extentsOf(x.shape, 2);
      const { order } = expertOrder(experts.data);
      const data = new Float64Array(rows * n);
      for (let row = 0; row < rows; row++) {
        const first = experts.data[order[row]!]! * n;
        for (let j = 0; j < n; j++) {
          let acc = 0;
          for (let i = 0; i < k; i++) acc += x.data[row * k + i]! * w.data[(first + j) * k + i]!;
          data[row * n + j] = acc;
        }
      }
      return { shape, data };
    },
  }),
};

/** Ops of one kernel, which chooses the experts of rows, and of one that puts pairs in order. */
export const ROUTE_OPS = ['top_experts', 'expert_weight'] as const;
export const SORT_OPS = ['expert_rows', 'expert_owners', 'expert_place'] as const;
export type RouteOp = (typeof ROUTE_OPS)[number];
export type SortOp = (typeof SORT_OPS)[number];
