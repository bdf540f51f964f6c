/** Recognized attention becomes a kernel of its own: fixed heads of one width, and a mask in one of three forms. */
import { defined } from '../system/defined.js';
import type { Node } from '../ir/graph/graph.js';
import type { AttentionKernel, Mask } from '../ir/kernel.js';
import { attentionOperands, windowOf } from '../ir/ops/attention.js';
import { CompileError } from './compileError.js';
import type { Group } from './groups.js';
import type { KernelHead, Lowering } from './lowering.js';

export function lowerAttention(lowering: Lowering, group: Group, head: KernelHead): AttentionKernel {
  const { buffers } = lowering;
  const node = group.anchors[0]!;
  const { q, k, v, scales, mask, queryRow } = attentionOperands(
    node.operands.map((operand) => lowering.base(operand)),
    node.attributes,
  );
  const shape = shapeOf(node, head.path);
  const [result] = [...group.stored];
  if (result === undefined || group.stored.size !== 1)
    throw new CompileError(`${head.path}: attention must have exactly one stored result`);
  return {
    ...head,
    anchor: 'attention',
    rows: group.rows,
    ...shape,
    q: buffers.of(q),
    k: buffers.of(k),
    v: buffers.of(v),
    ...(scales === undefined ? {} : { scales: { k: buffers.of(scales.k), v: buffers.of(scales.v) } }),
    out: buffers.of(result),
    mask: lowerMask(
      node,
      mask.map((operand) => buffers.of(operand)),
    ),
    ...(queryRow === undefined ? {} : { queryRow: buffers.of(queryRow) }),
  };
}

/** Heads and scale of an attention node. Kernels are made for these numbers. */
function shapeOf(
  { operands, attributes: { scale, cap } }: Node,
  path: string,
): Pick<AttentionKernel, 'heads' | 'kvHeads' | 'headDim' | 'scale' | 'cap'> {
  const [q, k, v] = operands.map(({ type }) => type.shape);
  const [, heads, headDim] = q!;
  const kvHeads = k![1];
  const width = v![2];
  if (width !== headDim)
    throw new CompileError(
      `${path}: attention needs values as wide as its keys: ${String(headDim)}, not ${String(width)}`,
    );
  if (
    typeof heads !== 'number' ||
    typeof headDim !== 'number' ||
    typeof kvHeads !== 'number' ||
    typeof scale !== 'number'
  )
    throw new CompileError(`${path}: attention needs fixed head counts`);
  return { heads, kvHeads, headDim, scale, ...(typeof cap === 'number' ? { cap } : {}) };
}

/** The mask of an attention node, whose operands are in `buffers`. */
function lowerMask({ attributes }: Node, buffers: readonly string[]): Mask {
  const [first, position, key] = buffers as readonly [string, string, string];
  const window = windowOf(attributes);
  switch (attributes['mask']) {
    case 'column':
      return { kind: 'column', subtreeEnd: first, ...(window === undefined ? {} : { window, position }) };
    case 'path':
      return { kind: 'path', begin: first, position, key, ...defined({ window }) };
    default:
      return { kind: 'bias', buffer: first };
  }
}
