/** Recognized attention becomes a kernel of its own: fixed heads of one width, and a mask in one of three forms. */
import { defined } from '../system/defined.js';
import type { NodeOf, Value } from '../ir/graph/graph.js';
import type { AttentionKernel, Mask } from '../ir/kernel.js';
import { maskOf, scalesOf } from '../ir/ops/attention.js';
import { extentsOf } from '../ir/types.js';
import { at } from '../system/at.js';
import { CompileError } from './compileError.js';
import type { GroupOf } from './groups.js';
import type { KernelHead, Lowering } from './lowering.js';

export function lowerAttention(
  lowering: Lowering,
  { anchors, rows, stored }: GroupOf<'attention'>,
  head: KernelHead,
): AttentionKernel {
  const node = at(anchors, 0);
  const [result, ...more] = stored;
  if (result === undefined || more.length > 0)
    throw new CompileError(`${head.path}: attention must have exactly one stored result`);
  const { q, k, v, queryRow } = node.operands;
  const buffer = (operand: Value): string => lowering.bufferBehind(operand);
  const scales = scalesOf(node.operands);
  return {
    ...head,
    anchor: 'attention',
    rows,
    ...shapeOf(node, head.path),
    q: buffer(q),
    k: buffer(k),
    v: buffer(v),
    ...defined({ scales: scales && { k: buffer(scales.k), v: buffer(scales.v) } }),
    out: lowering.buffers.of(result),
    mask: lowerMask(node, buffer),
    ...defined({ queryRow: queryRow && buffer(queryRow) }),
  };
}

/** Heads and scale of an attention node. Kernels are made for these numbers. */
function shapeOf(
  { operands: { q, k, v }, attributes: { scale, cap } }: NodeOf<'attention'>,
  path: string,
): Pick<AttentionKernel, 'heads' | 'kvHeads' | 'headDim' | 'scale' | 'cap'> {
  const [, heads, headDim] = extentsOf(q.type.shape, 3);
  const [, kvHeads] = extentsOf(k.type.shape, 3);
  const [, , width] = extentsOf(v.type.shape, 3);
  if (width !== headDim)
    throw new CompileError(`${path}: attention needs values as wide as its keys: ${headDim}, not ${width}`);
  if (typeof heads !== 'number' || typeof headDim !== 'number' || typeof kvHeads !== 'number')
    throw new CompileError(`${path}: attention needs fixed head counts`);
  return { heads, kvHeads, headDim, scale, ...defined({ cap }) };
}

/** The mask of an attention node, in buffers. */
function lowerMask({ operands, attributes }: NodeOf<'attention'>, buffer: (operand: Value) => string): Mask {
  const mask = maskOf(operands, attributes);
  const { window } = attributes;
  switch (mask.kind) {
    case 'column': {
      const subtreeEnd = buffer(mask.subtreeEnd);
      return { kind: 'column', subtreeEnd, ...defined({ window, position: mask.position && buffer(mask.position) }) };
    }
    case 'path': {
      const [begin, position, key] = [buffer(mask.begin), buffer(mask.position), buffer(mask.key)];
      return { kind: 'path', begin, position, key, ...defined({ window }) };
    }
    case 'bias':
      return { kind: 'bias', buffer: buffer(mask.bias) };
    default:
      return mask satisfies never;
  }
}
