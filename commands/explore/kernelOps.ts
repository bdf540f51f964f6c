/** Which ops of the graph each kernel computes, once the passes over kernels have moved some of them. */
import type { Node } from '../../ir/graph/graph.js';
import type { KernelModule } from '../../ir/kernel.js';
import { kernelWrites } from '../../ir/kernelAccess.js';
import { groupPath } from '../../passes/lowering.js';
import type { Group } from '../../passes/placedValues.js';

/** The ops of kernels by the kernels' names. */
export type KernelOps = ReadonlyMap<string, readonly Node[]>;

/** Kernels of a module that was just lowered: a group makes one kernel, or several of them one behind another. */
export function opsOfGroups({ kernels }: KernelModule, groups: readonly Group[]): KernelOps {
  const found = new Map<string, readonly Node[]>();
  let at = -1;
  for (const { name, path } of kernels) {
    const next = groups[at + 1];
    if (next !== undefined && groupPath(next) === path) at++;
    const group = groups[at];
    if (group !== undefined) found.set(name, [...group.anchors, ...group.members]);
  }
  return found;
}

/** After a pass: the ops of a kernel that is gone are with the kernel that writes what it wrote. */
export function followOps(ops: KernelOps, last: KernelModule, next: KernelModule): KernelOps {
  const found = new Map(next.kernels.map(({ name }) => [name, ops.get(name) ?? []]));
  const writerOf = new Map(next.kernels.flatMap((kernel) => [...kernelWrites(kernel)].map((b) => [b, kernel.name])));
  for (const kernel of last.kernels) {
    if (found.has(kernel.name)) continue;
    const heir = [...kernelWrites(kernel)].map((buffer) => writerOf.get(buffer)).find((name) => name !== undefined);
    if (heir !== undefined) found.set(heir, [...found.get(heir)!, ...(ops.get(kernel.name) ?? [])]);
  }
  return found;
}
