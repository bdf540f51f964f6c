/**
 * Keeps a table whose columns repeat only once. Rotary cosines and sines are the same for both halves of a head, so the
 * tables hold half a head and readers wrap around. Kernels in, kernels out.
 */
import type { Kernel, LoopKernel, Output } from '../ir/kernel.js';
import { kernelReads, mapOutputs, outputsOf } from '../ir/kernelAccess.js';
import { mapScalar, operands, readOf, type Scalar } from '../ir/scalar.js';
import type { LoweredModule } from './lowerKernels.js';

/** A narrower table must still be a whole number of vectors of this many columns. */
const VECTOR = 16;

/** How a loop may shrink: its columns repeat with this period. */
interface Narrowing {
  readonly kernel: LoopKernel;
  readonly period: number;
  /** Buffers, and their new number of columns. */
  readonly tables: ReadonlySet<string>;
  /** Literal vectors along the columns, and their new number of elements. */
  readonly vectors: ReadonlySet<string>;
}

/** Leaves of an expression, in order. */
const leaves = (s: Scalar): readonly Scalar[] => (operands(s).length === 0 ? [s] : operands(s).flatMap(leaves));

/** The expressions of a kernel. */
const programsOf = (kernel: Kernel): readonly Scalar[] =>
  kernel.anchor === 'logprob' ? [kernel.rowScale] : outputsOf(kernel).map(({ value }) => value);

const isRepeated = (values: readonly number[], period: number): boolean =>
  values.every((value, i) => Object.is(value, values[i % period]));

/** Whether the kernel reads `buffer` only as a table with this period. */
const readsAsTable = (kernel: Kernel, buffer: string, period: number): boolean => {
  const reads = programsOf(kernel)
    .flatMap(leaves)
    .filter((leaf) => readOf(leaf)?.buffer === buffer);
  const isElsewhere =
    kernel.anchor === 'attention' ||
    kernel.anchor === 'logprobReduce' ||
    kernel.anchor === 'sample' ||
    ((kernel.anchor === 'gemm' || kernel.anchor === 'logprob') && kernel.a === buffer);
  return (
    !isElsewhere &&
    reads.length > 0 &&
    reads.every((leaf) => leaf.op === 'load' && leaf.access.kind === 'periodic' && leaf.access.period === period)
  );
};

function narrowingOf(kernel: Kernel, module: LoweredModule): Narrowing | undefined {
  if (
    kernel.anchor !== 'loop' ||
    kernel.headDim !== undefined ||
    typeof kernel.columns !== 'number' ||
    !kernel.outputs.every(({ kind }) => kind === 'store')
  )
    return undefined;
  const constants = new Map(module.constants.map(({ name, values }) => [name, values]));
  const vectors = new Map<string, readonly number[]>();
  for (const leaf of kernel.outputs.flatMap(({ value }) => leaves(value))) {
    if (
      leaf.op === 'const' ||
      leaf.op === 'rowIndex' ||
      leaf.op === 'rowSum' ||
      (leaf.op === 'load' && leaf.access.kind === 'row')
    )
      continue;
    const values =
      leaf.op === 'load' && leaf.access.kind === 'column' ? constants.get(`constant.${leaf.buffer}`) : undefined;
    if (leaf.op !== 'load' || values?.length !== kernel.columns) return undefined;
    vectors.set(leaf.buffer, values);
  }
  const { columns } = kernel;
  const period = Array.from({ length: columns / VECTOR }, (_, i) => (i + 1) * VECTOR).find(
    (p) => columns % p === 0 && [...vectors.values()].every((values) => isRepeated(values, p)),
  );
  if (period === undefined || period === columns || vectors.size === 0) return undefined;
  const tables = new Set(kernel.outputs.map(({ buffer }) => buffer));
  const isOnlyTable = [...tables].every(
    (table) =>
      module.buffers.find(({ name }) => name === table)?.space === 'arena' &&
      module.kernels.every((reader) => !kernelReads(reader).has(table) || readsAsTable(reader, table, columns)),
  );
  const isOnlyReader = [...vectors.keys()].every((vector) =>
    module.kernels.every((reader) => reader === kernel || !kernelReads(reader).has(vector)),
  );
  return isOnlyTable && isOnlyReader ? { kernel, period, tables, vectors: new Set(vectors.keys()) } : undefined;
}

/** The module with every such table narrowed; the same object if there is none. */
export function deduplicateTables(module: LoweredModule): LoweredModule {
  return module.kernels.reduce((current, kernel) => {
    const narrowing = narrowingOf(kernel, current);
    return narrowing === undefined ? current : apply(current, narrowing);
  }, module);
}

function apply(module: LoweredModule, { kernel, period, tables, vectors }: Narrowing): LoweredModule {
  const read = (program: Scalar): Scalar =>
    mapScalar(program, (s) =>
      s.op === 'load' && s.access.kind === 'periodic' && tables.has(s.buffer)
        ? { ...s, access: { ...s.access, period } }
        : s,
    );
  const outputs = (all: readonly Output[]): readonly Output[] =>
    all.map((output) => ({ ...output, value: read(output.value) }));
  const isReader = (other: Kernel): boolean => [...tables].some((table) => kernelReads(other).has(table));
  return {
    ...module,
    buffers: module.buffers.map((buffer) =>
      tables.has(buffer.name)
        ? { ...buffer, columns: period }
        : vectors.has(buffer.name)
          ? { ...buffer, rows: period }
          : buffer,
    ),
    weights: module.weights.map((weight) =>
      vectors.has(weight.name)
        ? { ...weight, sources: weight.sources.map((source) => ({ ...source, rows: period })) }
        : weight,
    ),
    constants: module.constants.map((constant) =>
      vectors.has(constant.name.replace(/^constant\./, ''))
        ? { ...constant, values: constant.values.slice(0, period) }
        : constant,
    ),
    kernels: module.kernels.map((other) => {
      if (other === kernel) return { ...kernel, columns: period };
      if (!isReader(other)) return other;
      return other.anchor === 'logprob' ? { ...other, rowScale: read(other.rowScale) } : mapOutputs(other, outputs);
    }),
  };
}
