/** What interpreters of several kernels compute: operands, dot products, and what scalar programs read. */
import { evaluateScalar, type ScalarContext, softCap } from './evaluateScalar.js';
import { chosenExperts, chosenWeights, expertOrder } from './experts.js';
import { adjustLogits, chooseToken, largestTokens } from './filters.js';
import { drawScore, type NoiseKey } from './gumbel.js';
import {
  type ArrangedPairs,
  type AttentionKernel,
  type DrawBuffers,
  type ExpertRows,
  type GemmKernel,
  LOGPROB_BLOCK,
  type LogProbKernel,
  type LogProbReduceKernel,
  partWidth,
  reducedBuffers,
  type RouteKernel,
  type SampleKernel,
  type ShrinkKernel,
  type SortByExpertKernel,
} from './kernel.js';
import type { Mask } from './mask.js';
import { scaleBuffers, tailBuffers } from './kernelAccess.js';
import type { KernelMemory, BufferView } from './kernelMemory.js';
import { firstSeen } from './reach.js';
import { roundToCodes } from './rounding.js';
import { mapInputs, rowSampling } from './sampleInputs.js';
import { slopeTerm } from './slopes.js';

/** The left operand of a contraction [rows, k], rounded to codes where the kernel says so. */
export function leftOperand(memory: KernelMemory, kernel: GemmKernel | LogProbKernel, rows: number): BufferView {
  const a = memory.read(kernel.a);
  const columns = kernel.k * (kernel.anchor === 'gemm' ? (kernel.heads ?? 1) : 1);
  if (a.rows !== rows || a.columns !== columns) {
    throw new Error(`'${kernel.a}' is [${a.rows}, ${a.columns}], the contraction needs [${rows}, ${columns}].`);
  }
  if (kernel.rounding === undefined) return a;
  const rounded = new Float64Array(a.data.length);
  for (let row = 0; row < a.rows; row++) {
    const at = row * a.columns;
    rounded.set(roundToCodes(a.data.subarray(at, at + a.columns), kernel.rounding.columns), at);
  }
  return { ...a, data: rounded };
}

