/** Kernels of recurrent layers on a CPU. */
import type { LinksKernel, ScanKernel } from '../../ir/kernel.js';
import { ROW_COLUMNS } from '../../ir/plan.js';
import type { KeptStates } from '../../ir/scan.js';
import { roundUp } from '../../ir/types.js';
import { type COperands, elementType, floatLiteral } from './operands.js';
import { constantTable, type ConfigFields, type Emitted, kernelFunction } from './unit.js';

/** States of rows where paths part that an item keeps: 16 columns each. */
const KEPT_STATES = 16;

export function emitLinks(kernel: LinksKernel, operands: COperands, symbol: string): Emitted {
  const index = (name: string): number => operands.get(name).index;
  const { paths, end, before } = kernel;
  const inputs: ConfigFields =
    paths.kind === 'column'
      ? { subtreeEnd: index(paths.subtreeEnd) }
      : {
          keys: operands.extentIndex(operands.rowsOf(paths.key).extent),
          isPath: true,
          begin: index(paths.begin),
          position: index(paths.position),
          key: index(paths.key),
        };
  const links = before.map(({ back, out }) => ({ back, out: index(out) }));
  const config = {
    rows: operands.extentIndex(kernel.rows),
    ...inputs,
    hasEnd: end !== undefined,
    end: end === undefined ? undefined : index(end),
    links: links.length === 0 ? undefined : 'links',
    count: links.length,
  };
  const tables = links.length === 0 ? [] : [constantTable('Link', 'links', links)];
  const source = kernelFunction({ symbol, tables, type: 'LinksConfig', config, call: 'tw_links' });
  return { includes: ['recurrent/links.h'], helpers: [], source, scratchBytes: 0 };
}

function keptFields({ state, from, to: [to, also] }: KeptStates, operands: COperands): ConfigFields {
  const index = (name: string): number => operands.get(name).index;
  const { stride, index: states } = operands.get(state);
  return { keeps: true, states, from: index(from), to: index(to), also: index(also), statesStride: stride };
}

export function emitScan(kernel: ScanKernel, operands: COperands, symbol: string): Emitted {
  const { keyHeads, heads, keyDim, valueDim, rule, scale = 1, epsilon } = kernel;
  const [q, k, v, out] = [
    operands.get(kernel.q),
    operands.get(kernel.k),
    operands.get(kernel.v),
    operands.get(kernel.out),
  ];
  const [decay, beta] = [operands.get(kernel.decay), operands.get(kernel.beta)];
  const skip = kernel.skip === undefined ? undefined : operands.get(kernel.skip);
  const config = {
    rows: operands.extentIndex(kernel.rows),
    q: q.index,
    k: k.index,
    v: v.index,
    decay: decay.index,
    beta: beta.index,
    skip: skip?.index,
    out: out.index,
    before: operands.get(kernel.before).index,
    end: operands.get(kernel.end).index,
    qStride: q.stride,
    kStride: k.stride,
    vStride: v.stride,
    decayStride: decay.stride,
    betaStride: beta.stride,
    skipStride: skip?.stride,
    skipType: skip && elementType(skip),
    hasSkip: skip !== undefined,
    outStride: out.stride,
    type: elementType(q),
    outType: elementType(out),
    keyHeads,
    heads,
    keyDim,
    valueDim,
    ...(kernel.takesTurns === true ? { takesTurns: true } : {}),
    isDelta: rule === 'delta',
    isNormed: epsilon !== undefined,
    scale: floatLiteral(scale),
    epsilon: epsilon === undefined ? undefined : floatLiteral(epsilon),
    kept: KEPT_STATES,
    pad: roundUp(heads * valueDim, ROW_COLUMNS) - heads * valueDim,
    ...(kernel.kept === undefined ? {} : keptFields(kernel.kept, operands)),
  };
  const padded = roundUp(keyDim, 16);
  const bytes = (padded * 16 * (1 + KEPT_STATES) + 2 * padded) * 4;
  const source = kernelFunction({ symbol, tables: [], type: 'ScanConfig', config, call: 'tw_scan' });
  return { includes: ['recurrent/scan.h'], helpers: [], source, scratchBytes: roundUp(bytes, 4096) };
}
