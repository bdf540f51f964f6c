/** Elementwise parts of a group as scalar expressions over buffers. */
import { definitions, type Graph, type Node, type Value } from '../ir/graph.js';
import type { Access, Scalar } from '../ir/scalar.js';
import { OPS } from '../ir/ops/index.js';
import type { Dim } from '../ir/types.js';
import { CompileError } from './compileError.js';
import type { FusedGraph, Group } from './fuseGroups.js';

/** Names the buffer that holds a stored value, parameter or weight table. */
export type BufferOf = (v: Value) => string;

export class ScalarLowering {
  private readonly defs: ReadonlyMap<Value, Node>;
  private readonly fused: FusedGraph;
  private readonly bufferOf: BufferOf;
  private readonly rowSumOf: (reduction: Node) => string;

  constructor(graph: Graph, fused: FusedGraph, bufferOf: BufferOf, rowSumOf: (reduction: Node) => string) {
    this.defs = definitions(graph);
    this.fused = fused;
    this.bufferOf = bufferOf;
    this.rowSumOf = rowSumOf;
  }

  /**
   * The element of `v` at the (row, column) of `group`'s domain. `accumulators` maps the linear nodes of the segment
   * being lowered to their accumulator index.
   */
  lower(v: Value, group: Group | undefined, accumulators: ReadonlyMap<Value, 0 | 1>): Scalar {
    const memo = new Map<Value, Scalar>();
    const visit = (value: Value, domain: readonly Dim[]): Scalar => {
      const known = memo.get(value);
      if (known !== undefined) return known;
      const scalar = this.element(value, domain, group, accumulators, visit);
      memo.set(value, scalar);
      return scalar;
    };
    return visit(v, v.type.shape);
  }

  private element(
    v: Value, domain: readonly Dim[], group: Group | undefined,
    accumulators: ReadonlyMap<Value, 0 | 1>, visit: (v: Value, domain: readonly Dim[]) => Scalar,
  ): Scalar {
    const { base, via } = this.view(v);
    const index = accumulators.get(base);
    if (index !== undefined && via === undefined) return { op: 'acc', index };
    const node = this.defs.get(base);
    const home = this.fused.homes.get(base);
    if (node !== undefined && (home?.kind === 'inline' || (home?.kind === 'group' && home.group === group && via === undefined))) {
      if (node.op === 'iota') return { op: orientation(v, domain) === 'column' ? 'columnIndex' : 'rowIndex' };
      if (node.op === 'sum' || node.op === 'mean') return this.rowSum(node, via);
      if (via !== undefined) throw new CompileError(`%${v.name}: a gather of a value that readers recompute is not supported`);
      if (node.op === 'rotate_half') return { op: 'rotateHalf', a: visit(node.operands[0]!, node.result.type.shape) };
      const scalar = OPS[node.op].scalar;
      if (scalar === undefined) throw new CompileError(`%${v.name}: '${node.op}' has no scalar expression`);
      const inner = node.result.type.shape.length === 0 ? domain : node.result.type.shape;
      return scalar(node.operands.map((operand) => visit(operand, inner)), node.attributes);
    }
    return { op: 'load', buffer: this.bufferOf(base), access: access(v, domain, via === undefined ? undefined : this.bufferOf(via)) };
  }

  private rowSum(node: Node, via: Value | undefined): Scalar {
    const sum: Scalar = { op: 'rowSum', buffer: this.rowSumOf(node), ...(via === undefined ? {} : { via: this.bufferOf(via) }) };
    const count = node.operands[0]!.type.shape.at(-1);
    if (node.op === 'sum') return sum;
    if (typeof count !== 'number') throw new CompileError(`%${node.result.name}: the mean of a symbolic extent is not supported`);
    return { op: 'mul', a: sum, b: { op: 'const', value: 1 / count } };
  }

  /** The stored value behind reshapes and at most one gather of rows. */
  view(v: Value): { readonly base: Value; readonly via: Value | undefined } {
    const node = this.defs.get(v);
    if (node?.op === 'reshape') return this.view(node.operands[0]!);
    if (node?.op === 'gather_rows') {
      const inner = this.view(node.operands[0]!);
      if (inner.via !== undefined) throw new CompileError(`%${v.name}: a gather of a gather is not supported`);
      return { base: inner.base, via: node.operands[1]! };
    }
    return { base: v, via: undefined };
  }
}

/** Whether a one-dimensional value seen as `v` runs along rows or columns of a two-dimensional domain. */
const orientation = (v: Value, domain: readonly Dim[]): 'row' | 'column' =>
  (v.type.shape.length === 2 && v.type.shape[0] === 1 && domain.length === 2 ? 'column' : 'row');

/** How a value of shape `v` is read at an element of `domain`, by NumPy broadcasting. */
function access(v: Value, domain: readonly Dim[], via: string | undefined): Access {
  const pad = Math.max(0, domain.length - v.type.shape.length);
  const shape: readonly Dim[] = [...new Array<Dim>(pad).fill(1), ...v.type.shape];
  const gather = via === undefined ? {} : { via };
  const fits = (axis: number): boolean => shape[axis] === domain[axis];
  const rest = shape.slice(1);
  if (fits(0) || domain.length <= 1) {
    if (rest.every((_, i) => fits(i + 1))) return rest.length === 0 ? { kind: 'row', ...gather } : { kind: 'element', ...gather };
    if (rest.every((dim) => dim === 1)) return { kind: 'row', ...gather };
    const period = shape.at(-1);
    if (typeof period === 'number' && fits(shape.length - 1) && rest.slice(0, -1).every((dim) => dim === 1)) return { kind: 'periodic', period, ...gather };
  } else if (shape[0] === 1 && via === undefined && rest.every((_, i) => fits(i + 1))) return { kind: 'column' };
  throw new CompileError(`%${v.name}: reading [${v.type.shape.join(', ')}] in a domain [${domain.join(', ')}] is not supported`);
}
