/** Which buffers and weights a kernel reads and writes. */
import { defined } from '../system/defined.js';
import {
  drawBuffers,
  loopDomains,
  reducedBuffers,
  type AttentionKernel,
  type BufferDecl,
  type Kernel,
  type Output,
  pairBuffers,
} from './kernel.js';
import { renameMask, type Mask } from './mask.js';
import { oncePer } from './oncePer.js';
import { pathBuffers } from './paths.js';
import { operands, readOf, type Scalar } from './scalar.js';
import { scanReads } from './scan.js';

function scalarReads(s: Scalar, into: Set<string>): void {
  const read = readOf(s);
  if (read !== undefined) into.add(read.buffer);
  if (read?.via !== undefined) into.add(read.via);
  operands(s).forEach((o) => scalarReads(o, into));
}

/** Names of the buffers that hold a mask. */
export function maskBuffers(mask: Mask): readonly string[] {
  const names: string[] = [];
  renameMask(mask, (name) => {
    names.push(name);
    return name;
  });
  return names;
}

/** Names of the buffers that hold scales of keys and of values. */
export const scaleBuffers = ({ scales }: Pick<AttentionKernel, 'scales'>): readonly string[] =>
  scales === undefined ? [] : [scales.k, scales.v];

/** Names of the buffers with tails of heads, of queries and of keys. */
export const tailBuffers = ({ tail }: Pick<AttentionKernel, 'tail'>): readonly string[] =>
  tail === undefined ? [] : [tail.q, tail.k];

function outputReads(output: Output, into: Set<string>): void {
  scalarReads(output.value, into);
  if (output.kind === 'store' && output.via !== undefined) into.add(output.via);
}

/** What a finish reads, but not what the kernel itself has written before, `outputs`. */
function finishReads(outputs: readonly Output[], finish: readonly Output[], into: Set<string>): void {
  const own = new Set(outputs.map(({ buffer }) => buffer));
  const reads = new Set<string>();
  finish.forEach((output) => outputReads(output, reads));
  for (const name of reads) if (!own.has(name)) into.add(name);
}

/** Whether attention reads the keys of the call's own tokens, not those of a cache. */
export const hasOwnKeys = (
  { k }: Pick<AttentionKernel, 'k'>,
  { buffers }: { readonly buffers: readonly BufferDecl[] },
): boolean => typeof buffers.find(({ name }) => name === k)?.rows === 'string';

/** Names of buffers and weights the kernel reads. */
export const kernelReads: (kernel: Kernel) => ReadonlySet<string> = oncePer((kernel: Kernel) => {
  const reads = new Set<string>();
  switch (kernel.anchor) {
    case 'gemm':
      reads.add(kernel.a);
      if (kernel.experts !== undefined) reads.add(kernel.experts.starts);
      if (kernel.adapter !== undefined) {
        const { slot, shrunk, first } = kernel.adapter;
        for (const name of [slot, shrunk, first.weight, first.scale]) reads.add(name);
      }
      for (const segment of kernel.segments) {
        reads.add(segment.weight);
        if (segment.adapter !== undefined) reads.add(segment.adapter.weight);
        segment.outputs.forEach((output) => outputReads(output, reads));
      }
      finishReads(
        kernel.segments.flatMap(({ outputs }) => outputs),
        kernel.finish ?? [],
        reads,
      );
      break;
    case 'attention':
      for (const name of [kernel.q, kernel.k, kernel.v, ...scaleBuffers(kernel), ...tailBuffers(kernel)])
        reads.add(name);
      for (const name of maskBuffers(kernel.mask)) reads.add(name);
      if (kernel.slopes !== undefined) reads.add(kernel.slopes);
      if (kernel.sink !== undefined) reads.add(kernel.sink);
      if (kernel.queryRow !== undefined) reads.add(kernel.queryRow);
      break;
    case 'logprob':
      for (const name of [kernel.a, kernel.weight, kernel.target]) reads.add(name);
      for (const name of drawBuffers(kernel.draw)) reads.add(name);
      if (kernel.bias !== undefined) reads.add(kernel.bias);
      scalarReads(kernel.rowScale, reads);
      break;
    case 'logprobReduce':
      for (const name of [kernel.parts, kernel.target]) reads.add(name);
      if (kernel.draw?.ids !== undefined) reads.add(kernel.draw.ids);
      break;
    case 'sample':
      for (const name of [kernel.logits, kernel.totals.top, kernel.totals.sum, kernel.best.count]) reads.add(name);
      for (const name of Object.values(kernel.inputs)) reads.add(name);
      break;
    case 'route':
      reads.add(kernel.logits);
      if (kernel.bias !== undefined) reads.add(kernel.bias);
      break;
    case 'sortByExpert':
      reads.add(kernel.experts);
      break;
    case 'shrink':
      for (const name of [kernel.a, kernel.slot, kernel.weight, kernel.scale]) reads.add(name);
      break;
    case 'links':
      for (const name of pathBuffers(kernel.paths)) reads.add(name);
      break;
    case 'scan':
      for (const name of scanReads(kernel)) reads.add(name);
      break;
    case 'loop':
      for (const { outputs } of loopDomains(kernel)) for (const output of outputs) outputReads(output, reads);
      finishReads(kernel.outputs, kernel.finish ?? [], reads);
      break;
    default:
      kernel satisfies never;
  }
  return reads;
});

