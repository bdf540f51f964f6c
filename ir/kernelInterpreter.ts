/**
 * float64 interpreter of kernel IR: the oracle for lowering, tiling and generated code. It follows the docstrings of
 * ir/kernel.ts literally and knows nothing of schedules, packing or padding. It is deliberately simple and slow.
 *
 * Buffers are dense row-major Float64Arrays of rows × columns, without padding. Weights are logical [n, k] matrices.
 */
import type {
  AttentionKernel,
  Draw,
  GemmKernel,
  Kernel,
  KernelModule,
  LogProbKernel,
  LogProbReduceKernel,
  LoopKernel,
  Mask,
  Output,
  SampleKernel,
} from './kernel.js';
import { isRowMax, LOGPROB_BLOCK, loopDomains, partWidth, ROW_SUM_BLOCK } from './kernel.js';
import { adjustLogits, chooseToken, largestTokens } from './filters.js';
import { scaleBuffers } from './kernelAccess.js';
import { rowSampling, SAMPLE_INPUT_NAMES, sampleInputsOf } from './sampleInputs.js';
import { softCap } from './softCap.js';
import { drawScore, type NoiseKey } from './gumbel.js';
import type { ScalarContext } from './evaluateScalar.js';
import { evaluateScalar } from './evaluateScalar.js';
import type { KernelEnv, ModuleEnv, View } from './kernelMemory.js';
import { arrange, route, rowExperts } from './interpretExperts.js';
import { KernelMemory } from './kernelMemory.js';
import { roundToCodes } from './rounding.js';
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
      case 'arrange':
        arrange(memory, kernel);
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
      const first = expertOf(row) * n * kernel.k;
      dots(a.data, row * a.columns, weight.data, first, kernel.k, acc.subarray(row * n, (row + 1) * n));
    }
    program(memory, segment.outputs, rows, segment.columns, {
      acc: (index, row, column) => acc[row * n + index * segment.columns + column]!,
      headDim: segment.pairing.kind === 'rotate' ? segment.pairing.headDim : undefined,
    });
  }
  if (kernel.finish === undefined) return;
  memory.complete();
  program(memory, kernel.finish, rows, kernel.segments[0]!.columns, {});
}

function leftOperand(memory: KernelMemory, kernel: GemmKernel | LogProbKernel, rows: number): View {
  const a = memory.read(kernel.a);
  if (a.rows !== rows || a.columns !== kernel.k) {
    throw new Error(`'${kernel.a}' is [${a.rows}, ${a.columns}], the contraction needs [${rows}, ${kernel.k}].`);
  }
  if (kernel.rounding === undefined) return a;
  const rounded = new Float64Array(a.data.length);
  for (let row = 0; row < a.rows; row++) {
    const at = row * a.columns;
    rounded.set(roundToCodes(a.data.subarray(at, at + a.columns), kernel.rounding.columns), at);
  }
  return { ...a, data: rounded };
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

function attention(memory: KernelMemory, kernel: AttentionKernel): void {
  const { heads, kvHeads, headDim, scale, mask } = kernel;
  const rows = memory.extent(kernel.rows);
  const q = memory.read(kernel.q);
  const k = memory.read(kernel.k);
  const tokens = k.rows;
  const v = memory.read(kernel.v);
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => memory.read(name));
  const out = memory.write(kernel.out);
  const visible = visibleKeys(memory, mask, tokens);
  for (let row = 0; row < rows; row++) {
    const query = kernel.queryRow === undefined ? row : memory.index(kernel.queryRow, row, q.rows);
    const keys = visible(query);
    if (keys.length === 0) throw new Error(`query ${query} sees no key, so its softmax has no value.`);
    const scores = new Float64Array(keys.length);
    for (let h = 0; h < heads; h++) {
      const kv = Math.floor((h * kvHeads) / heads);
      let max = -Infinity;
      keys.forEach(({ row: key, bias }, i) => {
        const product =
          scale * dot(q.data, query * q.columns + h * headDim, k.data, key * k.columns + kv * headDim, headDim);
        const scaled = product * (kScale?.data[key * kScale.columns + kv] ?? 1);
        scores[i] = softCap(scaled, kernel.cap) + bias;
        max = Math.max(max, scores[i]!);
      });
      let sum = 0;
      for (let i = 0; i < keys.length; i++) sum += scores[i] = Math.exp(scores[i]! - max);
      keys.forEach(({ row: key }, at) => {
        const p = scores[at]! / sum;
        if (p === 0) return;
        const weight = p * (vScale?.data[key * vScale.columns + kv] ?? 1);
        for (let i = 0; i < headDim; i++) {
          out.data[row * out.columns + h * headDim + i]! += weight * v.data[key * v.columns + kv * headDim + i]!;
        }
      });
    }
  }
  memory.finish(kernel.out);
}

/** A key that a query sees: its row among keys and values, and what is added to its score. */
interface VisibleKey {
  readonly row: number;
  readonly bias: number;
}

