/**
 * float64 interpreter of kernel IR: the oracle for lowering, tiling and generated code. It follows the docstrings of
 * ir/kernel.ts literally and knows nothing of schedules, packing or padding. It is deliberately simple and slow.
 *
 * Buffers are dense row-major Float64Arrays of rows × columns, without padding. Weights are logical [n, k] matrices.
 */
import { evaluateScalar, type ScalarContext } from './evaluateScalar.js';
import {
  attention,
  dot,
  dots,
  leftOperand,
  logProb,
  logProbReduce,
  programContext,
  route,
  rowExperts,
  sample,
  shrink,
  sortByExpert,
} from './interpretAnchors.js';
import { links, scan } from './interpretRecurrent.js';
import {
  type GemmKernel,
  isRowMax,
  type Kernel,
  type KernelModule,
  loopDomains,
  type LoopKernel,
  type Output,
  ROW_SUM_BLOCK,
  type Segment,
} from './kernel.js';
import { type KernelEnv, KernelMemory, type ModuleEnv } from './kernelMemory.js';
export { evaluateScalar } from './evaluateScalar.js';
export type { ScalarContext } from './evaluateScalar.js';
export { logicalWeight } from './logicalWeight.js';
export type { RawTensor } from './logicalWeight.js';
export type { KernelEnv, ModuleEnv } from './kernelMemory.js';

/**
 * Runs every kernel in order. The module supplies its constants. Returns all buffers by name: inputs, intermediates and
 * outputs.
 */
export function interpretModule(module: KernelModule, env: ModuleEnv): Map<string, Float64Array> {
  const buffers = new Map(env.buffers);
  const constants = (module.constants ?? []).map(
    ({ name, values }) => [name, { rows: values.length, columns: 1, data: Float64Array.from(values) }] as const,
  );
  const memory = new KernelMemory({
    ...env,
    buffers,
    tensors: new Map([...(env.tensors ?? []), ...constants]),
    decls: module,
  });
  for (const kernel of module.kernels) {
    for (const [name, data] of runKernel(memory, kernel)) buffers.set(name, data);
  }
  return buffers;
}

/** Runs one kernel. Returns the buffers it writes, by name. Throws, naming the kernel, if a read is out of bounds. */
export const interpretKernel = (kernel: Kernel, env: KernelEnv): Map<string, Float64Array> =>
  runKernel(new KernelMemory(env), kernel);

