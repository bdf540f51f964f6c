/** The work of calls as they were made: from a plan's cost at their extents. */
import { type Rates, rooflineSeconds } from '../autotune/peaks.js';
import { addWork, Declarations, kernelWork, type KernelWork, type WorkSize } from '../autotune/work.js';
import type { FunctionInterface } from '../ir/function.js';
import type { Kernel } from '../ir/kernel.js';
import type { LinkedFunction, Stage } from '../ir/plan.js';
import { type CallArrays, extentsOf } from '../runtime/call.js';
import type { ScoredTokens } from './work.js';

/** The size of a call, with the depths of its own tokens. */
export function sizeOfCall(of: FunctionInterface, inputs: CallArrays, { position, row }: ScoredTokens): WorkSize {
  let [keys, scored, longest] = [0, 0, 1];
  for (const depth of position) {
    keys += depth + 1;
    longest = Math.max(longest, depth + 1);
  }
  for (const token of row) scored += (position[token] ?? 0) + 1;
  return {
    extents: extentsOf(of, inputs),
    longest,
    averageDepth: keys / Math.max(1, position.length),
    averageScoredDepth: scored / Math.max(1, row.length),
  };
}

/** What a part of a call does, and the least time that a device needs for it, launch by launch. */
export interface CallWork extends Pick<KernelWork, 'flops' | 'bytes'> {
  readonly minSeconds: number;
}

/** Kernels of one text do the same work. */
interface Group {
  readonly kernel: Kernel;
  readonly count: number;
}

/** The launches of a function that one stage runs. */
export class StageWork {
  private readonly groups: readonly Group[];
  private readonly declarations: Declarations;
  private readonly rates: Rates;

  constructor(fn: LinkedFunction<unknown>, { first, end }: Stage, rates: Rates) {
    const found = new Map<string, { kernel: Kernel; count: number }>();
    fn.kernels.slice(first, end).forEach((kernel, i) => {
      const { signature } = fn.launches[first + i]!;
      const known = found.get(signature);
      if (known === undefined) found.set(signature, { kernel, count: 1 });
      else known.count++;
    });
    this.groups = [...found.values()];
    this.declarations = new Declarations(fn);
    this.rates = rates;
  }

  of(size: WorkSize): CallWork {
    let all: KernelWork = { flops: 0, scalarOps: 0, bytes: 0 };
    let minSeconds = 0;
    for (const { kernel, count } of this.groups) {
      const { flops, scalarOps, bytes } = kernelWork(kernel, this.declarations, size);
      all = addWork(all, { flops: count * flops, scalarOps: count * scalarOps, bytes: count * bytes });
      minSeconds += count * rooflineSeconds({ flops, bytes }, this.rates);
    }
    return { flops: all.flops, bytes: all.bytes, minSeconds };
  }
}

/** Each launch of a function by itself. */
export function launchWorks(fn: LinkedFunction<unknown>, size: WorkSize, rates: Rates): readonly CallWork[] {
  const declarations = new Declarations(fn);
  return fn.kernels.map((kernel) => {
    const { flops, bytes } = kernelWork(kernel, declarations, size);
    return { flops, bytes, minSeconds: rooflineSeconds({ flops, bytes }, rates) };
  });
}
