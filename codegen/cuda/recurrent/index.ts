/** Kernels of recurrent layers on a GPU. */
import type { CudaLoopSchedule } from '../../../ir/cuda.js';
import type { LinksKernel, ScanKernel } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { floatLiteral } from '../text/statements.js';
import { type CudaOperands, ELEMENT_TYPES, type EmittedCuda, emittedPlain, kernelHead } from '../text/operands.js';
import { aboutKernel, buffersText, type ConfigFields, unitText } from '../text/unit.js';

/** A warp a row. */
export function emitLinks(
  kernel: LinksKernel,
  operands: CudaOperands,
  { threads }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  const { paths, before, end, rows } = kernel;
  const isPath = paths.kind === 'path';
  const fields: ConfigFields = {
    back: before.map(({ back }) => back),
    count: before.length,
    isPath,
    hasEnd: end !== undefined,
    threads,
  };
  const named =
    paths.kind === 'path'
      ? { begin: paths.begin, position: paths.position, key: paths.key }
      : { subtreeEnd: paths.subtreeEnd };
  const buffers = buffersText('LinksBuffers', operands, {
    ...named,
    ...(end === undefined ? {} : { end }),
    before: before.map(({ out }) => out),
  });
  const { extents } = operands;
  const keys = paths.kind === 'path' ? operands.rowsOf(paths.key).extent : rows;
  const source = unitText({
    about: aboutKernel(kernel, `${threads} threads`),
    includes: ['recurrent/links.cuh'],
    config: { type: 'LinksConfig', fields },
    functors: [],
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads }),
    body: `  await_previous();\n  links<config>(${rows}, ${keys}, ${buffers});`,
  });
  return emittedPlain(source, threads, { kind: 'tiles', extent: rows, per: threads / 32, times: 1 });
}

/** Columns of a warp, and rows of queries, keys and values that are fetched together, as scan.cuh has them. */
const WARP_COLUMNS = 8;
const CHUNK_ROWS = 8;
/** Most warps of a block: all have the same queries and keys. */
const MAX_WARPS = 4;
/** Rows in which the trees of a block begin; fewer where many trees may have a row each, as texts that go on do. */
const WINDOW = 32;
const STEP_WINDOW = 8;
/** States of rows where paths part that a block keeps: two of 128 rows leave room for three blocks. */
const KEPT_STATES = 2;

export function emitScan(kernel: ScanKernel, operands: CudaOperands, _: CudaLoopSchedule, symbol: string): EmittedCuda {
  const { keyHeads, heads, keyDim, valueDim, rule, scale = 1, epsilon, skip, rows } = kernel;
  const warps = Math.min(MAX_WARPS, Math.ceil(valueDim / WARP_COLUMNS));
  const threads = 32 * warps;
  const columns = warps * WARP_COLUMNS;
  const stride = (name: string): number => operands.get(name).stride;
  const padded = roundUp(keyDim, 16);
  const { kept } = kernel;
  const window = kept === undefined ? WINDOW : STEP_WINDOW;
  const chunk =
    CHUNK_ROWS * (2 * padded + columns + 2) + 2 * (CHUNK_ROWS + 4) + (kept === undefined ? 0 : 2 * CHUNK_ROWS);
  const sharedBytes = 4 * (3 * chunk + (KEPT_STATES * padded * threads) / 4);
  const fields: ConfigFields = {
    keyHeads,
    heads,
    keyDim,
    valueDim,
    isDelta: rule === 'delta',
    isNormed: epsilon !== undefined,
    hasSkip: skip !== undefined,
    scale: { name: floatLiteral(scale) },
    epsilon: { name: floatLiteral(epsilon ?? 0) },
    qStride: stride(kernel.q),
    kStride: stride(kernel.k),
    vStride: stride(kernel.v),
    decayStride: stride(kernel.decay),
    betaStride: stride(kernel.beta),
    skipStride: skip === undefined ? 0 : stride(skip),
    outStride: stride(kernel.out),
    window,
    kept: KEPT_STATES,
    ...(kept === undefined ? {} : { keeps: true, statesStride: stride(kept.state) }),
    threads,
  };
  const typeOf = (name: string): string => ELEMENT_TYPES[operands.get(name).dtype];
  const types = [typeOf(kernel.q), typeOf(kernel.out), skip === undefined ? 'f32' : typeOf(skip)].join(', ');
  const { q, k, v, decay, beta, before, end, out } = kernel;
  const buffers = buffersText(`ScanBuffers<${types}>`, operands, {
    ...{ q, k, v, decay, beta, before, end },
    ...(skip === undefined ? {} : { skip }),
    out,
    ...(kept === undefined ? {} : { states: kept.state, from: kept.from, to: kept.to[0], also: kept.to[1] }),
  });
  const { extents } = operands;
  const source = unitText({
    about: aboutKernel(kernel, `${threads} threads`),
    includes: ['recurrent/scan.cuh'],
    config: { type: 'ScanConfig', fields },
    functors: [],
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads, isRestrict: kept === undefined }),
    body: `  await_previous();\n  scan<config, ${types}>(${rows}, ${buffers});`,
  });
  const gridX = { kind: 'tiles', extent: rows, per: window, times: 1 } as const;
  return emittedPlain(source, threads, gridX, { lines: heads * Math.ceil(valueDim / columns), sharedBytes });
}
