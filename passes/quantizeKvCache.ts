import { CompileError, UserError } from '../errors.js';
import { type CacheFormat, stateScales } from '../ir/function.js';
import { definitions, type Graph, type NodeOf, rewrite, type Rewriter, type Value } from '../ir/graph/graph.js';
import { versionsOf } from '../ir/graph/versions.js';
import { LARGEST } from '../ir/round.js';
import { extentsOf } from '../ir/types.js';
import { at } from '../system/at.js';
import { factorByMean, RowScaler, type Scaled, TINY } from './rowScaler.js';

/** One node that writes rows of a state, which are to be codes: keys or values of one layer. */
interface Write {
  readonly node: NodeOf<'write_rows'>;
  readonly state: Value;
  /** The rows as they are computed, in f32. */
  readonly rows: Value;
}

/**
 * Keys and values that attention reads become codes of 8 bits, with a scale for each row and head. Those that a state
 * keeps are written to it as codes, and their scales to a state of their own. Keys and values that no state keeps (of
 * `score`) are rounded in the same way, so that both functions give the same answers.
 *
 * The scale of a head of d numbers is r / c. For e4m3 r is their root mean square and c the largest power of two with
 * c·√d ≤ 448: no number exceeds r·√d, so nothing saturates, and a float rounds equally well at any scale (decision 19).
 * For i8 r is the largest magnitude and c = 127 (decision 20). The scale belongs to one row: one for a page would
 * depend on which calls wrote the page.
 *
 * Throws CompileError where rows of a state reach attention in another way, or no attention was recognized; UserError
 * for models that have no such keys and values.
 */
export function quantizeKvCache(graph: Graph, cache: CacheFormat | undefined): Graph {
  if (cache === undefined) return graph;
  const has = (op: string): boolean => graph.nodes.some((node) => node.op === op);
  if (has('scan') && !has('attention'))
    throw new UserError(
      'there are no keys and values to keep in 8 bits: no layer has attention',
      'leave out --kv-cache',
    );
  const defs = definitions(graph);
  const wide = (v: Value): Value => {
    const node = defs.get(v);
    return node?.op === 'cast' && node.operands.x.type.dtype === 'f32' ? node.operands.x : v;
  };
  const writes = writesOf(graph, wide);
  /** The states that take the place of each: its codes, and their scales. */
  const states = new Map<Value, Scaled>();
  for (const { state } of writes.values()) {
    const [rows, heads] = extentsOf(state.type.shape, 3);
    const type = { dtype: 'f32', shape: [rows, heads] } as const;
    states.set(state, {
      codes: { ...state, type: { ...state.type, dtype: cache } },
      scale: { kind: 'state', name: stateScales(state.name), type },
    });
  }
  const kept = new Map<Value, Scaled>();
  const rewritten = rewrite(graph, (node, rewriter) => {
    // Writes are made again where attention reads them, keys beside values.
    const write = writes.get(node.result);
    if (write !== undefined) return states.get(write.state)?.codes;
    if (node.op !== 'attention') return undefined;
    const { k, v } = node.operands;
    if (node.attributes.tailed === true)
      throw new UserError(
        'keys of latent attention are kept in 16 bits: they are values as well, and all heads read them',
        'leave out --kv-cache',
      );
    if ([k, v].some(({ type, kind }) => type.shape.length !== 3 || kind === 'state'))
      throw new CompileError(`%${node.result.name}: keys and values that this call has not computed cannot be codes`);
    const fresh = [k, v].filter((each) => !kept.has(each));
    const rows = fresh.map((each) => ({ each, own: asF32(wide(writes.get(each)?.rows ?? each), rewriter) }));
    const sized = rows.map(({ each, own }) => ({ each, own, size: sizeOf(own, cache, rewriter) }));
    const scaled = sized.map(({ each, own, size }) => ({ each, ...codesOf(own, size, cache, rewriter) }));
    const written = scaled.map(({ each, codes, scale }) => {
      const to = writes.get(each);
      const state = to && states.get(to.state);
      return { each, scale, state, to, codes: writeRows(to, state?.codes, codes, rewriter) };
    });
    for (const { each, codes, scale, state, to } of written)
      kept.set(each, { codes, scale: writeRows(to, state?.scale, scale, rewriter) });
    const [keys, values] = [kept.get(k), kept.get(v)];
    if (keys === undefined || values === undefined) return undefined;
    return rewriter.rebuild(
      node,
      { k: keys.codes, v: values.codes, kScale: keys.scale, vScale: values.scale },
      { scaled: true },
    );
  });
  const lost = [...writes.values()].find(({ node }) => !kept.has(node.result));
  if (lost !== undefined || rewritten === graph)
    throw new CompileError(
      `${lost === undefined ? `@${graph.name}` : `%${lost.node.result.name}`}: no attention was recognized that ` +
        `reads keys and values as ${cache}`,
    );
  return {
    ...rewritten,
    states: graph.states.flatMap((state) => {
      const own = states.get(state);
      return own === undefined ? [state] : [own.codes, own.scale];
    }),
    gives: rewritten.gives.flatMap((next, i) => {
      const own = kept.get(at(graph.gives, i));
      return own === undefined ? [next] : [own.codes, own.scale];
    }),
  };
}

