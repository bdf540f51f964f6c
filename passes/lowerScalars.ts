/** Lowers the elementwise ops of a group to scalar expressions over buffers. */
import { defined } from '../system/defined.js';
import { CompileError } from '../errors.js';
import { definitions, type Graph, isOp, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import { ROW_SUM_BLOCK } from '../ir/kernel.js';
import { OPS } from '../ir/ops/index.js';
import { mapOperands } from '../ir/ops/opDef.js';
import { roundToDType } from '../ir/round.js';
import { type Access, type Scalar, withOrigin } from '../ir/scalar.js';
import { type BufferDType, type Dim, isSymbol } from '../ir/types.js';
import type { FusedGraph } from './fuseGroups.js';
import type { SumNode } from './groupRules.js';
import { type Group, readsState, type View, viewOf } from './placedValues.js';

/** The name of the buffer that holds a stored value, parameter or weight table. */
export type BufferOf = (v: Value) => string;

/** The shape of elements, and how they map to the (row, column) grid of a kernel. */
interface Domain {
  readonly shape: readonly Dim[];
  /**
   * `grid`: the first axis is the row, and the others form the column. `row`, `column`: all elements run along that
   * axis.
   */
  readonly along: 'grid' | 'row' | 'column' | 'one element';
}

type Visit = (v: Value, domain: Domain) => Scalar;

export class ScalarLowering {
  private readonly defs: ReadonlyMap<Value, Node>;
  private readonly fused: FusedGraph;
  private readonly bufferOf: BufferOf;
  private readonly rowSumOf: (reduction: SumNode) => string;

  constructor(graph: Graph, fused: FusedGraph, bufferOf: BufferOf, rowSumOf: (reduction: SumNode) => string) {
    this.defs = definitions(graph);
    this.fused = fused;
    this.bufferOf = bufferOf;
    this.rowSumOf = rowSumOf;
  }

  /**
   * The element of `root` at the (row, column) of `group`'s domain. `accumulators` maps the linear nodes of the segment
   * being lowered to their accumulator index. A value that is read in two domains becomes two expressions.
   */
  lower(root: Value, group: Group | undefined, accumulators: ReadonlyMap<Value, 0 | 1>): Scalar {
    const memo = new Map<Value, Map<string, Scalar>>();
    const visit: Visit = (value, domain) => {
      const byDomain = memo.get(value) ?? new Map<string, Scalar>();
      memo.set(value, byDomain);
      const key = `${domain.along} ${domain.shape.join(',')}`;
      const scalar = byDomain.get(key) ?? this.element(value, domain, { root, group, accumulators, visit });
      byDomain.set(key, scalar);
      return scalar;
    };
    return visit(root, { shape: root.type.shape, along: 'grid' });
  }

  private element(v: Value, domain: Domain, context: ElementContext): Scalar {
    const { base, via } = this.view(v);
    const index = context.accumulators.get(base);
    if (index !== undefined && via === undefined) return withOrigin({ op: 'acc', index }, base.name);
    const node = this.defs.get(base);
    const home = this.fused.homes.get(base);
    const isMember = home?.kind === 'group' && home.group === context.group && via === undefined;
    // Values computed only from weights and literals have no buffer; readers compute them.
    const isInline =
      home?.kind === 'inline' || (home?.kind === 'memory' && node !== undefined && OPS[node.op].scalar !== undefined);
    // If an inline value is read at other rows, a loop has stored it.
    const isCopied = via !== undefined && this.fused.groups.some((group) => group.stored.has(base));
    if (node === undefined || !(isMember || isInline) || isCopied) return this.load(v, base, domain, via);
    if (node.op === 'iota') return this.index(v, domain, via);
    if (node.op === 'gather_rows' && readsState(node, this.fused.versions)) return this.read(node);
    if (isOp(node, 'sum', 'mean', 'reduce_max')) return withOrigin(this.sum(v, node, domain, via, context), base.name);
    if (via !== undefined)
      throw new CompileError(`%${v.name}: a gather of a value that readers recompute is not supported`);
    if (node.op === 'rotate_half' && !isMember)
      throw new CompileError(
        `%${base.name}: rotate_half of a value that no contraction of the same kernel computes is not supported`,
      );
    if (node.op === 'rotate_half')
      return withOrigin(
        { op: 'rotateHalf', a: context.visit(node.operands.x, { shape: node.result.type.shape, along: 'grid' }) },
        base.name,
      );
    const scalar = OPS[node.op].scalar;
    if (scalar === undefined) throw new CompileError(`%${v.name}: '${node.op}' has no scalar expression`);
    const inner: Domain = isMember
      ? { shape: base.type.shape, along: 'grid' }
      : v === base
        ? domain
        : unfold(v, base, domain);
    const args = mapOperands<Value, Scalar>(node.operands, (operand) => context.visit(operand, inner));
    const value = scalar(args, node.attributes);
    const isRoot = base === context.root;
    return withOrigin(
      node.op === 'cast' ? cast(node, context.visit(node.operands.x, inner), value, isRoot) : value,
      base.name,
    );
  }

  /** A row of a state, which the kernel of `node` reads. */
  private read({ operands: { x: version, index }, result }: NodeOf<'gather_rows'>): Scalar {
    const how = access(result, { shape: result.type.shape, along: 'grid' }, this.bufferOf(index));
    return { op: 'load', buffer: this.bufferOf(version), access: how };
  }

  private load(v: Value, base: Value, domain: Domain, via: Value | undefined): Scalar {
    const how = access(v, domain, via === undefined ? undefined : this.bufferOf(via));
    if ((how.kind === 'column' || how.kind === 'columnPeriodic') && extents(base.type.shape).length > 1)
      throw unreadable(v, domain);
    return { op: 'load', buffer: this.bufferOf(base), access: how };
  }

  /** The row or column number; through a gather, the number of the row that it selects. */
  private index(v: Value, domain: Domain, via: Value | undefined): Scalar {
    const { kind } = access(v, domain, undefined);
    if (kind === 'row')
      return via === undefined
        ? { op: 'rowIndex' }
        : { op: 'load', buffer: this.bufferOf(via), access: { kind: 'row' } };
    if (kind === 'column' && via === undefined) return { op: 'columnIndex' };
    throw unreadable(v, domain);
  }

  private sum(v: Value, node: SumNode, domain: Domain, via: Value | undefined, context: ElementContext): Scalar {
    const { shape } = node.operands.x.type;
    const { group, visit } = context;
    const isOwn = via === undefined && group !== undefined && this.fused.sums.has(node, group);
    const sum = isOwn
      ? groupSum(v, node, domain, visit)
      : shape.length === 3
        ? this.segmentSum(v, node, domain, via)
        : this.rowSum(v, node, domain, via);
    if (node.op === 'sum' || node.op === 'reduce_max') return sum;
    const count = shape.at(-1);
    if (typeof count !== 'number')
      throw new CompileError(`%${node.result.name}: the mean of a symbolic extent is not supported`);
    return { op: 'mul', a: sum, b: { op: 'const', value: 1 / count } };
  }

  private rowSum(v: Value, node: SumNode, domain: Domain, via: Value | undefined): Scalar {
    if (access(v, domain, undefined).kind !== 'row') throw unreadable(v, domain);
    const list = via === undefined ? {} : { via: this.bufferOf(via) };
    return { op: 'rowSum', buffer: this.rowSumOf(node), ...list, ...combinedBy(node) };
  }

  /**
   * The sum over a head, for all its columns: of the partial sums that a kernel wrote, or of the operand's own
   * elements.
   */
  private segmentSum(v: Value, node: SumNode, domain: Domain, via: Value | undefined): Scalar {
    const operand = node.operands.x;
    const count = operand.type.shape.at(-1);
    if (typeof count !== 'number') throw unreadable(v, domain);
    const width = segmentWidth(v, domain);
    const isOfParts = count % ROW_SUM_BLOCK === 0;
    const summed = this.view(operand);
    if (!isOfParts && summed.via !== undefined && via !== undefined)
      throw new CompileError(`%${v.name}: a gather of a gather is not supported`);
    const list = isOfParts ? via : (via ?? summed.via);
    return {
      op: 'segmentSum',
      buffer: isOfParts ? this.rowSumOf(node) : this.bufferOf(summed.base),
      width,
      parts: isOfParts ? count / ROW_SUM_BLOCK : count,
      ...defined({ via: list && this.bufferOf(list) }),
      ...combinedBy(node),
    };
  }

  /** The stored value behind `v`. */
  view(v: Value): View {
    return viewOf(v, this.defs, this.fused);
  }
}

const combinedBy = ({ op }: SumNode): { readonly by?: 'max' } => (op === 'reduce_max' ? { by: 'max' } : {});

interface ElementContext {
  readonly root: Value;
  readonly group: Group | undefined;
  readonly accumulators: ReadonlyMap<Value, 0 | 1>;
  readonly visit: Visit;
}

/** The sum over a head of what the same epilogue computes. */
function groupSum(v: Value, { operands: { x } }: SumNode, domain: Domain, visit: Visit): Scalar {
  const a = visit(x, { shape: x.type.shape, along: 'grid' });
  return { op: 'groupSum', a, width: segmentWidth(v, domain) };
}

/** Types to which only a store rounds; no scalar op does. */
const ROUNDED_BY_STORES: ReadonlySet<BufferDType> = new Set(['i32', 'f16', 'e4m3', 'i8']);

/** A cast inside an expression. */
function cast(node: NodeOf<'cast'>, x: Scalar, converted: Scalar, isRoot: boolean): Scalar {
  const [from, to] = [node.operands.x.type.dtype, node.result.type.dtype];
  const isExact = !ROUNDED_BY_STORES.has(to) || from === to || from === 'bool';
  if (!isExact && x.op === 'const') return { op: 'const', value: roundToDType(x.value, to) };
  if (!isExact && !isRoot)
    throw new CompileError(
      `%${node.result.name}: a cast from ${from} to ${to} that the same kernel reads again is not supported; ` +
        `only a stored value is rounded to ${to}`,
    );
  return converted;
}

/** The extents other than 1. */
const extents = (shape: readonly Dim[]): readonly Dim[] => shape.filter((dim) => dim !== 1);

/** The domain of `base` when its reshape `v` is read in `domain`. */
function unfold(v: Value, base: Value, domain: Domain): Domain {
  if (extents(base.type.shape).length === 0) return { shape: base.type.shape, along: 'one element' };
  const { kind } = access(v, domain, undefined);
  if (kind === 'periodic' || kind === 'columnPeriodic') throw unreadable(v, domain);
  return { shape: base.type.shape, along: kind === 'element' ? 'grid' : kind };
}

/** How a value of shape `v` is read at an element of `domain`, by NumPy broadcasting. */
function access(v: Value, domain: Domain, via: string | undefined): Access {
  const gather = via === undefined ? {} : { via };
  const whole = extents(v.type.shape);
  if (domain.along !== 'grid') {
    const isWhole = whole.length > 0 && whole.join() === extents(domain.shape).join();
    if (isWhole && domain.along === 'row') return { kind: 'row', ...gather };
    if (isWhole && domain.along === 'column' && via === undefined) return { kind: 'column' };
    throw unreadable(v, domain);
  }
  const pad = Math.max(0, domain.shape.length - v.type.shape.length);
  const shape: readonly Dim[] = [...new Array<Dim>(pad).fill(1), ...v.type.shape];
  const fits = (axis: number): boolean => shape[axis] === domain.shape[axis];
  const rest = shape.slice(1);
  if (whole.length > 0 && fits(0)) {
    if (rest.every((dim) => dim === 1)) return { kind: 'row', ...gather };
    if (rest.every((_, i) => fits(i + 1))) return { kind: 'element', ...gather };
    const period = shape.at(-1);
    if (typeof period === 'number' && fits(shape.length - 1) && rest.slice(0, -1).every((dim) => dim === 1))
      return { kind: 'periodic', period, ...gather };
  } else if (v.type.shape.length > 0 && shape[0] === 1 && via === undefined) {
    // One number for all columns.
    if (whole.length === 0) return { kind: 'columnPeriodic', period: 1 };
    if (rest.every((_, i) => fits(i + 1))) return { kind: 'column' };
    const period = shape.at(-1);
    if (typeof period === 'number' && fits(shape.length - 1) && rest.slice(0, -1).every((dim) => dim === 1))
      return { kind: 'columnPeriodic', period };
  }
  throw unreadable(v, domain);
}

/**
 * Number of columns of `domain` for each element of `v`, whose last extents are 1 where those of the domain are not:
 * [T, n, 1] for heads. A vector has one column for its only head.
 */
function segmentWidth(v: Value, domain: Domain): number {
  const { shape } = v.type;
  if (domain.along === 'row' && extents(shape).join() === extents(domain.shape).join()) return 1;
  const trailing = shape.length - 1 - shape.findLastIndex((dim, axis) => dim !== 1 || axis === 0);
  const kept = shape.length - trailing;
  const isPrefix =
    domain.shape.length === shape.length && shape.slice(0, kept).every((dim, i) => dim === domain.shape[i]);
  if (domain.along !== 'grid' || !isPrefix) throw unreadable(v, domain);
  return domain.shape.slice(kept).reduce<number>((product, dim) => {
    if (isSymbol(dim)) throw unreadable(v, domain);
    return product * dim;
  }, 1);
}

const unreadable = (v: Value, domain: Domain): CompileError =>
  new CompileError(
    `%${v.name}: reading [${v.type.shape.join(', ')}] in the domain [${domain.shape.join(', ')}] is not supported`,
  );
