/** Kernels of recurrent layers on a GPU. */
import type { CudaLoopSchedule, ScanLanes } from '../../../ir/cuda.js';
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

/** Columns of a lane, as scanRows.cuh has them. */
const LANE_COLUMNS = 4;
/**
 * How a scan is shared out: lanes that have some rows each of the same columns, most warps of a block, rows that are
 * fetched together, states of rows where paths part that a block keeps, and blocks whose registers a multiprocessor
 * must have room for. Results do not depend on it.
 */
export interface ScanShape {
  readonly lanes: 4 | 8 | 16;
  readonly warps: number;
  readonly chunkRows: number;
  readonly kept: number;
  readonly blocks: number;
}
/** 16 columns of a warp: a key's 128 bytes that its lanes read are used four times. Three blocks have 75 KB each. */
const WHOLE: ScanShape = { lanes: 8, warps: 4, chunkRows: 4, kept: 2, blocks: 3 };
export const SCAN_SHAPES = {
  /** Trees that begin from nothing. */
  whole: WHOLE,
  /** Between calls: what is on its way must stay in registers, or it is waited for. */
  steps: { ...WHOLE, blocks: 2 },
  /**
   * 32 columns of a warp: whole lines of states, which take half of its registers, so that two rows may be on their
   * way. One block may have a head, so that long paths take long.
   */
  fewRows: { ...WHOLE, lanes: 4, chunkRows: 2, kept: 1, blocks: 2 },
} as const satisfies Record<string, ScanShape>;

export function scanShape({ kept }: Pick<ScanKernel, 'kept'>, { lanes }: Pick<CudaLoopSchedule, 'lanes'>): ScanShape {
  if (lanes !== undefined) return SCAN_SHAPES.fewRows;
  return kept === undefined ? SCAN_SHAPES.whole : SCAN_SHAPES.steps;
}

/** Rows of a state of which a lane of few has its part in registers. */
const FEW_LANES_ROWS = 128;
/** The lanes of a call in which paths have at most `run` new tokens: few where each has one, by the delta rule. */
export const defaultScanLanes = ({ kept, keyDim, rule }: ScanKernel, run: number): ScanLanes | undefined =>
  kept !== undefined && run <= 1 && rule === 'delta' && keyDim <= FEW_LANES_ROWS
    ? SCAN_SHAPES.fewRows.lanes
    : undefined;

/** Why a block cannot have what a scan's share-out gives it. */
export function scanProblem(kernel: ScanKernel, schedule: CudaLoopSchedule, available: number): string | undefined {
  const bytes = scanLaunch(kernel, scanShape(kernel, schedule)).sharedBytes;
  return bytes <= available ? undefined : `a block needs ${bytes} bytes of shared memory, ${available} are there`;
}

/** Threads of a block, blocks that have all columns of all heads, and bytes of shared memory. */
export function scanLaunch(
  { heads, keyDim, valueDim }: Pick<ScanKernel, 'heads' | 'keyDim' | 'valueDim'>,
  { lanes, warps: most, chunkRows, kept }: ScanShape,
): { readonly threads: number; readonly lines: number; readonly sharedBytes: number } {
  const warpColumns = (32 / lanes) * LANE_COLUMNS;
  const warps = Math.min(most, Math.ceil(valueDim / warpColumns));
  const columns = warps * warpColumns;
  const padded = roundUp(keyDim, 4 * lanes);
  const chunk = chunkRows * (2 * padded + columns + 2);
  return {
    threads: 32 * warps,
    lines: heads * Math.ceil(valueDim / columns),
    sharedBytes: 4 * (2 * chunk + kept * padded * columns),
  };
}

export function emitScan(
  kernel: ScanKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  const { keyHeads, heads, keyDim, valueDim, rule, scale = 1, epsilon, skip, rows } = kernel;
  const { kept } = kernel;
  const shape = scanShape(kernel, schedule);
  const { lanes, chunkRows, kept: keptStates, blocks } = shape;
  const { threads, lines, sharedBytes } = scanLaunch(kernel, shape);
  const stride = (name: string): number => operands.get(name).stride;
  const fields: ConfigFields = {
    keyHeads,
    heads,
    keyDim,
    valueDim,
    ...(kernel.takesTurns === true ? { takesTurns: true } : {}),
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
    kept: keptStates,
    ...(kept === undefined ? {} : { keeps: true, statesStride: stride(kept.state) }),
    lanes,
    chunkRows,
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
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads, blocks, isRestrict: kept === undefined }),
    body: `  await_previous();\n  scan<config, ${types}>(${rows}, ${buffers});`,
  });
  // Blocks of a window of rows each: at most one window a multiprocessor, of a row where there are no more rows.
  const gridX = { kind: 'persistent', extent: rows, per: 1, times: 1, blocksPerMultiprocessor: 1 } as const;
  return emittedPlain(source, threads, gridX, { lines, sharedBytes });
}
