/** The op registry: every op of the graph IR by name. */
import { CONTRACTIONS } from './contraction.js';
import { ELEMENTWISE } from './elementwise.js';
import { EXPERTS } from './experts.js';
import { FUSED } from './fused.js';
import { GROUPED } from './grouped.js';
import { MOVEMENTS } from './movement.js';
import { NARROW } from './narrow.js';
import { REDUCTIONS } from './reduction.js';
import { SAMPLING } from './sampling.js';
import type { OpDef } from './opDef.js';

const TABLE = {
  ...ELEMENTWISE,
  ...REDUCTIONS,
  ...CONTRACTIONS,
  ...MOVEMENTS,
  ...FUSED,
  ...SAMPLING,
  ...EXPERTS,
  ...NARROW,
  ...GROUPED,
} as const;

export type OpName = keyof typeof TABLE;
export const OPS: Readonly<Record<OpName, OpDef>> = TABLE;
export const OP_NAMES = Object.keys(TABLE) as readonly OpName[];
export const isOpName = (name: string): name is OpName => Object.hasOwn(TABLE, name);
