/** The op registry: every op of the graph IR by name. */
import { CONTRACTIONS } from './contraction.js';
import { ELEMENTWISE } from './elementwise.js';
import { EXPERTS } from './experts.js';
import { FUSED, SCORE_OPS } from './fused.js';
import { MOVEMENTS } from './movement.js';
import { GROUPED, NARROW } from './narrow.js';
import type { AttributeKinds, OpDef, OperandKinds, TypedAttributes, TypedOperands } from './opDef.js';
import { RECURRENT } from './recurrent.js';
import { REDUCTIONS } from './reduction.js';
import { SAMPLING } from './sampling.js';

const TABLE = {
  ...ELEMENTWISE,
  ...REDUCTIONS,
  ...CONTRACTIONS,
  ...MOVEMENTS,
  ...FUSED,
  ...SAMPLING,
  ...EXPERTS,
  ...RECURRENT,
  ...NARROW,
  ...GROUPED,
} as const;

type Table = typeof TABLE;
export type OpName = keyof Table;
export const OPS: Readonly<Record<OpName, OpDef>> = TABLE;
export const OP_NAMES = Object.keys(TABLE) as readonly OpName[];
export const isOpName = (name: string): name is OpName => Object.hasOwn(TABLE, name);

/** The operands of a node `Op` by name, each a `V`. */
export type OperandsOf<Op extends OpName, V> = Table[Op] extends { readonly operands: infer K extends OperandKinds }
  ? TypedOperands<K, V>
  : never;
export type AttributesOf<Op extends OpName> = Table[Op] extends {
  readonly attributes: infer A extends AttributeKinds;
  readonly optional: infer O extends AttributeKinds;
}
  ? TypedAttributes<A, O>
  : never;
/** Ops with one operand, called x. */
export type UnaryOpName = {
  [Op in OpName]: keyof Table[Op]['operands'] extends 'x'
    ? 'x' extends keyof Table[Op]['operands']
      ? Op
      : never
    : never;
}[OpName];
/** Ops of two operands, called a and b. */
export type BinaryOpName = {
  [Op in OpName]: 'a' | 'b' extends keyof Table[Op]['operands'] ? Exclude<Op, 'select'> : never;
}[OpName];

/** Ops that multiply rows of x by a matrix w. */
export const PRODUCT_OPS = ['linear', 'expert_linear', 'head_linear', ...SCORE_OPS] as const;
export type ProductOp = (typeof PRODUCT_OPS)[number];
