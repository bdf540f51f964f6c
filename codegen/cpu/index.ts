/** Kernel IR and a schedule to C: the entry point of codegen/cpu. */
import { createHash } from 'node:crypto';
import type { Extents } from '../../ir/extents.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { CpuSchedule } from '../../ir/plan.js';
import { type Header, unitDigest } from '../../ir/unit.js';
import type { MarkOf } from '../marks.js';
import { kernelSignature, parametersOf, scheduleHash } from '../signature.js';
import { emitAttention } from './attention.js';
import { emitGemm, emitLogProb } from './contraction.js';
import { emitLogProbReduce, emitLoop, emitRoute, emitSample, emitSortByExpert } from './loops.js';
import { emitLinks, emitScan } from './recurrent.js';
import { emitShrink } from './shrink.js';
import { COperands } from './operands.js';
import { cpuHeadersOf } from './templates.js';
import { type Emitted, unitText } from './unit.js';

export { kernelSignature, parametersOf } from '../signature.js';
export { defaultSchedule, isLegal, type CpuFacts } from './schedules.js';
export { cpuHeadersOf, includeFlags, templatesHash } from './templates.js';
export { compilerFlags } from './micro.js';

/**
 * Prints `kernel` under `schedule`. `capacity` is the largest call: it fixes the strides of [T, T] buffers and the
 * scratch memory of attention. Throws if kernel and schedule are of different kinds or a program cannot be printed. The
 * text is undefined for a schedule that isLegal refuses. `markOf`: marks of statements, see marks.ts.
 */
export function emitKernel(
  kernel: Kernel,
  module: KernelModule,
  schedule: CpuSchedule,
  capacity: Extents,
  markOf?: MarkOf,
): EmittedKernel {
  const parameters = parametersOf(kernel, module);
  const signature = kernelSignature(kernel, module, capacity);
  const symbol = `k_${kernel.anchor.toLowerCase()}_${signature}_${scheduleHash(schedule)}`;
  const operands = new COperands(kernel, module, parameters, capacity, markOf);
  const emitted = emitAnchor(kernel, operands, schedule, symbol);
  const source = unitText(kernel, schedule, emitted, parameters);
  return { symbol, source, headers: cpuHeadersOf(source), scratchBytes: emitted.scratchBytes, parameters };
}

