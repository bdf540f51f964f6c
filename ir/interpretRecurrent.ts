/** The kernels of recurrent layers in float64. */
import type { LinksKernel, ScanKernel } from './kernel.js';
import type { KernelMemory } from './kernelMemory.js';
import { subtreeEnds, tokensBefore, type TokenPaths } from './paths.js';
import { type KeptStates, scanRows, type ScanTarget } from './scan.js';

export function links(memory: KernelMemory, { rows, paths, before, end }: LinksKernel): void {
  const read = (name: string): Float64Array => memory.read(name).data;
  if (paths.kind === 'path')
    for (let row = 0; row < memory.extent(rows); row++) memory.index(paths.begin, row, read(paths.key).length);
  const data: TokenPaths<Float64Array> =
    paths.kind === 'column'
      ? { kind: paths.kind, subtreeEnd: read(paths.subtreeEnd) }
      : { kind: paths.kind, begin: read(paths.begin), position: read(paths.position), key: read(paths.key) };
  for (const { back, out } of before) memory.write(out).data.set(tokensBefore(data, back));
  if (end !== undefined && data.kind === 'path') memory.write(end).data.set(subtreeEnds(data.position));
  for (const name of [...before.map(({ out }) => out), ...(end === undefined ? [] : [end])]) memory.finish(name);
}

/** `size`: elements of a head's state. */
function keptStates(
  memory: KernelMemory,
  { state, from, to }: KeptStates,
  size: number,
): Pick<ScanTarget, 'first' | 'keep'> {
  const { data, rows, columns } = memory.read(state);
  const written = memory.write(state).data;
  return {
    first: (row) => {
      const at = memory.slot(from, row, rows);
      return at === undefined ? undefined : data.subarray(at * columns, (at + 1) * columns);
    },
    keep: (row, head, own) => {
      for (const slots of to) {
        const at = memory.slot(slots, row, rows);
        if (at !== undefined) written.set(own, at * columns + head * size);
      }
    },
  };
}

export function scan(memory: KernelMemory, kernel: ScanKernel): void {
  const { rule, keyHeads, heads, keyDim, valueDim, scale, epsilon, skip, takesTurns } = kernel;
  const read = (name: string): Float64Array => memory.read(name).data;
  const [q, k, v, decay, beta] = [kernel.q, kernel.k, kernel.v, kernel.decay, kernel.beta].map(read) as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  scanRows(
    {
      rule,
      keyHeads,
      heads,
      takesTurns,
      keyDim,
      valueDim,
      scale,
      epsilon,
      q,
      k,
      v,
      decay,
      beta,
      skip: skip === undefined ? undefined : read(skip),
    },
    memory.extent(kernel.rows),
    {
      before: (row) => memory.index(kernel.before, row, row + 1),
      out: memory.write(kernel.out).data,
      ...(kernel.kept === undefined ? {} : keptStates(memory, kernel.kept, keyDim * valueDim)),
    },
  );
  memory.finish(kernel.out);
  if (kernel.kept !== undefined) memory.finish(kernel.kept.state);
}
