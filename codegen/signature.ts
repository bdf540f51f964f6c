/** Signatures of kernels. Kernels that differ only in the names of what they read and write have the same text. */
import { createHash } from 'node:crypto';
import { extentIn, type Extents } from '../ir/extents.js';
import { extentNames } from '../ir/function.js';
import type { ArrangedPairs, ContractionKernel, GemmKernel, Kernel, KernelModule } from '../ir/kernel.js';
import type { Output, Routing, Totals } from '../ir/kernel.js';
import { renameMask } from '../ir/mask.js';
import { oncePer } from '../ir/oncePer.js';
import { rowStride } from '../ir/plan.js';
import { mapInputs } from '../ir/sampleInputs.js';
import { operands, printScalar, readOf, type Scalar } from '../ir/scalar.js';
import type { KeptStates } from '../ir/scan.js';
import { SCORED_ROWS, TOKENS } from '../ir/scoring.js';
import { DTYPE_BYTES } from '../ir/types.js';
import { defined } from '../system/defined.js';
import { namesOf } from './operands.js';

/** Increase this when the meaning of a signature or of a schedule changes. */
const VERSION = 1;

/** Buffer and weight names in order of first use: the order of a generated function's buffers. */
export const parametersOf: (kernel: Kernel, module: KernelModule) => readonly string[] = oncePer(
  (kernel: Kernel, module: KernelModule) => {
    const names = new Set<string>();
    const add = (name: string): string => {
      names.add(name);
      return name;
    };
    const visit = (s: Scalar): Scalar => {
      operands(s).forEach(visit);
      const read = readOf(s);
      if (read?.via !== undefined) add(read.via);
      if (read !== undefined) add(read.buffer);
      return s;
    };
    visitNames(kernel, add, visit);
    const { buffers, weights } = namesOf(module);
    for (const name of names) {
      if (!buffers.has(name) && !weights.has(name))
        throw new Error(`Kernel ${kernel.name} (${kernel.path}) uses '${name}', which the module does not declare.`);
    }
    return [...names];
  },
);

const renamePairs = (pairs: ArrangedPairs, rename: (name: string) => string): ArrangedPairs => ({
  order: rename(pairs.order),
  places: pairs.places.map(rename),
  starts: rename(pairs.starts),
  ...defined({ owners: pairs.owners === undefined ? undefined : rename(pairs.owners) }),
});

