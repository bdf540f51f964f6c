/** The kernels that choose experts, and that put pairs of rows and experts in order. No count leaves the device. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type {
  ArrangedPairs,
  GemmKernel,
  LogProbKernel,
  RouteKernel,
  SampleKernel,
  SortByExpertKernel,
} from '../../ir/kernel.js';
import { SAMPLE_INPUT_NAMES } from '../../ir/sampleInputs.js';
import { routeValues } from '../templateValues.js';
import { rowsFunctor } from './loop.js';
import type { RoutingPrinter } from './skinny/index.js';
import { ROW_WARPS } from './skinny/layout.js';
import { emitIdle } from './text/idle.js';
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

/** What a kernel that chooses experts is told of them: fields of RouteConfig, and RouteBuffers. */
function routeText(kernel: RouteKernel, operands: CudaOperands, threads: number, name = 'config') {
  const { count, chosen, normalized, logits, experts, weights, bias } = kernel;
  const fields: ConfigFields = {
    ...{ count, chosen, normalized },
    logitsStride: operands.get(logits).stride,
    expertsStride: operands.get(experts).stride,
    threads,
    ...routeValues(kernel, operands).rule,
    ...(bias === undefined ? {} : { hasBias: true }),
  };
  const biasType = bias === undefined ? '' : `, ${operands.get(bias).dtype}`;
  const buffers = buffersText(`RouteBuffers<${name}${biasType}>`, operands, { logits, experts, weights, bias });
  return { fields, buffers };
}

const STATE = '__device__ PairsState pairs_state;';

/** What arranges pairs: PairsConfig, and PairsBuffers. */
function pairsText(pairs: ArrangedPairs, operands: CudaOperands, name = 'config') {
  const fields = { rowsOfBlock: ROWS_OF_BLOCK, ...(pairs.owners === undefined ? {} : { hasOwners: true }) };
  const buffers = buffersText(`PairsBuffers<${name}>`, operands, { ...pairs });
  return { config: configText('PairsConfig', fields, 'arranging'), buffers };
}

/** One warp a row. */
export function emitRoute(
  kernel: RouteKernel,
  operands: CudaOperands,
  { threads, isIdle }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  if (isIdle === true) return emitIdle(kernel, operands, threads, symbol);
  const { fields, buffers } = routeText(kernel, operands, threads);
  const config = { type: 'RouteConfig', fields };
  if (kernel.pairs !== undefined) {
    const pairs = pairsText(kernel.pairs, operands);
    const source = unitOf(kernel, operands, {
      header: 'experts/pairs.cuh',
      config,
      functors: [pairs.config, STATE],
      call: `route_and_arrange<config, arranging>(pairs_state, ${kernel.rows}, ${buffers}, ${pairs.buffers});`,
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

/** What a product prints that chooses experts for its rows. */
export const routingText: RoutingPrinter = ({ route, gather }, operands, tiles, { routes, threads }) => {
  if (route.pairs === undefined) throw new Error(`${route.name} arranges no pairs.`);
  const name = 'route_config';
  const { fields, buffers } = routeText(route, operands, threads, name);
  const pairs = pairsText(route.pairs, operands, name);
  const made =
    routes === 'rows' && gather !== undefined ? rowsFunctor(gather, operands, 'PairRows', ROW_WARPS) : undefined;
  const order = operands.nameOf(operands.get(route.pairs.order));
  const rows = made?.instance ?? 'NoPairRows{}';
  const callee = `route_behind<${name}, arranging, routing_tiles>`;
  return {
    functors: [
      configText('RouteConfig', fields, name),
      pairs.config,
      configText('RoutingTiles', { ...tiles, rowWarps: ROW_WARPS }, 'routing_tiles'),
      STATE,
      made?.text ?? '',
    ],
    prologue: (own) =>
      made === undefined
        ? own
        : `PairsBeside<${name}, routing_tiles, ${own.slice(0, own.indexOf('{'))}, PairRows>` +
          `{ ${own}, ${made.instance}, ${order}, ${route.rows} }`,
    call: `${callee}(pairs_state, ${route.rows}, ${buffers}, ${pairs.buffers}, ${rows});`,
  };
};

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