/** What the kernel's own programs write: outputs of all segments or domains, then of its finish. */
export const outputsOf: (kernel: Kernel) => readonly Output[] = oncePer((kernel: Kernel) =>
  kernel.anchor === 'gemm'
    ? [...kernel.segments.flatMap(({ outputs }) => outputs), ...(kernel.finish ?? [])]
    : kernel.anchor === 'loop'
      ? [...loopDomains(kernel).flatMap(({ outputs }) => outputs), ...(kernel.finish ?? [])]
      : [],
);

/** `kernel` with `change` applied to each list of outputs of its own programs, wherever outputsOf finds one. */
export function mapOutputs(kernel: Kernel, change: (outputs: readonly Output[]) => readonly Output[]): Kernel {
  if (kernel.anchor !== 'gemm' && kernel.anchor !== 'loop') return kernel;
  const finish = kernel.finish === undefined ? {} : { finish: change(kernel.finish) };
  if (kernel.anchor === 'gemm') {
    const segments = kernel.segments.map((segment) => ({ ...segment, outputs: change(segment.outputs) }));
    return { ...kernel, segments, ...finish };
  }
  const beside = kernel.beside?.map((domain) => ({ ...domain, outputs: change(domain.outputs) }));
  return { ...kernel, outputs: change(kernel.outputs), ...defined({ beside }), ...finish };
}

/** Names of buffers the kernel writes. */
export const kernelWrites: (kernel: Kernel) => ReadonlySet<string> = oncePer((kernel: Kernel) => {
  switch (kernel.anchor) {
    case 'gemm':
      return new Set(outputsOf(kernel).map((o) => o.buffer));
    case 'attention':
      return new Set([kernel.out]);
    case 'logprob':
      return new Set([kernel.parts, ...(kernel.logits === undefined ? [] : [kernel.logits])]);
    case 'logprobReduce':
      return new Set([kernel.logProb, kernel.isArgmax, ...reducedBuffers(kernel)]);
    case 'sample':
      return new Set([kernel.saved, kernel.token, kernel.logProb, kernel.best.tokens, kernel.best.logProbs]);
    case 'route':
      return new Set([
        kernel.experts,
        ...kernel.weights,
        ...(kernel.pairs === undefined ? [] : pairBuffers(kernel.pairs)),
      ]);
    case 'sortByExpert':
      return new Set(pairBuffers(kernel));
    case 'shrink':
      return new Set([kernel.out]);
    case 'scan':
      return new Set([kernel.out, ...(kernel.kept === undefined ? [] : [kernel.kept.state])]);
    case 'links':
      return new Set([...kernel.before.map(({ out }) => out), ...(kernel.end === undefined ? [] : [kernel.end])]);
    case 'loop':
      return new Set(outputsOf(kernel).map((o) => o.buffer));
    default:
      return kernel satisfies never;
  }
});

/** The kernel, and those that it runs itself under some schedule. */
const withRouting = (kernel: Kernel): readonly Kernel[] => {
  const { route, gather } = (kernel.anchor === 'gemm' ? kernel.routing : undefined) ?? {};
  return [kernel, route, gather].filter((each) => each !== undefined);
};
/** What a launch of the kernel may write under some schedule. */
export const mayWrite: (kernel: Kernel) => ReadonlySet<string> = oncePer(
  (kernel: Kernel) => new Set(withRouting(kernel).flatMap((each) => [...kernelWrites(each)])),
);
/** The same of what it may read or write. */
export const mayTouch: (kernel: Kernel) => ReadonlySet<string> = oncePer(
  (kernel: Kernel) => new Set(withRouting(kernel).flatMap((each) => [...kernelReads(each), ...kernelWrites(each)])),
);
