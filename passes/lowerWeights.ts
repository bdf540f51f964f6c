/** Turns load-time expressions over checkpoint tensors into packing instructions. */
import type { Node, Value } from '../ir/graph/graph.js';
import type { FormatName } from '../ir/storage.js';
import { isFloat } from '../ir/types.js';
import { CompileError } from './compileError.js';

/** A tensor [rows, k], whose column c is multiplied by columnScale[c] if given. Names are checkpoint tensors. */
export interface WeightMatch {
  readonly tensor: string;
  readonly rows: number;
  readonly columnScale?: string;
  /** Narrowest format that holds the matrix exactly. */
  readonly format: FormatName;
}

/** Reads W, cast(W) or cast(W)·cast(norm), the forms that foldNormWeights produces. */
export function matchWeight(defs: ReadonlyMap<Value, Node>, v: Value): WeightMatch {
  const direct = checkpointTensor(defs, v);
  if (direct !== undefined) return matrix(direct);
  const node = defs.get(v);
  if (node?.op === 'mul') {
    const [a, b] = [checkpointTensor(defs, node.operands[0]!), checkpointTensor(defs, node.operands[1]!)];
    if (a?.type.shape.length === 2 && b?.type.shape.length === 1)
      return { ...matrix(a), columnScale: b.name, format: 'f32' };
  }
  throw new CompileError(
    `%${v.name}: the weight packer does not support this load-time expression; ` +
      'it takes a matrix, or a matrix times a norm weight',
  );
}

function checkpointTensor(defs: ReadonlyMap<Value, Node>, v: Value): Value | undefined {
  if (v.kind === 'weight') return v;
  const node = defs.get(v);
  return node?.op === 'cast' && node.attributes['dtype'] === 'f32'
    ? checkpointTensor(defs, node.operands[0]!)
    : undefined;
}

function matrix(v: Value): WeightMatch {
  const [rows] = v.type.shape;
  if (typeof rows !== 'number') throw new CompileError(`@${v.name}: a matrix needs fixed extents`);
  const { dtype } = v.type;
  if (!isFloat(dtype)) throw new CompileError(`@${v.name}: a matrix holds floats, not ${dtype}`);
  return { tensor: v.name, rows, format: dtype };
}

/** Lanes of a pairing block: the widest of 16, 8, 4, 2, 1 that divides `half` and is at most `most`. */
export function pairingWidth(half: number, most = 16): number {
  return (
    [16, 8, 4, 2].filter((width) => width <= most).find((width) => !Number.isFinite(half) || half % width === 0) ?? 1
  );
}