function runKernel(memory: KernelMemory, kernel: Kernel): Map<string, Float64Array> {
  memory.begin();
  try {
    switch (kernel.anchor) {
      case 'gemm':
        gemm(memory, kernel);
        break;
      case 'attention':
        attention(memory, kernel);
        break;
      case 'logprob':
        logProb(memory, kernel);
        break;
      case 'logprobReduce':
        logProbReduce(memory, kernel);
        break;
      case 'sample':
        sample(memory, kernel);
        break;
      case 'route':
        route(memory, kernel);
        break;
      case 'sortByExpert':
        sortByExpert(memory, kernel);
        break;
      case 'shrink':
        shrink(memory, kernel);
        break;
      case 'links':
        links(memory, kernel);
        break;
      case 'scan':
        scan(memory, kernel);
        break;
      case 'loop':
        loop(memory, kernel);
        break;
      default:
        kernel satisfies never;
    }
  } catch (error) {
    throw new Error(
      `Kernel '${kernel.name}' (${kernel.path}): ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  return memory.end();
}

function gemm(memory: KernelMemory, kernel: GemmKernel): void {
  const rows = memory.extent(kernel.rows);
  const a = leftOperand(memory, kernel, rows);
  for (const segment of kernel.segments) {
    const weight = memory.weight(segment.weight, kernel.k);
    const matrices = segment.pairing.kind === 'interleave' ? 2 : 1;
    const n = segment.columns * matrices;
    const { count = 1 } = kernel.experts ?? {};
    if (weight.rows !== n * count)
      throw new Error(`weight '${segment.weight}' has ${weight.rows} rows, the segment needs ${n * count}.`);
    const expertOf = kernel.experts === undefined ? () => 0 : rowExperts(memory, kernel.experts, rows);
    const acc = new Float64Array(rows * n);
    for (let row = 0; row < rows; row++) {
      const { k, heads = 1 } = kernel;
      const first = expertOf(row) * n * k;
      const each = n / heads;
      for (let head = 0; head < heads; head++) {
        const own = acc.subarray(row * n + head * each, row * n + (head + 1) * each);
        dots(a.data, row * a.columns + head * k, weight.data, first + head * each * k, k, own);
      }
    }
    addAdapters(memory, kernel, segment, acc);
    program(memory, segment.outputs, rows, segment.columns, {
      acc: (index, row, column) => acc[row * n + index * segment.columns + column]!,
      headDim: segment.pairing.kind === 'rotate' ? segment.pairing.headDim : undefined,
    });
  }
  if (kernel.finish === undefined) return;
  memory.complete();
  program(memory, kernel.finish, rows, kernel.segments[0]!.columns, {});
}

/** Adds what rows of adapters get to a segment's products, [rows, n]. */
function addAdapters(memory: KernelMemory, { adapter }: GemmKernel, segment: Segment, acc: Float64Array): void {
  if (adapter === undefined || segment.adapter === undefined) return;
  const { rank, slots } = adapter;
  const shrunk = memory.read(adapter.shrunk);
  const b = memory.weight(segment.adapter.weight, rank);
  const n = b.rows / slots;
  for (let row = 0; row < shrunk.rows; row++) {
    const slot = memory.slot(adapter.slot, row, slots);
    if (slot === undefined) continue;
    for (let j = 0; j < n; j++) {
      const part = segment.adapter.part + Math.floor(j / segment.columns);
      const from = row * shrunk.columns + part * rank;
      acc[row * n + j]! += dot(shrunk.data, from, b.data, (slot * n + j) * rank, rank);
    }
  }
}

function loop(memory: KernelMemory, kernel: LoopKernel): void {
  for (const { columns, headDim, outputs } of loopDomains(kernel))
    program(memory, outputs, memory.extent(kernel.rows), memory.extent(columns), { headDim });
  if (kernel.finish === undefined) return;
  memory.complete();
  program(memory, kernel.finish, memory.extent(kernel.rows), memory.extent(kernel.columns), {});
}

/** Evaluates the outputs of one domain for every element, row by row. */
function program(
  memory: KernelMemory,
  outputs: readonly Output[],
  rows: number,
  columns: number,
  leaves: Pick<ScalarContext, 'acc' | 'headDim'>,
): void {
  const context = programContext(memory, leaves);
  for (const output of outputs) {
    const target = memory.write(output.buffer);
    const block = isRowMax(output, target.columns) ? columns : ROW_SUM_BLOCK;
    const wanted = output.kind === 'store' ? columns : Math.ceil(columns / block);
    const via = output.kind === 'store' ? output.via : undefined;
    const stored = new Set<number>();
    if ((via === undefined && target.rows !== rows) || target.columns !== wanted) {
      throw new Error(
        `writes '${output.buffer}' as [${rows}, ${wanted}], but it is [${target.rows}, ${target.columns}].`,
      );
    }
    for (let row = 0; row < rows; row++) {
      const to = via === undefined ? row : memory.slot(via, row, target.rows);
      if (to === undefined) continue;
      if (stored.has(to)) throw new Error(`writes row ${to} of '${output.buffer}' twice.`);
      stored.add(to);
      for (let column = 0; column < columns; column++) {
        context.row = row;
        context.column = column;
        const value = evaluateScalar(output.value, context);
        if (output.kind === 'store') target.data[to * wanted + column] = value;
        else addTo(target.data, to * wanted + Math.floor(column / block), value, column % block === 0, output.by);
      }
    }
    memory.finish(output.buffer);
  }
}

/** A value of a block: its first begins the block where the largest is wanted. */
function addTo(parts: Float64Array, at: number, value: number, isFirst: boolean, by: 'max' | undefined): void {
  if (by === undefined) parts[at]! += value;
  else parts[at] = isFirst ? value : Math.max(parts[at]!, value);
}
