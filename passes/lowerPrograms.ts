/** Scalar programs that end in memory: what kernels of contractions and loops store, and loops themselves. */
import { isOp, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { LoopKernel, Output } from '../ir/kernel.js';
import { OPS } from '../ir/ops/index.js';
import { operands as operandsOf, type Scalar } from '../ir/scalar.js';
import type { Dim } from '../ir/types.js';
import { CompileError } from './compileError.js';
import type { Group, GroupOf } from './groups.js';
import { lastExtent, NO_ACCUMULATORS, type Accumulators, type KernelHead, type Lowering } from './lowering.js';

/** The stores and row sums of `group` among the values that belong to a segment, as programs over `accumulators`. */
export function lowerOutputs(
  { scalars, buffers, fused }: Lowering,
  group: Group,
  accumulators: Accumulators,
  belongs: (v: Value) => boolean,
): readonly Output[] {
  const stores = [...group.stored]
    .filter((v) => belongs(v))
    .map((v): Output => ({ kind: 'store', buffer: buffers.of(v), value: scalars.lower(v, group, accumulators) }));
  const sums = group.members
    .filter((node) => isOp(node, 'sum', 'mean', 'reduce_max'))
    .filter((node) => !fused.unread.has(node) && belongs(scalars.view(node.operands.x).base))
    .map((node): Output => {
      const buffer = buffers.ofRowSum(node);
      const value = scalars.lower(node.operands.x, group, accumulators);
      return { kind: 'rowSum', ...(node.op === 'reduce_max' ? { by: 'max' as const } : {}), buffer, value };
    });
  return [...stores, ...sums];
}

/** Whether one of the programs rotates heads. */
export const rotates = (outputs: readonly Output[]): boolean => outputs.some(({ value }) => mentionsRotation(value));

const mentionsRotation = (s: Scalar): boolean => s.op === 'rotateHalf' || operandsOf(s).some(mentionsRotation);

/** A group without an anchor: elementwise ops, gathers and row sums over one domain. */
export function lowerLoop(lowering: Lowering, group: GroupOf<'loop'>, head: KernelHead): LoopKernel {
  const columns = columnsOfDomain(group, head, 'a loop');
  const outputs = lowerOutputs(lowering, group, NO_ACCUMULATORS, () => true);
  const rotation = group.members.find((node) => OPS[node.op].fuse === 'rotation');
  const heads = rotation !== undefined && rotates(outputs) ? { headDim: lastExtent(rotation.result) } : {};
  return { ...head, anchor: 'loop', rows: group.rows, columns, ...heads, outputs };
}

/** Rows go to where the slots say, in the memory that all versions of the state share. */
export function lowerWrite(lowering: Lowering, group: GroupOf<'write'>, head: KernelHead): LoopKernel {
  const columns = columnsOfDomain(group, head, 'a write');
  const outputs = group.anchors.map((write) => storeOfWrite(lowering, group, write));
  return { ...head, anchor: 'loop', rows: group.rows, columns, outputs };
}

function storeOfWrite(
  { scalars, buffers }: Lowering,
  group: GroupOf<'write'>,
  { operands: { x: old, rows, slot } }: NodeOf<'write_rows'>,
): Output {
  const { base: index, via } = scalars.view(slot);
  if (via !== undefined) throw new CompileError(`%${slot.name}: slots that are a gather are not supported`);
  const value = scalars.lower(rows, group, NO_ACCUMULATORS);
  return { kind: 'store', buffer: buffers.of(old), via: buffers.of(index), value };
}

function columnsOfDomain({ columns }: Group, { path }: KernelHead, what: string): Dim {
  if (columns === undefined) throw new CompileError(`${path}: ${what} needs columns`);
  return columns;
}