function emitAnchor(kernel: Kernel, operands: COperands, schedule: CpuSchedule, symbol: string): Emitted {
  const mismatch = (): never => {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) is a ${kernel.anchor}, but its schedule is for ${schedule.kind}.`,
    );
  };
  switch (kernel.anchor) {
    case 'gemm':
      return schedule.kind === 'gemm' ? emitGemm(kernel, operands, schedule, symbol) : mismatch();
    case 'logprob':
      return schedule.kind === 'gemm' ? emitLogProb(kernel, operands, schedule, symbol) : mismatch();
    case 'attention':
      return schedule.kind === 'attention' ? emitAttention(kernel, operands, schedule, symbol) : mismatch();
    case 'loop':
      return schedule.kind === 'loop' ? emitLoop(kernel, operands, schedule, symbol) : mismatch();
    case 'sample':
      return schedule.kind === 'loop' ? emitSample(kernel, operands, schedule, symbol) : mismatch();
    case 'route':
      return schedule.kind === 'loop' ? emitRoute(kernel, operands, schedule, symbol) : mismatch();
    case 'sortByExpert':
      return schedule.kind === 'loop' ? emitSortByExpert(kernel, operands, symbol) : mismatch();
    case 'shrink':
      return schedule.kind === 'loop' ? emitShrink(kernel, operands, schedule, symbol) : mismatch();
    case 'links':
      return schedule.kind === 'loop' ? emitLinks(kernel, operands, symbol) : mismatch();
    case 'scan':
      return schedule.kind === 'loop' ? emitScan(kernel, operands, symbol) : mismatch();
    case 'logprobReduce':
      return schedule.kind === 'loop' ? emitLogProbReduce(kernel, operands, schedule, symbol) : mismatch();
    default:
      return kernel satisfies never;
  }
}

// Kernels as C files: which of them share one.

/** One kernel as C text. */
export interface EmittedKernel {
  /** Name of the exported function: `k_<anchor>_<signature>_<schedule hash>`. */
  readonly symbol: string;
  /** A text that compiles alone: the function and the functions that it calls. It may be printed when it is read. */
  readonly source: string;
  /** All headers that it includes, itself or through another. They may be read when the source is read. */
  readonly headers: readonly Header[];
  /** unitDigest of both, where that is known. */
  readonly digest?: string;
  /** Bytes of scratch memory that each worker needs. */
  readonly scratchBytes: number;
  /** Buffer and weight names in the order of tw_launch.buffers. */
  readonly parameters: readonly string[];
}

/** A C file. */
export interface TranslationUnit {
  readonly name: string;
  /** Printed when it is read. */
  readonly text: string;
  /** Every header that it includes. */
  readonly headers: readonly Header[];
  /** SHA-256, hexadecimal, of the digests of what the text is made of. Prints those that are not known. */
  readonly digest: string;
}

/** A C file of several kernels. */
export interface KernelUnit extends TranslationUnit {
  /** The functions that it defines. */
  readonly symbols: readonly string[];
}

/** A C file: every kernel once. Compile it with the compilerFlags of its schedules. */
export const emitTranslationUnit = (emitted: readonly Pick<EmittedKernel, 'symbol' | 'source'>[]): string =>
  [...new Map(emitted.map((kernel) => [kernel.symbol, kernel.source])).values()].join('\n');

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** A C file of several kernels, each of them once. */
function unit(kernels: readonly EmittedKernel[]): KernelUnit {
  return {
    name: `${kernels[0]!.symbol}.c`,
    symbols: kernels.map(({ symbol }) => symbol),
    get digest() {
      const digests = kernels.map((kernel) => kernel.digest ?? unitDigest(kernel.source, kernel.headers));
      return sha256(JSON.stringify(digests));
    },
    get headers() {
      return cpuHeadersOf(this.text);
    },
    get text() {
      return emitTranslationUnit(kernels);
    },
  };
}

/** One kernel as a C file of its own. */
export const unitOf = (emitted: EmittedKernel): TranslationUnit => unit([emitted]);

/**
 * Kernels of one file. A compiler takes a fifth to a third of a second for the headers and the prelude, and a tenth for
 * a usual kernel.
 */
const KERNELS_OF_UNIT = 12;

/** Kernels of one kind and schedule lie side by side, since they call the same functions, which are compiled once. */
function placeOf({ symbol }: EmittedKernel): string {
  const [, anchor, signature, schedule] = symbol.split('_');
  return `${anchor} ${schedule} ${signature}`;
}

/**
 * Kernels as few C files, each of them once. Those that the same buckets run lie together, so that a bucket is ready
 * when its own files are compiled. `kernels`: [function][bucket][launch].
 */
export function unitsOf(
  kernels: Readonly<Record<string, readonly (readonly EmittedKernel[])[]>>,
): readonly KernelUnit[] {
  /** Of each kernel, the buckets that run it. */
  const users = new Map<string, { readonly kernel: EmittedKernel; readonly buckets: Set<string> }>();
  for (const [name, buckets] of Object.entries(kernels))
    buckets.forEach((own, bucket) => {
      for (const kernel of own) {
        const place = placeOf(kernel);
        const known = users.get(place) ?? { kernel, buckets: new Set() };
        users.set(place, known);
        known.buckets.add(`${name} ${bucket}`);
      }
    });
  const groups = new Map<string, EmittedKernel[]>();
  for (const [, { kernel, buckets }] of [...users].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const key = [...buckets].sort().join();
    groups.set(key, [...(groups.get(key) ?? []), kernel]);
  }
  return [...groups.values()].flatMap((group) =>
    Array.from({ length: Math.ceil(group.length / KERNELS_OF_UNIT) }, (_, i) =>
      unit(group.slice(i * KERNELS_OF_UNIT, (i + 1) * KERNELS_OF_UNIT)),
    ),
  );
}
