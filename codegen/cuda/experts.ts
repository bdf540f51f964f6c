/** The kernels that choose experts, and that put pairs of rows and experts in order. No count leaves the device. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { SortByExpertKernel, GemmKernel, LogProbKernel, RouteKernel, SampleKernel } from '../../ir/kernel.js';
import { sortByExpertValues, routeValues, sampleValues } from '../templateValues.js';
import { gumbelText } from './text/logprob.js';
import { type CudaOperands, type EmittedCuda, emittedPlain, kernelHead } from './text/operands.js';
import { render } from './text/statements.js';

/**
 * What a product of experts' matrices adds to one of a single matrix. Its row tiles begin where an expert's rows do.
 * How many there are is only known on the device: blocks take them in turn. There are about as many blocks as tiles if
 * experts have more than a tile of rows each.
 */
export function expertTiles(
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  tm: number,
): { readonly text: string; readonly values: object; readonly per: number } {
  const { experts } = kernel.anchor === 'gemm' ? kernel : { experts: undefined };
  if (experts === undefined) return { text: '', values: { experts: undefined }, per: tm };
  return {
    text: render('expertTile', { tm, experts: experts.count }),
    values: { experts: experts.count, starts: operands.get(experts.starts).index },
    per: tm / 2,
  };
}

/**
 * The rows of a product of experts' matrices, which are known on the device alone: a C++ expression (experts/tiles.cuh),
 * undefined for a single matrix; and the rows for each of which the grid has a block.
 */
export function expertRows(
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  tm: number,
): { readonly instance: string | undefined; readonly per: number } {
  const { experts } = kernel.anchor === 'gemm' ? kernel : { experts: undefined };
  if (experts === undefined) return { instance: undefined, per: tm };
  return { instance: `ExpertRows<${experts.count}>{ ${operands.nameOf(operands.get(experts.starts))} }`, per: tm / 2 };
}

/** One warp a row. */
export function emitRoute(
  kernel: RouteKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { threads } = schedule;
  const warps = threads / 32;
  const source = render('route', {
    head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads }),
    warps,
    rows: kernel.rows,
    perLane: Math.ceil(kernel.count / 32),
    ...routeValues(kernel, operands),
  });
  return emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, per: warps, times: 1 });
}

/** One block an expert: it counts the pairs of those before, and lists its own in their order. */
export function emitArrange(
  kernel: SortByExpertKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { threads } = schedule;
  const source = render('sortByExpert', {
    head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads }),
    threads,
    warps: threads / 32,
    rows: kernel.rows,
    ...sortByExpertValues(kernel, operands),
  });
  return emittedPlain(source, threads, { kind: 'constant', count: kernel.count });
}

// The kernel that chooses tokens from logits: a block for each row, which never leaves the device.

/** Bins of a histogram, and entries of the list of those that share a bin. */
const BINS = 1024;

/** Bytes of tw_room: three parts of each bin, a sum for each thread, the list, the best of each warp, and the rest. */
const roomBytes = (threads: number): number => BINS * (3 * 4 + 8) + threads * 8 + 16 + (threads / 32) * 12 + 32;

export function emitSample(
  kernel: SampleKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { threads } = schedule;
  const source = render('sample', {
    // Logits that a block has changed are read again.
    head: kernelHead({
      symbol,
      extents: operands.extents,
      parameters,
      tensorMaps: [],
      threads,
      isRestrict: false,
    }),
    noise: gumbelText(),
    rows: kernel.rows,
    entries: operands.rowsOf(kernel.inputs.entryToken).extent,
    threads,
    warps: threads / 32,
    perThread: Math.ceil(BINS / threads),
    ...sampleValues(kernel, operands),
  });
  return {
    source,
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: {
      threads,
      sharedBytes: roomBytes(threads),
      cluster: 1,
      gridX: { kind: 'tiles', extent: kernel.rows, per: 1, times: 1 },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}
