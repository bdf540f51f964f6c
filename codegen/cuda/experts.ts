/** The kernels that choose experts, and that put pairs of rows and experts in order. No count leaves the device. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { GemmKernel, LogProbKernel, RouteKernel, SampleKernel, SortByExpertKernel } from '../../ir/kernel.js';
import { SAMPLE_INPUT_NAMES } from '../../ir/sampleInputs.js';
import { routeValues } from '../templateValues.js';
import { type CudaOperands, type EmittedCuda, emittedPlain, kernelHead } from './text/operands.js';
import { aboutKernel, buffersText, type ConfigFields, configText, unitText } from './text/unit.js';

/**
 * The rows of a product of experts' matrices, which are known on the device alone: a C++ expression
 * (experts/tiles.cuh), undefined for a single matrix; and the rows for each of which the grid has a block.
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

/** A unit of a kernel that has no functors: its Config, and its buffers by name. */
function unitOf(
  kernel: RouteKernel | SortByExpertKernel | SampleKernel,
  operands: CudaOperands,
  text: {
    readonly header: string;
    readonly config: { readonly type: string; readonly fields: ConfigFields };
    /** What stands before the kernel's head. */
    readonly functors?: readonly string[];
    readonly call: string;
    readonly symbol: string;
    readonly threads: number;
    readonly isRestrict?: boolean;
  },
): string {
  const { header, config, functors = [], call, symbol, threads, isRestrict = true } = text;
  const { extents } = operands;
  const head = { symbol, extents, operands, tensorMaps: [], threads, isRestrict };
  return unitText({
    about: aboutKernel(kernel, `${threads} threads`),
    includes: [header],
    config,
    functors,
    head: kernelHead(head),
    body: `  await_previous();\n  ${call}`,
  });
}

/** Rows of a block that also arranges pairs: few rows have one block, which waits for none. */
const ROWS_OF_BLOCK = 64;

/** Threads of a block, untuned: few rows have few warps. */
export const routeThreads = ({ pairs }: RouteKernel, rows: number): number =>
  pairs === undefined ? 128 : rows <= 8 ? 256 : rows <= 32 ? 512 : 1024;

/** One warp a row. */
export function emitRoute(
  kernel: RouteKernel,
  operands: CudaOperands,
  { threads }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  const { count, chosen, normalized, weights, bias } = kernel;
  const [logits, experts] = [operands.get(kernel.logits), operands.get(kernel.experts)];
  const fields = {
    count,
    chosen,
    normalized,
    logitsStride: logits.stride,
    expertsStride: experts.stride,
    threads,
    ...routeValues(kernel, operands).rule,
    ...(bias === undefined ? {} : { hasBias: true }),
  };
  const biasType = bias === undefined ? '' : `, ${operands.get(bias).dtype}`;
  const buffers = buffersText(`RouteBuffers<config${biasType}>`, operands, {
    logits: kernel.logits,
    experts: kernel.experts,
    weights,
    bias,
  });
  const config = { type: 'RouteConfig', fields };
  if (kernel.pairs !== undefined) {
    const { owners } = kernel.pairs;
    const pairs = buffersText('PairsBuffers<config>', operands, { ...kernel.pairs });
    const arranging = { rowsOfBlock: ROWS_OF_BLOCK, ...(owners === undefined ? {} : { hasOwners: true }) };
    const source = unitOf(kernel, operands, {
      header: 'experts/pairs.cuh',
      config,
      functors: [configText('PairsConfig', arranging, 'arranging'), '__device__ PairsState pairs_state;'],
      call: `route_and_arrange<config, arranging>(pairs_state, ${kernel.rows}, ${buffers}, ${pairs});`,
      symbol,
      threads,
      // Experts are read again, where other blocks have written them.
      isRestrict: false,
    });
    return emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, per: ROWS_OF_BLOCK, times: 1 });
  }
  const source = unitOf(kernel, operands, {
    header: 'experts/route.cuh',
    config,
    call: `route<config>(${kernel.rows}, ${buffers});`,
    symbol,
    threads,
  });
  return emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, per: threads / 32, times: 1 });
}

/** One block an expert: it counts the pairs of those before, and lists its own in their order. */
export function emitArrange(
  kernel: SortByExpertKernel,
  operands: CudaOperands,
  { threads }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  const { count, chosen, experts, order, starts, places, owners } = kernel;
  const buffers = buffersText('SortBuffers<config>', operands, { experts, order, starts, places, owners });
  const source = unitOf(kernel, operands, {
    header: 'experts/sort.cuh',
    config: {
      type: 'SortConfig',
      fields: {
        count,
        chosen,
        expertsStride: operands.get(experts).stride,
        ...(owners === undefined ? {} : { hasOwners: true }),
        threads,
      },
    },
    call: `sort_by_expert<config>(${kernel.rows}, ${buffers});`,
    symbol,
    threads,
  });
  return emittedPlain(source, threads, { kind: 'constant', count: kernel.count });
}

// The kernel that chooses tokens from logits: a block for each row, which never leaves the device.

/** Bins of a histogram, and entries of the list of those that share a bin. */
const BINS = 1024;

/** Bytes of a Room: three parts of each bin, a sum for each thread, the list, the best of each warp, and the rest. */
const roomBytes = (threads: number): number => BINS * (3 * 4 + 8) + threads * 8 + 16 + (threads / 32) * 12 + 32;

export function emitSample(
  kernel: SampleKernel,
  operands: CudaOperands,
  { threads }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  const { vocab, best, inputs, totals, logits, saved, token, logProb } = kernel;
  const stride = (name: string): number => operands.get(name).stride;
  const buffers = buffersText('SampleBuffers', operands, {
    logits,
    ...totals,
    ...Object.fromEntries(SAMPLE_INPUT_NAMES.map((name) => [name, inputs[name]])),
    saved,
    token,
    logProb,
    bestCount: best.count,
    bestTokens: best.tokens,
    bestLogProbs: best.logProbs,
  });
  const sharedBytes = roomBytes(threads);
  const source = unitOf(kernel, operands, {
    header: 'head/sample.cuh',
    config: {
      type: 'SampleConfig',
      fields: {
        vocab,
        maskStride: stride(inputs.mask),
        logitsStride: stride(logits),
        tokensStride: stride(best.tokens),
        logProbsStride: stride(best.logProbs),
        maxBest: best.most,
        threads,
        sharedBytes,
      },
    },
    call: `sample<config>(${kernel.rows}, ${operands.rowsOf(inputs.entryToken).extent}, ${buffers});`,
    symbol,
    threads,
    // Logits that a block has changed are read again.
    isRestrict: false,
  });
  return emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, per: 1, times: 1 }, { sharedBytes });
}
