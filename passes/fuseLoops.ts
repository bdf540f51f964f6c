/**
 * Puts loops of a run of loops into one kernel if they go on with results of one kernel before them: the norms of q and
 * of k over their whole width, which no epilogue sees; codes and scales of keys and values; convolutions of keys and of
 * values, and what each keeps of its rows. Their columns differ, so each keeps a domain of its own. A loop passes
 * others that have nothing to do with it. Kernels in, kernels out.
 */
import { type Kernel, type KernelModule, loopDomains, type LoopKernel } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';

const meet = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean => [...a].some((name) => b.has(name));

/** Whether both may run in any order. */
function areIndependent(a: LoopKernel, b: LoopKernel): boolean {
  const states = (kernel: LoopKernel): ReadonlySet<string> => new Set(Object.keys(kernel.versions ?? {}));
  return (
    !meet(kernelWrites(a), kernelReads(b)) &&
    !meet(kernelReads(a), kernelWrites(b)) &&
    !meet(kernelWrites(a), kernelWrites(b)) &&
    !meet(states(a), states(b))
  );
}

/** Whether one launch may run both. */
const canShare = (a: LoopKernel, b: LoopKernel): boolean =>
  a.rows === b.rows && a.finish === undefined && b.finish === undefined && areIndependent(a, b);

/** Whether both read what `maker`, a contraction or a loop, stores. */
const goOn = (maker: Kernel, a: Kernel, b: Kernel): boolean =>
  (maker.anchor === 'gemm' || maker.anchor === 'loop') &&
  [a, b].every((loop) => meet(kernelWrites(maker), kernelReads(loop)));

/** The last of `before` that `loop` can share a launch with, over loops behind it; −1 if there is none. */
function companionOf(loop: LoopKernel, before: readonly Kernel[]): number {
  for (let at = before.length - 1; at > 0; at--) {
    const other = before[at]!;
    if (other.anchor !== 'loop') return -1;
    // The kernel before a run of loops, or one of the run.
    const run = before.slice(0, at).findLastIndex(({ anchor }) => anchor !== 'loop');
    const makers = before.slice(Math.max(0, run), at);
    if (canShare(other, loop) && makers.some((maker) => goOn(maker, other, loop))) return at;
    if (!areIndependent(other, loop)) return -1;
  }
  return -1;
}

/** `layers.0.attention.qk.norm` for `….q.norm` and `….k.norm`; the first path if they differ otherwise. */
function pathOf(a: string, b: string): string {
  const [left, right] = [a.split('.'), b.split('.')];
  const apart = left.flatMap((part, i) => (part === right[i] ? [] : [i]));
  const [at] = apart;
  if (left.length !== right.length || apart.length !== 1 || at === undefined) return a;
  const between = left[at]!.length === 1 && right[at]!.length === 1 ? '' : '_';
  return left.with(at, `${left[at]!}${between}${right[at]!}`).join('.');
}

function merged(a: LoopKernel, b: LoopKernel, names: ReadonlySet<string>): LoopKernel {
  const path = pathOf(a.path, b.path);
  const name = path.toLowerCase().replaceAll(/[^a-z0-9]+/g, '_');
  const versions = { ...a.versions, ...b.versions };
  const [own, ...beside] = [...loopDomains(a), ...loopDomains(b)];
  return {
    anchor: 'loop',
    name: name === '' || names.has(name) ? a.name : name,
    path,
    rows: a.rows,
    ops: [...a.ops, ...b.ops],
    ...(Object.keys(versions).length === 0 ? {} : { versions }),
    ...own!,
    beside,
  };
}

/** The module with such loops merged; the same object if there are none. */
export function fuseLoops<M extends KernelModule>(module: M): M {
  const names = new Set(module.kernels.map(({ name }) => name));
  const kernels: Kernel[] = [];
  for (const kernel of module.kernels) {
    const at = kernel.anchor === 'loop' ? companionOf(kernel, kernels) : -1;
    const companion = kernels[at];
    if (kernel.anchor === 'loop' && companion?.anchor === 'loop') kernels[at] = merged(companion, kernel, names);
    else kernels.push(kernel);
  }
  return kernels.length === module.kernels.length ? module : { ...module, kernels };
}
