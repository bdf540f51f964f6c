/** The kernels that choose experts, and that put pairs of rows and experts in order. No count leaves the device. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { SortByExpertKernel, GemmKernel, LogProbKernel, RouteKernel } from '../../ir/kernel.js';
import { sortByExpertValues, routeValues } from '../experts.js';
import type { CudaOperands, EmittedCuda } from './text/operands.js';
import { emittedPlain, kernelHead } from './text/operands.js';
import { render } from './text/templates.js';

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