/** The writes of rows of heads, by what they make. */
function writesOf(graph: Graph, wide: (v: Value) => Value): ReadonlyMap<Value, Write> {
  const versions = versionsOf(graph);
  return new Map(
    graph.nodes.flatMap((node) => {
      const version = versions.get(node.result);
      if (node.op !== 'write_rows' || version?.state.type.shape.length !== 3) return [];
      if (version.writes !== 1)
        throw new CompileError(`%${node.result.name}: state ${version.state.name} is written twice`);
      return [[node.result, { node, state: version.state, rows: wide(node.operands.rows) }] as const];
    }),
  );
}

function asF32(x: Value, rewriter: Rewriter): Value {
  const own = rewriter.map(x);
  return own.type.dtype === 'f32' ? own : rewriter.add('cast', { x: own }, { dtype: 'f32' }, `${x.name}_wide`);
}

/** [T, g, 1]: of each head the mean of the squares (e4m3) or the largest of them (i8), and not below a little. */
function sizeOf(x: Value, cache: CacheFormat, rewriter: Rewriter): Value {
  const rows = new RowScaler(rewriter, x);
  const squares = rows.binary('mul', x, x, 'squares');
  const tiny = rows.literal(TINY);
  if (cache === 'i8') return rows.binary('max', rows.unary('reduce_max', squares, 'most'), tiny, 'most_square');
  const mean = rewriter.add('mean', { x: squares }, { apart: true }, `${x.name}_mean`);
  return rows.binary('add', mean, tiny, 'mean_square');
}

/** x / (r / c) in the format of the cache, and r / c, where r² is `size`. */
function codesOf(x: Value, size: Value, cache: CacheFormat, rewriter: Rewriter): Scaled {
  const [rows, heads, width] = extentsOf(x.type.shape, 3);
  const by = cache === 'i8' ? LARGEST.i8 : factorByMean(Number(width));
  const { codes, scale } = new RowScaler(rewriter, x).bySquare(size, by, cache);
  return { codes, scale: rewriter.add('reshape', { x: scale }, { shape: [rows, heads] }, `${x.name}_scales`) };
}

/** `rows` as `state` holds them after a write, or as they are where nothing keeps them. */
function writeRows(write: Write | undefined, state: Value | undefined, rows: Value, rewriter: Rewriter): Value {
  if (write === undefined || state === undefined) return rows;
  const slot = rewriter.map(write.node.operands.slot);
  return rewriter.add('write_rows', { x: state, rows, slot }, {}, `${rows.name}_cache`);
}
