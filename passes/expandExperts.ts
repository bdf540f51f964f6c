import {
  definitions,
  type Graph,
  type Node,
  type NodeOf,
  rewrite,
  type Rewriter,
  type Value,
} from '../ir/graph/graph.js';
import { at } from '../system/at.js';
import { eliminateDeadCode } from './eliminateDeadCode.js';
import { biasByOwner, type Mixture, MixtureSearch } from './recognizeExperts.js';

/** In the paths of kernels that multiply every row by the matrices of every expert. */
export const EVERY_EXPERT = 'every_expert';

/**
 * A mixture of experts whose weights are no choice that recognizeExperts knows becomes Σ_e w[:, e]·expert_e(x) for all
 * rows, expert by expert: slow and right. What its weights take from whole rows, a maximum or the k largest, is
 * computed from columns: a maximum one by one, and a number is among the k largest if fewer than k go before it.
 */
export function expandExperts(graph: Graph): Graph {
  const search = new MixtureSearch(graph);
  const biased = search.biased(graph);
  const within = new Set<Node>([...biased.values()].map(({ product }) => product));
  const mixtures = new Map<Node, Mixture>([...biased].map(([node, { mixture }]) => [node, mixture]));
  for (const node of graph.nodes) {
    const found = node.op === 'linear' && !within.has(node) ? search.match(node) : undefined;
    if (found !== undefined) mixtures.set(node, found);
  }
  if (mixtures.size === 0) return graph;
  const behind = nodesBehind(
    graph,
    [...mixtures.values()].flatMap(({ weights, scales }) => [weights, ...(scales === undefined ? [] : [scales])]),
  );
  const next = rewrite(graph, (node, rewriter) => {
    const mixture = mixtures.get(node);
    if (mixture !== undefined) return sumOf(mixture, node, search, rewriter);
    if (!behind.has(node)) return undefined;
    if (node.op === 'top_mask') return maskOf(node, rewriter);
    return node.op === 'reduce_max' ? maximumOf(node, rewriter) : undefined;
  });
  // Products whose biases are added elsewhere are left without a reader.
  return biased.size === 0 ? next : eliminateDeadCode(next);
}

/** The nodes that `values` are computed from and that reduce rows with fixed columns. */
function nodesBehind(graph: Graph, values: readonly Value[]): ReadonlySet<Node> {
  const defs = definitions(graph);
  const seen = new Set<Node>();
  const visit = (v: Value): void => {
    const node = defs.get(v);
    // Beyond a product lies what the router reads.
    if (node === undefined || seen.has(node) || node.op === 'linear') return;
    seen.add(node);
    node.inputs.forEach(visit);
  };
  values.forEach(visit);
  return new Set([...seen].filter(({ inputs: [first] }) => first !== undefined && isTable(first)));
}

const isTable = ({ type: { shape } }: Value): boolean => shape.length === 2 && typeof shape[1] === 'number';

const columnsOf = (v: Value): number => Number(v.type.shape[1]);

const literal = (rewriter: Rewriter, value: number): Value => rewriter.add('const', {}, { value });

/** A literal vector that is 1 at the columns that `isMarked` names, and 0 elsewhere. */
function marks(rewriter: Rewriter, label: string, count: number, isMarked: (column: number) => boolean): Value {
  const values = Array.from({ length: count }, (_, column) => (isMarked(column) ? 1 : 0));
  return rewriter.add('vector', {}, { label, values }, label);
}

/** Column `at` of x [rows, columns] as [rows, 1]: a sum of it and zeros, which is exact. */
function column(rewriter: Rewriter, x: Value, at: number, path?: string): Value {
  const own = marks(rewriter, `column_${at}`, columnsOf(x), (each) => each === at);
  const [one, zero] = [literal(rewriter, 1), literal(rewriter, 0)];
  const isOwn = rewriter.add('eq', { a: own, b: one }, {}, 'is_own');
  return rewriter.add(
    'sum',
    { x: rewriter.add('select', { condition: isOwn, a: x, b: zero }, {}, 'own', path) },
    {},
    'column',
    path,
  );
}

function maximumOf({ operands }: NodeOf<'reduce_max'>, rewriter: Rewriter): Value {
  const x = rewriter.map(operands.x);
  const columns = Array.from({ length: columnsOf(x) }, (_, at) => column(rewriter, x, at));
  return columns.reduce((most, each) => rewriter.add('max', { a: most, b: each }, {}, 'most'));
}