/** The keys that a query sees, in order. `rows`: rows of keys and values. */
function visibleKeys(memory: KernelMemory, mask: Mask, rows: number): (query: number) => readonly VisibleKey[] {
  const all = Array.from({ length: rows }, (_, row) => row);
  switch (mask.kind) {
    case 'column': {
      const end = memory.read(mask.subtreeEnd);
      const { window = Infinity } = mask;
      const position = mask.position === undefined ? undefined : memory.read(mask.position).data;
      const isNear = (query: number, key: number): boolean =>
        position === undefined || position[query]! - position[key]! < window;
      return (query) =>
        all
          .filter((key) => key <= query && query < end.data[key]! && isNear(query, key))
          .map((row) => ({ row, bias: 0 }));
    }
    case 'path': {
      const [position, key] = [memory.read(mask.position), memory.read(mask.key)];
      return (query) => {
        const first = memory.index(mask.begin, query, key.rows);
        const last = position.data[query]!;
        const begin = mask.window === undefined ? 0 : Math.max(0, last + 1 - mask.window);
        const count = Math.max(0, Math.min(last + 1, key.rows - first) - begin);
        return Array.from({ length: count }, (_, i) => ({
          row: memory.index(mask.key, first + begin + i, rows),
          bias: 0,
        }));
      };
    }
    case 'bias': {
      const bias = memory.read(mask.buffer);
      return (query) =>
        all.map((row) => ({ row, bias: bias.data[query * rows + row]! })).filter((key) => key.bias !== -Infinity);
    }
    default:
      return mask satisfies never;
  }
}

function logProb(memory: KernelMemory, kernel: LogProbKernel): void {
  const rows = memory.extent(kernel.rows);
  const a = leftOperand(memory, kernel, rows);
  const weight = memory.weight(kernel.weight, kernel.k);
  if (weight.rows !== kernel.vocab)
    throw new Error(`weight '${kernel.weight}' has ${weight.rows} rows, vocab is ${kernel.vocab}.`);
  const parts = memory.write(kernel.parts);
  const logits = kernel.logits === undefined ? undefined : memory.write(kernel.logits);
  const context = programContext(memory, {});
  for (let row = 0; row < rows; row++) {
    context.row = row;
    const scale = evaluateScalar(kernel.rowScale, context);
    const target = memory.index(kernel.target, row, kernel.vocab);
    const key = kernel.draw === undefined ? undefined : drawKey(memory, kernel.draw, row);
    for (let start = 0; start < kernel.vocab; start += LOGPROB_BLOCK) {
      const z = new Float64Array(Math.min(LOGPROB_BLOCK, kernel.vocab - start));
      dots(a.data, row * a.columns, weight.data, start * kernel.k, kernel.k, z);
      z.forEach((product, j) => {
        z[j] = softCap(scale * product, kernel.cap);
      });
      if (logits !== undefined && row < logits.rows) logits.data.set(z, row * kernel.vocab + start);
      const max = z.reduce((most, value) => Math.max(most, value), -Infinity);
      const part = [
        max,
        z.reduce((sum, value) => sum + Math.exp(value - max), 0),
        start + z.indexOf(max),
        z[target - start] ?? -Infinity,
      ];
      if (key !== undefined) {
        const scores = z.map((value, j) => drawScore(value, key.inverseTemperature, key, start + j));
        const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
        const drawn = Math.max(0, scores.indexOf(most));
        part.push(most, start + drawn, z[drawn]!, 0);
      }
      parts.data.set(part, row * parts.columns + (partWidth(kernel) * start) / LOGPROB_BLOCK);
    }
  }
  memory.finish(kernel.parts);
  if (kernel.logits !== undefined) memory.finish(kernel.logits);
}

const drawKey = (
  memory: KernelMemory,
  draw: Draw,
  row: number,
): NoiseKey & { readonly inverseTemperature: number } => ({
  inverseTemperature: memory.read(draw.inverseTemperature).data[row]!,
  low: memory.read(draw.low).data[row]!,
  high: memory.read(draw.high).data[row]!,
});