/** `kernel` with every buffer and weight name passed through `rename`, programs through `scalar`, in a fixed order. */
function visitNames(kernel: Kernel, rename: (name: string) => string, scalar: (s: Scalar) => Scalar): Kernel {
  const output = (o: Output): Output => {
    const value = scalar(o.value);
    const buffer = rename(o.buffer);
    if (o.kind === 'rowSum') return { ...o, value, buffer };
    return { kind: 'store', value, ...defined({ via: o.via === undefined ? undefined : rename(o.via) }), buffer };
  };
  const totals = ({ top, sum }: Totals): Totals => ({ top: rename(top), sum: rename(sum) });
  /** What a signature has of a kernel beside its names. */
  const nameless = <K extends Kernel>(own: K): K => ({
    ...(visitNames(own, rename, scalar) as K),
    ...{ name: '', path: '', ops: [] },
  });
  const renamedRouting = ({ route, gather }: Routing): Routing => ({
    route: nameless(route),
    ...defined({ gather: gather && nameless(gather) }),
  });
  switch (kernel.anchor) {
    case 'gemm':
      return {
        ...kernel,
        a: rename(kernel.a),
        ...defined({ experts: kernel.experts && { ...kernel.experts, starts: rename(kernel.experts.starts) } }),
        ...defined({
          adapter: kernel.adapter && {
            ...kernel.adapter,
            slot: rename(kernel.adapter.slot),
            shrunk: rename(kernel.adapter.shrunk),
            first: { weight: rename(kernel.adapter.first.weight), scale: rename(kernel.adapter.first.scale) },
          },
        }),
        segments: kernel.segments.map((s) => ({
          ...s,
          weight: rename(s.weight),
          ...defined({ adapter: s.adapter && { ...s.adapter, weight: rename(s.adapter.weight) } }),
          outputs: s.outputs.map(output),
        })),
        ...defined({ finish: kernel.finish && kernel.finish.map(output) }),
        ...defined({ routing: kernel.routing && renamedRouting(kernel.routing) }),
      };
    case 'attention': {
      const { scales, tail } = kernel;
      const renamed = { ...kernel, q: rename(kernel.q), k: rename(kernel.k), v: rename(kernel.v) };
      const scaled = scales === undefined ? {} : { scales: { k: rename(scales.k), v: rename(scales.v) } };
      const tailed = tail === undefined ? {} : { tail: { ...tail, q: rename(tail.q), k: rename(tail.k) } };
      const mask = renameMask(kernel.mask, rename);
      const slopes = kernel.slopes === undefined ? {} : { slopes: rename(kernel.slopes) };
      const queryRow = kernel.queryRow === undefined ? {} : { queryRow: rename(kernel.queryRow) };
      const sink = defined({ sink: kernel.sink === undefined ? undefined : rename(kernel.sink) });
      return { ...renamed, ...scaled, ...tailed, mask, ...slopes, ...sink, ...queryRow, out: rename(kernel.out) };
    }
    case 'logprob':
      return {
        ...kernel,
        a: rename(kernel.a),
        weight: rename(kernel.weight),
        rowScale: scalar(kernel.rowScale),
        ...defined({ bias: kernel.bias === undefined ? undefined : rename(kernel.bias) }),
        target: rename(kernel.target),
        ...defined({
          draw: kernel.draw && {
            inverseTemperature: rename(kernel.draw.inverseTemperature),
            low: rename(kernel.draw.low),
            high: rename(kernel.draw.high),
            ...defined({ ids: kernel.draw.ids && rename(kernel.draw.ids) }),
          },
        }),
        ...defined({ logits: kernel.logits === undefined ? undefined : rename(kernel.logits) }),
        parts: rename(kernel.parts),
      };
    case 'logprobReduce':
      return {
        ...kernel,
        parts: rename(kernel.parts),
        target: rename(kernel.target),
        logProb: rename(kernel.logProb),
        isArgmax: rename(kernel.isArgmax),
        ...defined({
          draw: kernel.draw && {
            token: rename(kernel.draw.token),
            logProb: rename(kernel.draw.logProb),
            ...defined({ ids: kernel.draw.ids && rename(kernel.draw.ids) }),
          },
        }),
        ...defined({ totals: kernel.totals && totals(kernel.totals) }),
      };
    case 'sample': {
      const { logits, inputs, saved, token, logProb, best } = kernel;
      return {
        ...kernel,
        logits: rename(logits),
        totals: totals(kernel.totals),
        inputs: mapInputs((name) => rename(inputs[name])),
        saved: rename(saved),
        token: rename(token),
        logProb: rename(logProb),
        best: {
          most: best.most,
          count: rename(best.count),
          tokens: rename(best.tokens),
          logProbs: rename(best.logProbs),
        },
      };
    }
    case 'route':
      return {
        ...kernel,
        logits: rename(kernel.logits),
        ...defined({ bias: kernel.bias && rename(kernel.bias) }),
        experts: rename(kernel.experts),
        weights: kernel.weights.map(rename),
        ...defined({ pairs: kernel.pairs && renamePairs(kernel.pairs, rename) }),
      };
    case 'sortByExpert':
      return { ...kernel, experts: rename(kernel.experts), ...renamePairs(kernel, rename) };
    case 'shrink':
      return {
        ...kernel,
        a: rename(kernel.a),
        slot: rename(kernel.slot),
        weight: rename(kernel.weight),
        scale: rename(kernel.scale),
        out: rename(kernel.out),
      };
    case 'links': {
      const { paths, before, end } = kernel;
      const renamed =
        paths.kind === 'column'
          ? { ...paths, subtreeEnd: rename(paths.subtreeEnd) }
          : { ...paths, begin: rename(paths.begin), position: rename(paths.position), key: rename(paths.key) };
      return {
        ...kernel,
        paths: renamed,
        before: before.map(({ back, out }) => ({ back, out: rename(out) })),
        ...defined({ end: end === undefined ? undefined : rename(end) }),
      };
    }
    case 'scan':
      return {
        ...kernel,
        q: rename(kernel.q),
        k: rename(kernel.k),
        v: rename(kernel.v),
        decay: rename(kernel.decay),
        beta: rename(kernel.beta),
        before: rename(kernel.before),
        end: rename(kernel.end),
        ...defined({
          skip: kernel.skip === undefined ? undefined : rename(kernel.skip),
          kept: kernel.kept && renameKept(kernel.kept, rename),
        }),
        out: rename(kernel.out),
      };
    case 'loop':
      return {
        ...kernel,
        outputs: kernel.outputs.map(output),
        ...defined({ finish: kernel.finish && kernel.finish.map(output) }),
        ...defined({
          beside: kernel.beside && kernel.beside.map((domain) => ({ ...domain, outputs: domain.outputs.map(output) })),
        }),
      };
    default:
      return kernel satisfies never;
  }
}

const hash = (text: string, length: number): string => createHash('sha256').update(text).digest('hex').slice(0, length);

