import { type CacheFormat, stateScales } from '../ir/cacheFormat.js';
import { definitions, type Graph, type Node, rewrite, type Rewriter, type Value } from '../ir/graph/graph.js';
import { versionsOf } from '../ir/graph/versions.js';
import { LARGEST } from '../ir/round.js';
import { CompileError } from './compileError.js';

/** Keeps the scale of a head of zeros finite. Squares of what is larger than 1e-13 are far above it. */
const TINY = 1e-30;

/** One node that writes rows of a state, which are to be codes: keys or values of one layer. */
interface Write {
  readonly node: Node;
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
 * Throws CompileError where rows of a state reach attention in another way, or no attention was recognized.
 */
export function quantizeKvCache(graph: Graph, cache: CacheFormat | undefined): Graph {
  if (cache === undefined) return graph;
  const defs = definitions(graph);
  const wide = (v: Value): Value => {
    const node = defs.get(v);
    return node?.op === 'cast' && node.operands[0]!.type.dtype === 'f32' ? node.operands[0]! : v;
  };
  const writes = writesOf(graph, wide);
  const scaleStates = new Map<Value, Value>();
  const codeStates = new Map<Value, Value>();
  for (const { state } of writes.values()) {
    const [rows, heads] = state.type.shape as readonly [number, number];
    codeStates.set(state, { ...state, type: { ...state.type, dtype: cache } });
    const type = { dtype: 'f32', shape: [rows, heads] } as const;
    scaleStates.set(state, { kind: 'state', name: stateScales(state.name), type });
  }
  const kept = new Map<Value, Scaled>();
  const rewritten = rewrite(graph, (node, rewriter) => {
    // Writes are made again where attention reads them, keys beside values.
    if (writes.has(node.result)) return codeStates.get(writes.get(node.result)!.state)!;
    if (node.op !== 'attention') return undefined;
    if (node.operands.slice(1, 3).some((v) => v.type.shape.length !== 3 || v.kind === 'state'))
      throw new CompileError(`%${node.result.name}: keys and values that this call has not computed cannot be codes`);
    const [q, k, v, ...rest] = node.operands as [Value, Value, Value, ...Value[]];
    const fresh = [k, v].filter((each) => !kept.has(each));
    const rows = fresh.map((each) => asF32(wide(writes.get(each)?.rows ?? each), rewriter));
    const sizes = rows.map((x) => sizeOf(x, cache, rewriter));
    const scaled = rows.map((x, i) => codesOf(x, sizes[i]!, cache, rewriter));
    const codes = fresh.map((each, i) => writeRows(writes.get(each), codeStates, scaled[i]!.codes, rewriter));
    const scales = fresh.map((each, i) => writeRows(writes.get(each), scaleStates, scaled[i]!.scale, rewriter));
    fresh.forEach((each, i) => kept.set(each, { codes: codes[i]!, scale: scales[i]! }));
    const [keys, values] = [kept.get(k)!, kept.get(v)!];
    return rewriter.add(
      'attention',
      [rewriter.map(q), keys.codes, values.codes, keys.scale, values.scale, ...rest.map(rewriter.map)],
      { ...node.attributes, scaled: true },
      node.result.name,
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
    states: graph.states.flatMap((state) =>
      codeStates.has(state) ? [codeStates.get(state)!, scaleStates.get(state)!] : [state],
    ),
    gives: graph.gives.flatMap((given, i) => {
      const own = kept.get(given);
      return own === undefined ? [rewritten.gives[i]!] : [own.codes, own.scale];
    }),
  };
}

/** Codes and scales of rows of heads. */
interface Scaled {
  readonly codes: Value;
  readonly scale: Value;
}

/** The writes of rows of heads, by what they make. */
function writesOf(graph: Graph, wide: (v: Value) => Value): ReadonlyMap<Value, Write> {
  const versions = versionsOf(graph);
  return new Map(
    graph.nodes.flatMap((node) => {
      const version = versions.get(node.result);
      if (version?.state.type.shape.length !== 3) return [];
      if (version.writes !== 1)
        throw new CompileError(`%${node.result.name}: state ${version.state.name} is written twice`);
      return [[node.result, { node, state: version.state, rows: wide(node.operands[1]!) }] as const];
    }),
  );
}

function asF32(x: Value, rewriter: Rewriter): Value {
  const own = rewriter.map(x);
  return own.type.dtype === 'f32' ? own : rewriter.add('cast', [own], { dtype: 'f32' }, `${x.name}_wide`);
}

/** [T, g, 1]: of each head the mean of the squares (e4m3) or the largest of them (i8), and not below a little. */
function sizeOf(x: Value, cache: CacheFormat, rewriter: Rewriter): Value {
  const squares = rewriter.add('mul', [x, x], {}, `${x.name}_squares`);
  const tiny = rewriter.add('const', [], { value: TINY }, `${x.name}_const`);
  if (cache === 'i8') {
    const most = rewriter.add('reduce_max', [squares], {}, `${x.name}_most`);
    return rewriter.add('max', [most, tiny], {}, `${x.name}_most_square`);
  }
  const mean = rewriter.add('mean', [squares], { apart: true }, `${x.name}_mean`);
  return rewriter.add('add', [mean, tiny], {}, `${x.name}_mean_square`);
}

/** x / (r / c) in the format of the cache, and r / c, where r² is `size`. */
function codesOf(x: Value, size: Value, cache: CacheFormat, rewriter: Rewriter): Scaled {
  const add = (op: Parameters<Rewriter['add']>[0], operands: readonly Value[], what: string): Value =>
    rewriter.add(op, operands, {}, `${x.name}_${what}`);
  const literal = (value: number): Value => rewriter.add('const', [], { value }, `${x.name}_const`);
  const [rows, heads, width] = x.type.shape;
  const by = cache === 'i8' ? LARGEST.i8 : 2 ** Math.floor(Math.log2(LARGEST.e4m3 / Math.sqrt(Number(width))));
  const inverse = add('mul', [add('rsqrt', [size], 'inverse_root'), literal(by)], 'inverse');
  const codes = rewriter.add('cast', [add('mul', [x, inverse], 'scaled')], { dtype: cache }, `${x.name}_${cache}`);
  const scale = add('mul', [add('sqrt', [size], 'root'), literal(1 / by)], 'scale');
  const shape = { shape: [rows!, heads!] };
  return { codes, scale: rewriter.add('reshape', [scale], shape, `${x.name}_scales`) };
}

/** `rows` as the state that `states` has for a write holds them, or as they are where nothing keeps them. */
function writeRows(
  write: Write | undefined,
  states: ReadonlyMap<Value, Value>,
  rows: Value,
  rewriter: Rewriter,
): Value {
  if (write === undefined) return rows;
  const slot = rewriter.map(write.node.operands[2]!);
  return rewriter.add('write_rows', [states.get(write.state)!, rows, slot], {}, `${rows.name}_cache`);
}
