/** What scalar programs cost, counted in operations. */
import { operands, type Scalar } from '../ir/scalar.js';

/**
 * Elementwise cost of an operator. Divisions and functions are short polynomials. Leaves cost nothing: what they read
 * is counted in bytes. A sum over a segment also costs one addition per element, see scalarCost.
 */
const OP_COST: Readonly<Record<Scalar['op'], number>> = {
  const: 0,
  arg: 0,
  acc: 0,
  load: 0,
  rowSum: 0,
  segmentSum: 0,
  rowIndex: 0,
  columnIndex: 0,
  rotateHalf: 1,
  groupSum: 1,
  select: 1,
  neg: 1,
  not: 1,
  toF32: 1,
  roundBf16: 1,
  roundF20: 1,
  roundF24: 1,
  tailF24: 1,
  joinF24: 1,
  add: 1,
  sub: 1,
  mul: 1,
  max: 1,
  min: 1,
  le: 1,
  lt: 1,
  eq: 1,
  and: 1,
  or: 1,
  div: 4,
  sqrt: 6,
  rsqrt: 6,
  exp: 12,
  log: 12,
  sin: 20,
  cos: 20,
  tanh: 20,
  erf: 30,
};

/** Elementwise operations of one evaluation. Sums over a row's parts run once per row and are left out. */
export function scalarCost(s: Scalar): number {
  const inner = operands(s).reduce((sum, operand) => sum + scalarCost(operand), 0);
  return inner + OP_COST[s.op] + (s.op === 'segmentSum' ? s.parts : 0);
}