function logProbReduce(memory: KernelMemory, kernel: LogProbReduceKernel): void {
  const parts = memory.read(kernel.parts);
  const logProb = memory.write(kernel.logProb);
  const isArgmax = memory.write(kernel.isArgmax);
  const drawn =
    kernel.draw === undefined
      ? undefined
      : { token: memory.write(kernel.draw.token), logProb: memory.write(kernel.draw.logProb) };
  const totals =
    kernel.totals === undefined
      ? undefined
      : { top: memory.write(kernel.totals.top), sum: memory.write(kernel.totals.sum) };
  for (let row = 0; row < parts.rows; row++) {
    let max = -Infinity;
    let sum = 0;
    let argmax = -1;
    let z = -Infinity;
    let [score, token, zDrawn] = [-Infinity, 0, NaN];
    for (let at = row * parts.columns; at < (row + 1) * parts.columns; at += partWidth(kernel)) {
      const blockMax = parts.data[at]!;
      if (blockMax > max) argmax = parts.data[at + 2]!;
      const next = Math.max(max, blockMax);
      sum = (max === -Infinity ? 0 : sum * Math.exp(max - next)) + parts.data[at + 1]! * Math.exp(blockMax - next);
      max = next;
      z = Math.max(z, parts.data[at + 3]!);
      if (drawn !== undefined && parts.data[at + 4]! > score)
        [score, token, zDrawn] = [parts.data[at + 4]!, parts.data[at + 5]!, parts.data[at + 6]!];
    }
    if (drawn !== undefined) {
      drawn.token.data[row] = token;
      drawn.logProb.data[row] = zDrawn - (max + Math.log(sum));
    }
    if (totals !== undefined) [totals.top.data[row], totals.sum.data[row]] = [max, sum];
    logProb.data[row] = z - (max + Math.log(sum));
    isArgmax.data[row] = argmax === memory.index(kernel.target, row, kernel.vocab) ? 1 : 0;
  }
  for (const name of Object.values<string>({ ...kernel.draw, ...kernel.totals })) memory.finish(name);
  memory.finish(kernel.logProb);
  memory.finish(kernel.isArgmax);
}

function sample(memory: KernelMemory, kernel: SampleKernel): void {
  const { vocab, logits, totals, inputs, saved, token, logProb, best } = kernel;
  const z = memory.read(logits);
  const [top, sum] = [memory.read(totals.top), memory.read(totals.sum)];
  const numbers = sampleInputsOf(SAMPLE_INPUT_NAMES.map((name) => memory.read(inputs[name]).data));
  const written = {
    token: memory.write(token),
    logProb: memory.write(logProb),
    tokens: memory.write(best.tokens),
    logProbs: memory.write(best.logProbs),
  };
  for (let row = 0; row < z.rows; row++) {
    const own = z.data.subarray(row * vocab, (row + 1) * vocab);
    const logProbOf = (at: number): number => own[at]! - (top.data[row]! + Math.log(sum.data[row]!));
    const { filters, draw, entries } = rowSampling(numbers, row, vocab);
    const chosen = chooseToken(adjustLogits(own, filters, entries), filters, draw);
    written.token.data[row] = chosen;
    written.logProb.data[row] = logProbOf(chosen);
    const most = largestTokens(own, Math.min(best.most, memory.read(best.count).data[row]!));
    written.tokens.data.set(most, row * best.most);
    written.logProbs.data.set(most.map(logProbOf), row * best.most);
  }
  memory.write(saved);
  for (const name of [token, logProb, best.tokens, best.logProbs]) memory.finish(name);
}

/** The leaves of a program: loads and row sums read memory; `acc` and `headDim` come from the anchor. */
function programContext(memory: KernelMemory, leaves: Pick<ScalarContext, 'acc' | 'headDim'>): ScalarContext {
  return {
    row: 0,
    column: 0,
    ...leaves,
    load: (buffer, access, row, column) => memory.load(memory.read(buffer), access, row, column),
    rowSum: (buffer, via, row, by) => partSum(memory, buffer, via, row, 0, memory.read(buffer).columns, by),
    partSum: (...of) => partSum(memory, ...of),
  };
}

function partSum(
  memory: KernelMemory,
  buffer: string,
  via: string | undefined,
  row: number,
  first: number,
  count: number,
  by: 'max' | undefined,
): number {
  const view = memory.read(buffer);
  if (first + count > view.columns)
    throw new Error(`sums ${buffer}[…, ${first}…${first + count}), which has only ${view.columns} columns.`);
  const at = (via === undefined ? row : memory.index(via, row, view.rows)) * view.columns + first;
  if (by === 'max') return view.data.subarray(at, at + count).reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  for (let i = at; i < at + count; i++) sum += view.data[i]!;
  return sum;
}

/**
 * Dot products of one row of `a` with consecutive rows of `b`, one for each element of `out`. Four are computed at a
 * time, each in order of k.
 */
function dots(
  a: Float64Array,
  aStart: number,
  b: Float64Array,
  bStart: number,
  length: number,
  out: Float64Array,
): void {
  const whole = out.length - (out.length % 4);
  for (let j = 0; j < whole; j += 4) {
    const [b0, b1, b2, b3] = [
      bStart + j * length,
      bStart + (j + 1) * length,
      bStart + (j + 2) * length,
      bStart + (j + 3) * length,
    ];
    let [s0, s1, s2, s3] = [0, 0, 0, 0];
    for (let i = 0; i < length; i++) {
      const x = a[aStart + i]!;
      s0 += x * b[b0 + i]!;
      s1 += x * b[b1 + i]!;
      s2 += x * b[b2 + i]!;
      s3 += x * b[b3 + i]!;
    }
    out[j] = s0;
    out[j + 1] = s1;
    out[j + 2] = s2;
    out[j + 3] = s3;
  }
  for (let j = whole; j < out.length; j++) out[j] = dot(a, aStart, b, bStart + j * length, length);
}

function dot(a: Float64Array, aStart: number, b: Float64Array, bStart: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[aStart + i]! * b[bStart + i]!;
  return sum;
}