/** Programs as text, with other names for what they read, so that the order of an object's keys does not matter. */
function canonical(value: unknown, rename?: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((each) => canonical(each, rename));
  if (typeof value !== 'object' || value === null) return value;
  const sorted: Record<string, unknown> = {};
  for (const [key, v] of Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) {
    const isProgram = (key === 'value' || key === 'rowScale') && typeof v === 'object';
    sorted[key] = isProgram ? printScalar(v as Scalar, rename) : canonical(v, rename);
  }
  return sorted;
}

/**
 * Generated functions find an extent by its position among those of their function, so equal kernels of functions with
 * other extents have other texts. The extents of scoring are the default and are left out.
 */
function conventionOf(module: KernelModule): { readonly extents?: readonly string[] } {
  const extents = extentNames(module.interface);
  const isScoring = extents.length === 2 && extents[0] === TOKENS && extents[1] === SCORED_ROWS;
  return isScoring ? {} : { extents };
}

/**
 * Hex hash of the kernel's canonical text: names of buffers and weights are replaced by parameter indices, so the same
 * kernel of two layers has one signature. Includes what the text depends on: dtypes, strides, layouts, pairings.
 */
export const kernelSignature = (kernel: Kernel, module: KernelModule, capacity: Extents): string =>
  hash(JSON.stringify(canonical({ ...describe(kernel, module, capacity), ...conventionOf(module) })), 16);

/**
 * Hex hash of what a kernel computes, from what, and in which layout: kernels of two functions that differ only in the
 * positions of their extents have one. For scoring it is the signature. Adapters and what a product may run beside do
 * not count: what is known of the schedules of a contraction holds with them too, where they are legal.
 */
export const computationHash = (kernel: Kernel, module: KernelModule, capacity: Extents): string =>
  hash(JSON.stringify(canonical(describe(withoutRouting(withoutAdapters(kernel)), module, capacity))), 16);

/** The kernel as it is where others choose experts. */
const withoutRouting = (kernel: Kernel): Kernel => {
  if (kernel.anchor !== 'gemm' || kernel.routing === undefined) return kernel;
  const { routing: _, ...own } = kernel;
  return own;
};

/** The kernel as it is for rows without adapters. Itself where it has none: what is known of it is found again. */
export function withoutAdapters(kernel: ContractionKernel): ContractionKernel;
export function withoutAdapters(kernel: Kernel): Kernel;
export function withoutAdapters(kernel: Kernel): Kernel {
  return kernel.anchor === 'gemm' && kernel.adapter !== undefined ? plainProduct(kernel) : kernel;
}

const plainProduct = oncePer(({ adapter: _, segments, ...rest }: GemmKernel): GemmKernel => ({
  ...rest,
  segments: segments.map(({ adapter: __, ...segment }) => segment),
}));

function describe(kernel: Kernel, module: KernelModule, capacity: Extents): Readonly<Record<string, unknown>> {
  const parameters = parametersOf(kernel, module);
  const index = new Map(parameters.map((name, i) => [name, `p${i}`]));
  const rename = (name: string): string => index.get(name)!;
  const renamed = visitNames(kernel, rename, (s) => s);
  const { buffers, weights } = namesOf(module);
  const shapes = parameters.map((name) => {
    const weight = weights.get(name);
    if (weight !== undefined) {
      const rows = weight.sources.reduce((sum, source) => sum + source.rows, 0);
      const { layout, format, k, pairing, experts, group, slots } = weight;
      return {
        kind: 'weight',
        layout,
        dtype: format,
        rows,
        k,
        pairing,
        ...defined({ experts, group, slots: slots?.count }),
      };
    }
    const buffer = buffers.get(name)!;
    const stride = rowStride(buffer, capacity, DTYPE_BYTES[buffer.dtype]);
    return {
      kind: 'buffer',
      dtype: buffer.dtype,
      rows: buffer.rows,
      columns: buffer.columns,
      stride,
      isWeight: buffer.space === 'weight',
    };
  });
  const keys = kernel.anchor === 'attention' ? extentIn(buffers.get(kernel.k)!.rows, capacity) : 0;
  return {
    version: VERSION,
    kernel: canonical({ ...renamed, name: '', path: '', ops: [], versions: undefined }, rename),
    shapes,
    capacity: keys,
  };
}

/** Hex hash of a schedule of any target: plain data whose keys may come in any order. */
export const scheduleHash = <S extends { readonly kind: string }>(schedule: S): string =>
  hash(JSON.stringify(canonical(schedule)), 8);

const renameKept = ({ state, from, to: [to, also] }: KeptStates, rename: (name: string) => string): KeptStates => ({
  state: rename(state),
  from: rename(from),
  to: [rename(to), rename(also)],
});
