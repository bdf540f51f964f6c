import {
  definitions,
  rewrite,
  type Graph,
  type Node,
  type NodeOf,
  type Rewriter,
  type Value,
} from '../ir/graph/graph.js';
import { DRAFT_FEATURES } from '../ir/stepping.js';
import { OPS } from '../ir/ops/index.js';
import { isSymbol, type ExtentName } from '../ir/types.js';

/**
 * Does not compute rows that are never scored. gather_rows(f(x), row) becomes f(gather_rows(x, row)) for every row-wise
 * f, back to the last values that are needed in full: the keys and values of some attention. An attention whose own
 * result is only gathered keeps all keys but takes `row` as its list of queries. The last layer's O projection, its FFN
 * and the head then run on scored rows only.
 */
export function pruneDeadRows(graph: Graph): Graph {
  const defs = definitions(graph);
  const sunk = new Map<Value, Map<Value, Value>>();
  const wholes = new Map<ExtentName, ReadonlySet<Value>>();
  return rewrite(graph, (node, rewriter) => {
    if (node.op !== 'gather_rows' || node.operands.index.kind !== 'param') return undefined;
    const { x, index: row } = node.operands;
    const [[all = 0], [some = 0]] = [x.type.shape, row.type.shape];
    if (!isSymbol(all) || !isSymbol(some) || all === some) return undefined;
    const full = wholes.get(all) ?? neededInFull(graph, defs, all);
    wholes.set(all, full);
    const inner = defs.get(x);
    if (full.has(x) || inner === undefined || !commutes(inner, all)) return undefined;
    const memo = sunk.get(row) ?? new Map<Value, Value>();
    sunk.set(row, memo);
    return sink(x, row, { all, some, defs, full, memo, rewriter });
  });
}

interface PrunedRows {
  /** The extent of all rows, and that of the gathered ones. */
  readonly all: ExtentName;
  readonly some: ExtentName;
  readonly defs: ReadonlyMap<Value, Node>;
  readonly full: ReadonlySet<Value>;
  readonly memo: Map<Value, Value>;
  readonly rewriter: Rewriter;
}

/** The value of gather_rows(x, row), computed from as few rows as possible. x has all rows. */
function sink(x: Value, row: Value, context: PrunedRows): Value {
  const known = context.memo.get(x);
  if (known !== undefined) return known;
  const node = context.defs.get(x);
  const { rewriter } = context;
  const result = node === undefined || context.full.has(x) ? undefined : sinkNode(node, row, context);
  const value =
    result ??
    rewriter.add(
      'gather_rows',
      { x: inMemory(x, node, rewriter), index: rewriter.map(row) },
      {},
      `${x.name}_scored`,
      node?.path,
    );
  context.memo.set(x, value);
  return value;
}

/**
 * `x`, whose rows can be gathered. Rows that are themselves gathered from a table (the embedding of an f32 checkpoint)
 * are not in memory in token order until a cast writes them there.
 */
function inMemory(x: Value, node: Node | undefined, rewriter: Rewriter): Value {
  const rows = rewriter.map(x);
  return node?.op === 'gather_rows'
    ? rewriter.add('cast', { x: rows }, { dtype: x.type.dtype }, `${x.name}_rows`, node.path)
    : rows;
}

/** Whether rows of the node's result can be computed from rows of its operands (and all keys, for attention). */
function commutes(node: Node, all: ExtentName): boolean {
  const rank = node.result.type.shape.length;
  const isByRow = (v: Value): boolean => v.type.shape[0] === all;
  const { fuse } = OPS[node.op];
  switch (fuse) {
    case 'opaque':
      return node.op === 'attention' && node.operands.queryRow === undefined;
    case 'sum':
    case 'reduction':
      return rank > 1;
    case 'contraction':
      return (node.op === 'linear' || node.op === 'head_linear') && !isByRow(node.operands.w);
    // A lower-rank operand would broadcast along another axis than rows.
    case 'elementwise':
      return node.inputs.every((v) => !isByRow(v) || v.type.shape.length === rank);
    case 'rotation':
      return true;
    case 'view':
      return node.inputs.every(isByRow);
    case 'gather':
    case 'write':
    case 'index':
    case 'literal':
    case 'movement':
      return false;
    default:
      return fuse satisfies never;
  }
}

function sinkNode(node: Node, row: Value, context: PrunedRows): Value | undefined {
  if (!commutes(node, context.all)) return undefined;
  const { rewriter } = context;
  const gathered = (v: Value): Value => (v.type.shape[0] === context.all ? sink(v, row, context) : rewriter.map(v));
  const hint = `${node.result.name}_scored`;
  if (node.op === 'attention') return rewriter.rebuild(node, { queryRow: rewriter.map(row) }, {}, hint, node.path);
  if (node.op !== 'reshape') return rewriter.copy(node, gathered, hint, node.path);
  const shape = [context.some, ...node.result.type.shape.slice(1)];
  return rewriter.rebuild(node, { x: gathered(node.operands.x) }, { shape }, hint, node.path);
}

/**
 * Values that are needed in all rows: what some attention reads (its q, k and v), what is written to a state, and
 * everything that they depend on. What a draft head reads of all tokens is no reason to compute scored rows among them:
 * they have the kernels, and so the bits, of a model that drafts nothing.
 */
function neededInFull(graph: Graph, defs: ReadonlyMap<Value, Node>, all: ExtentName): ReadonlySet<Value> {
  const full = new Set<Value>();
  const visit = (v: Value): void => {
    if (full.has(v)) return;
    full.add(v);
    defs.get(v)?.inputs.forEach(visit);
  };
  const isForAll = ({ operands: { x, rows } }: NodeOf<'write_rows'>): boolean =>
    rows.type.shape[0] === all && x.name !== DRAFT_FEATURES;
  for (const node of graph.nodes)
    if (
      node.op === 'attention' ||
      node.op === 'scan' ||
      node.op === 'scan_state' ||
      (node.op === 'write_rows' && isForAll(node))
    )
      node.inputs.forEach(visit);
  // What is made of tokens before others has a kernel for all of them.
  const past = new Set<Value>();
  for (const { op, inputs, operands, result } of graph.nodes) {
    const isPast =
      op === 'gather_rows' ? defs.get(operands.index)?.op === 'token_before' : inputs.some((v) => past.has(v));
    if (!isPast || (op !== 'gather_rows' && OPS[op].fuse !== 'elementwise')) continue;
    past.add(result);
    visit(result);
  }
  graph.results.filter((v) => v.type.shape[0] === all).forEach(visit);
  return full;
}
