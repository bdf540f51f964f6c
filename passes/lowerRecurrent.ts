/** The kernels of recurrent layers: which token is before another, and states that go from token to token. */
import { CompileError } from '../errors.js';
import { isOp, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { LinksKernel, ScanKernel } from '../ir/kernel.js';
import { pathsOf } from '../ir/ops/recurrent.js';
import type { TokenPaths } from '../ir/paths.js';
import type { KeptStates } from '../ir/scan.js';
import { extentsOf } from '../ir/types.js';
import { defined } from '../system/defined.js';
import { type LoweredHead, type Lowering, onlyAnchor } from './lowering.js';
import type { GroupOf } from './placedValues.js';

export function lowerLinks(lowering: Lowering, { anchors, rows }: GroupOf<'links'>, head: LoweredHead): LinksKernel {
  const { buffers } = lowering;
  const before = anchors.filter((node) => isOp(node, 'token_before'));
  const ends = anchors.filter((node) => isOp(node, 'subtree_end'));
  const all = before.map(({ operands, attributes }): TokenPaths<string> => {
    const paths = pathsOf<Value>(operands, attributes);
    const buffer = (v: Value): string => lowering.bufferBehind(v);
    return paths.kind === 'column'
      ? { kind: paths.kind, subtreeEnd: buffer(paths.subtreeEnd) }
      : { kind: paths.kind, begin: buffer(paths.begin), position: buffer(paths.position), key: buffer(paths.key) };
  });
  const [paths, ...others] = all;
  if (paths === undefined || others.some((each) => JSON.stringify(each) !== JSON.stringify(paths)) || ends.length > 1)
    throw new CompileError(`${head.path}: rows before tokens are found by one list of paths`);
  return {
    ...head,
    anchor: 'links',
    rows,
    paths,
    before: before.map(({ attributes: { back }, result }) => ({ back, out: buffers.of(result) })),
    ...defined({ end: ends[0] && buffers.of(ends[0].result) }),
  };
}

export function lowerScan(
  lowering: Lowering,
  { anchors, rows, stored }: GroupOf<'scan'>,
  head: LoweredHead,
): ScanKernel {
  const [result, ...more] = stored;
  if (result === undefined || more.length > 0)
    throw new CompileError(`${head.path}: a scan must have exactly one stored result`);
  const scan = onlyAnchor(anchors, 'scan', head);
  const keeping = anchors.find((node) => isOp(node, 'scan_state'));
  const { operands, attributes } = scan;
  if ((operands.state === undefined) !== (keeping === undefined))
    throw new CompileError(`${head.path}: states that a scan goes on from are kept behind it`);
  const buffer = (v: Value): string => lowering.bufferBehind(v);
  const [, keyHeads, keyDim] = extentsOf(operands.q.type.shape, 3);
  const [, heads, valueDim] = extentsOf(operands.v.type.shape, 3);
  if ([keyHeads, keyDim, heads, valueDim].some((each) => typeof each !== 'number'))
    throw new CompileError(`${head.path}: a scan needs fixed heads`);
  const { rule, scale, epsilon, takesTurns } = attributes;
  return {
    ...head,
    anchor: 'scan',
    rows,
    rule,
    keyHeads: Number(keyHeads),
    heads: Number(heads),
    keyDim: Number(keyDim),
    valueDim: Number(valueDim),
    ...defined({ scale, epsilon }),
    ...(takesTurns === true ? { takesTurns } : {}),
    q: buffer(operands.q),
    k: buffer(operands.k),
    v: buffer(operands.v),
    decay: buffer(operands.decay),
    beta: buffer(operands.beta),
    before: buffer(operands.before),
    end: buffer(operands.end),
    ...defined({ skip: operands.skip && buffer(operands.skip) }),
    out: lowering.buffers.of(result),
    ...defined({ kept: keeping && keptBy(lowering, keeping) }),
  };
}

const keptBy = ({ buffers }: Lowering, { operands: { state, from, to, also } }: NodeOf<'scan_state'>): KeptStates => ({
  state: buffers.of(state),
  from: buffers.of(from),
  to: [buffers.of(to), buffers.of(also)],
});