/** What goes before a number is larger, or as large and further to the left. */
function maskOf({ operands, attributes }: NodeOf<'top_mask'>, rewriter: Rewriter): Value {
  const x = rewriter.map(operands.x);
  const count = columnsOf(x);
  const [zero, one] = [literal(rewriter, 0), literal(rewriter, 1)];
  const flag = (condition: Value, hint: string): Value =>
    rewriter.add('select', { condition, a: one, b: zero }, {}, hint);
  const least = literal(rewriter, attributes.k - 0.5);
  const kept = Array.from({ length: count }, (_, at) => {
    const own = column(rewriter, x, at);
    const isLarger = rewriter.add('sub', {
      a: one,
      b: flag(rewriter.add('eq', { a: rewriter.add('max', { a: x, b: own }), b: own }), 'at_most'),
    });
    const isLeft = marks(rewriter, `left_of_${at}`, count, (each) => each < at);
    const isEqual = rewriter.add('mul', { a: flag(rewriter.add('eq', { a: x, b: own }), 'is_equal'), b: isLeft });
    const before = rewriter.add(
      'sum',
      { x: rewriter.add('add', { a: isLarger, b: isEqual }, {}, 'goes_before') },
      {},
      'rank',
    );
    const isKept = flag(rewriter.add('eq', { a: rewriter.add('max', { a: before, b: least }), b: least }), 'is_kept');
    return rewriter.add('mul', { a: marks(rewriter, `column_${at}`, count, (each) => each === at), b: isKept });
  });
  return kept.reduce((sum, each) => rewriter.add('add', { a: sum, b: each }, {}, 'mask'));
}

/** Σ_e (inner_e ∘ w[:, e])·down_e, plus w[:, e] times the bias of down_e where there is one. */
function sumOf(mixture: Mixture, node: Node, search: MixtureSearch, rewriter: Rewriter): Value {
  const path = `${node.path}.${EVERY_EXPERT}`;
  const { experts, down, downBias } = mixture;
  const shares = rewriter.map(mixture.weights);
  const parts = Array.from({ length: experts }, (_, expert) => {
    const share = column(rewriter, shares, expert, path);
    const own = innerOf(mixture, expert, path, search, rewriter);
    const weighted = rewriter.add('mul', { a: own, b: share }, {}, 'weighted', path);
    const part = rewriter.add('linear', { x: weighted, w: rewriter.map(at(down, expert)) }, {}, 'part', path);
    if (downBias === undefined) return part;
    const bias = rewriter.scope(path, () => biasOfExpert(downBias, mixture, expert, rewriter));
    const added = rewriter.add('mul', { a: bias, b: share }, {}, 'bias_part', path);
    return rewriter.add('add', { a: part, b: added }, {}, 'part_biased', path);
  });
  return parts.reduce((sum, part) => rewriter.add('add', { a: sum, b: part }, {}, 'mixed', path));
}

/** Row `expert` of a table of biases for every row, f32[rows, columns]. The number of the row is read from memory. */
function biasOfExpert(table: Value, { x }: Mixture, expert: number, rewriter: Rewriter): Value {
  const number = literal(rewriter, expert);
  const row = rewriter.add('iota', {}, { size: x.type.shape.slice(0, 1) }, 'row');
  const float = rewriter.add('cast', { x: row }, { dtype: 'f32' }, 'row');
  const least = rewriter.add('max', { a: float, b: number }, {}, 'at_least');
  const owner = rewriter.add('min', { a: least, b: number }, {}, 'owner');
  return biasByOwner(table, rewriter.add('cast', { x: owner }, { dtype: 'i32' }, 'owner'), rewriter);
}

/** `inner` of one expert, from its own matrices. */
function innerOf(mixture: Mixture, expert: number, path: string, search: MixtureSearch, rewriter: Rewriter): Value {
  const { inner, x, experts, scales } = mixture;
  const left = rewriter.map(x);
  const by = scales && column(rewriter, rewriter.map(scales), expert, path);
  const read = by === undefined ? left : rewriter.add('mul', { a: left, b: by }, {}, 'scaled', path);
  const known = new Map<Value, Value>();
  const copy = (of: Value): Value => {
    const done = known.get(of);
    if (done !== undefined) return done;
    const table = search.biasTable(of, experts);
    const node = search.scaledProducts(of, experts)?.products ?? search.definition(of);
    const made =
      table !== undefined
        ? rewriter.scope(path, () => biasOfExpert(table, mixture, expert, rewriter))
        : node === undefined || of.type.shape.length === 0
          ? rewriter.map(of)
          : node.op === 'linear'
            ? rewriter.add('linear', { x: read, w: matrixOf(node, expert, search, rewriter) }, {}, 'own_product', path)
            : rewriter.copy(node, copy, 'own_inner', path);
    known.set(of, made);
    return made;
  };
  return copy(inner);
}

function matrixOf({ operands }: NodeOf<'linear'>, expert: number, search: MixtureSearch, rewriter: Rewriter): Value {
  const all = search.definition(operands.w);
  if (all?.op !== 'concat') throw new Error(`%${operands.w.name} has no matrix of each expert.`);
  return rewriter.map(at(all.operands.matrices, expert));
}