/** The leaves of a program: loads and row sums read memory; `acc` and `headDim` come from the anchor. */
export function programContext(memory: KernelMemory, leaves: Pick<ScalarContext, 'acc' | 'headDim'>): ScalarContext {
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
export function dots(
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

export function dot(a: Float64Array, aStart: number, b: Float64Array, bStart: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[aStart + i]! * b[bStart + i]!;
  return sum;
}

// Attention of kernel IR in float64: keys that a query sees, their softmax, and the mean of their values.

export function attention(memory: KernelMemory, kernel: AttentionKernel): void {
  const { heads, kvHeads, headDim, scale, mask } = kernel;
  const rows = memory.extent(kernel.rows);
  const q = memory.read(kernel.q);
  const k = memory.read(kernel.k);
  const tokens = k.rows;
  const v = memory.read(kernel.v);
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => memory.read(name));
  const sink = kernel.sink === undefined ? undefined : memory.read(kernel.sink);
  const { tail, valueDim = headDim } = kernel;
  const [tailQ, tailK] = tailBuffers(kernel).map((name) => memory.read(name));
  const tailProduct = (query: number, key: number, h: number): number => {
    if (tail === undefined || tailQ === undefined || tailK === undefined) return 0;
    const first = query * tailQ.columns + h * tail.headDim;
    return dot(tailQ.data, first, tailK.data, key * tailK.columns, tail.headDim);
  };
  const out = memory.write(kernel.out);
  const visible = visibleKeys(memory, mask, tokens);
  const slopes = kernel.slopes === undefined ? undefined : memory.read(kernel.slopes);
  for (let row = 0; row < rows; row++) {
    const query = kernel.queryRow === undefined ? row : memory.index(kernel.queryRow, row, q.rows);
    const keys = visible(query);
    if (keys.length === 0 && sink === undefined)
      throw new Error(`query ${query} sees no key, so its softmax has no value.`);
    const scores = new Float64Array(keys.length);
    for (let h = 0; h < heads; h++) {
      const kv = Math.floor((h * kvHeads) / heads);
      const own = sink?.data[h] ?? -Infinity;
      let max = own;
      const slope = slopes?.data[h] ?? 0;
      keys.forEach(({ row: key, bias, distance = 0, position = 0 }, i) => {
        const plain = dot(q.data, query * q.columns + h * headDim, k.data, key * k.columns + kv * headDim, headDim);
        const product = scale * (plain + tailProduct(query, key, h));
        const scaled = product * (kScale?.data[key * kScale.columns + kv] ?? 1);
        scores[i] = softCap(scaled, kernel.cap) + slopeTerm(slope, { distance, position }, kernel.slopeFactor) + bias;
        max = Math.max(max, scores[i]!);
      });
      let sum = sink === undefined ? 0 : Math.exp(own - max);
      for (let i = 0; i < keys.length; i++) sum += scores[i] = Math.exp(scores[i]! - max);
      keys.forEach(({ row: key }, at) => {
        const p = scores[at]! / sum;
        if (p === 0) return;
        const weight = p * (vScale?.data[key * vScale.columns + kv] ?? 1);
        for (let i = 0; i < valueDim; i++) {
          out.data[row * out.columns + h * valueDim + i]! += weight * v.data[key * v.columns + kv * valueDim + i]!;
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
  /** How many positions it is further on than the query, and its own, where these are known. */
  readonly distance?: number | undefined;
  readonly position?: number | undefined;
}

/** The keys that a query sees, in order. `rows`: rows of keys and values. */
function visibleKeys(memory: KernelMemory, mask: Mask, rows: number): (query: number) => readonly VisibleKey[] {
  const all = Array.from({ length: rows }, (_, row) => row);
  switch (mask.kind) {
    case 'column': {
      const end = memory.read(mask.subtreeEnd);
      const position = mask.position === undefined ? undefined : memory.read(mask.position).data;
      const isNear = (query: number, key: number): boolean =>
        position === undefined || position[key]! >= firstSeen(position[query]!, mask);
      return (query) =>
        all
          .filter((key) => key <= query && query < end.data[key]! && isNear(query, key))
          .map((row) => ({
            row,
            bias: 0,
            distance: position && position[row]! - position[query]!,
            position: position?.[row],
          }));
    }
    case 'path': {
      const [position, key] = [memory.read(mask.position), memory.read(mask.key)];
      return (query) => {
        const first = memory.index(mask.begin, query, key.rows);
        const last = position.data[query]!;
        const begin = firstSeen(last, mask);
        const count = Math.max(0, Math.min(last + 1, key.rows - first) - begin);
        return Array.from({ length: count }, (_, i) => ({
          row: memory.index(mask.key, first + begin + i, rows),
          bias: 0,
          distance: begin + i - last,
          position: begin + i,
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

// What kernel IR does with logits, in float64: log-probabilities by blocks, their sum, and the choice of a token.

export function logProb(memory: KernelMemory, kernel: LogProbKernel): void {
  const rows = memory.extent(kernel.rows);
  const a = leftOperand(memory, kernel, rows);
  const weight = memory.weight(kernel.weight, kernel.k);
  if (weight.rows !== kernel.vocab)
    throw new Error(`weight '${kernel.weight}' has ${weight.rows} rows, vocab is ${kernel.vocab}.`);
  const parts = memory.write(kernel.parts);
  const logits = kernel.logits === undefined ? undefined : memory.write(kernel.logits);
  const bias = kernel.bias === undefined ? undefined : memory.read(kernel.bias);
  const context = programContext(memory, {});
  for (let row = 0; row < rows; row++) {
    context.row = row;
    const scale = evaluateScalar(kernel.rowScale, context);
    const target = memory.index(kernel.target, row, kernel.vocab);
    const key = kernel.draw === undefined ? undefined : drawKey(memory, kernel.draw, row);
    const tokenOf = tokensOf(memory, kernel.draw?.ids);
    for (let start = 0; start < kernel.vocab; start += LOGPROB_BLOCK) {
      const z = new Float64Array(Math.min(LOGPROB_BLOCK, kernel.vocab - start));
      dots(a.data, row * a.columns, weight.data, start * kernel.k, kernel.k, z);
      z.forEach((product, j) => {
        z[j] = softCap(scale * product + (bias?.data[start + j] ?? 0), kernel.cap);
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
        const scores = z.map((value, j) => drawScore(value, key.inverseTemperature, key, tokenOf(start + j)));
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

/** The token that a column stands for. */
function tokensOf(memory: KernelMemory, ids: string | undefined): (column: number) => number {
  if (ids === undefined) return (column) => column;
  const { data } = memory.read(ids);
  return (column) => data[column]!;
}

const drawKey = (
  memory: KernelMemory,
  draw: DrawBuffers,
  row: number,
): NoiseKey & { readonly inverseTemperature: number } => ({
  inverseTemperature: memory.read(draw.inverseTemperature).data[row]!,
  low: memory.read(draw.low).data[row]!,
  high: memory.read(draw.high).data[row]!,
});

export function logProbReduce(memory: KernelMemory, kernel: LogProbReduceKernel): void {
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
      drawn.token.data[row] = tokensOf(memory, kernel.draw?.ids)(token);
      drawn.logProb.data[row] = zDrawn - (max + Math.log(sum));
    }
    if (totals !== undefined) [totals.top.data[row], totals.sum.data[row]] = [max, sum];
    logProb.data[row] = z - (max + Math.log(sum));
    isArgmax.data[row] = argmax === memory.index(kernel.target, row, kernel.vocab) ? 1 : 0;
  }
  for (const name of reducedBuffers(kernel)) memory.finish(name);
  memory.finish(kernel.logProb);
  memory.finish(kernel.isArgmax);
}

export function sample(memory: KernelMemory, kernel: SampleKernel): void {
  const { vocab, logits, totals, inputs, saved, token, logProb, best } = kernel;
  const z = memory.read(logits);
  const [top, sum] = [memory.read(totals.top), memory.read(totals.sum)];
  const numbers = mapInputs((name) => memory.read(inputs[name]).data);
  const written = {
    token: memory.write(token),
    logProb: memory.write(logProb),
    tokens: memory.write(best.tokens),
    logProbs: memory.write(best.logProbs),
  };
  for (let row = 0; row < z.rows; row++) {
    const own = z.data.subarray(row * vocab, (row + 1) * vocab);
    const logProbOf = (at: number): number => own[at]! - (top.data[row]! + Math.log(sum.data[row]!));
    const { filters, draw, entries, mask } = rowSampling(numbers, row, vocab);
    const chosen = chooseToken(adjustLogits(own, filters, entries, mask), filters, draw);
    written.token.data[row] = chosen;
    written.logProb.data[row] = logProbOf(chosen);
    const most = largestTokens(own, Math.min(best.most, memory.read(best.count).data[row]!));
    written.tokens.data.set(most, row * best.most);
    written.logProbs.data.set(most.map(logProbOf), row * best.most);
  }
  memory.write(saved);
  for (const name of [token, logProb, best.tokens, best.logProbs]) memory.finish(name);
}

// The kernels of mixtures of experts in the interpreter of kernel IR.

export function route(memory: KernelMemory, kernel: RouteKernel): void {
  const { count, chosen } = kernel;
  const logits = memory.read(kernel.logits);
  const bias = kernel.bias === undefined ? undefined : memory.read(kernel.bias).data;
  const experts = memory.write(kernel.experts);
  const weights = kernel.weights.map((name) => memory.write(name));
  for (let row = 0; row < logits.rows; row++) {
    const own = logits.data.subarray(row * count, (row + 1) * count);
    const most = chosenExperts(own, kernel, chosen, bias);
    experts.data.set(most, row * chosen);
    chosenWeights(own, kernel, most).forEach((weight, slot) => {
      weights[slot]!.data[row] = weight;
    });
  }
  for (const name of [kernel.experts, ...kernel.weights]) memory.finish(name);
  if (kernel.pairs !== undefined) arrangePairs(memory, experts, { ...kernel, ...kernel.pairs });
}

export const sortByExpert = (memory: KernelMemory, kernel: SortByExpertKernel): void =>
  arrangePairs(memory, memory.read(kernel.experts), kernel);

function arrangePairs(
  memory: KernelMemory,
  experts: { readonly rows: number; readonly data: Float64Array },
  kernel: Pick<SortByExpertKernel, 'count' | 'chosen' | 'experts' | keyof ArrangedPairs>,
): void {
  const order = memory.write(kernel.order);
  const starts = memory.write(kernel.starts);
  const found = expertOrder(experts.data);
  found.order.forEach((pair, at) => {
    order.data[at] = Math.floor(pair / kernel.chosen);
  });
  kernel.places.forEach((name, slot) => {
    const places = memory.write(name);
    for (let row = 0; row < experts.rows; row++) places.data[row] = found.places[row * kernel.chosen + slot]!;
  });
  for (const expert of experts.data) {
    if (!(Number.isInteger(expert) && expert >= 0 && expert < kernel.count))
      throw new Error(`${kernel.experts} holds ${expert}, which is not an expert below ${kernel.count}.`);
    for (let after = expert + 1; after <= kernel.count; after++) starts.data[after]!++;
  }
  if (kernel.owners !== undefined) memory.write(kernel.owners).data.set(Float64Array.from(experts.data).sort());
}

/** The expert of each row. */
export function rowExperts(memory: KernelMemory, { starts, count }: ExpertRows, rows: number): (row: number) => number {
  const { data } = memory.read(starts);
  if (data[0] !== 0 || data[count] !== rows) throw new Error(`${starts} lists ${data[count]} rows of ${rows}.`);
  return (row) => data.findLastIndex((start, expert) => expert < count && start <= row);
}

// The first factor of adapters.

export function shrink(memory: KernelMemory, kernel: ShrinkKernel): void {
  const { k, rank, parts, slots } = kernel;
  const a = memory.read(kernel.a);
  const weight = memory.weight(kernel.weight, k);
  const scale = memory.weight(kernel.scale, 1);
  const out = memory.write(kernel.out);
  const columns = parts * rank;
  for (let row = 0; row < out.rows; row++) {
    const slot = memory.slot(kernel.slot, row, slots);
    if (slot === undefined) continue;
    const own = out.data.subarray(row * columns, (row + 1) * columns);
    dots(a.data, row * k, weight.data, slot * columns * k, k, own);
    own.forEach((sum, i) => {
      own[i] = sum * scale.data[slot * parts + Math.floor(i / rank)]!;
    });
  }
  memory.finish(kernel.out);
}
