/** What the verifier of a module knows while it checks a kernel, and how it complains. */
import { groupsProblem, MAX_CHOSEN, MAX_EXPERTS } from './experts.js';
import { type ExtentDecl, isWithin, productName } from './extents.js';
import { CACHE_FORMATS } from './function.js';
import { groupOf } from './groups.js';
import { MAX_ADAPTER_SLOTS } from './adapterRows.js';
import {
  type ArrangedPairs,
  type AttentionKernel,
  type BufferDecl,
  type GemmKernel,
  type Kernel,
  LOGPROB_BLOCK,
  type LogProbKernel,
  type LogProbReduceKernel,
  type Pairing,
  partWidth,
  type RouteKernel,
  type SampleKernel,
  type SortByExpertKernel,
  type WeightDecl,
} from './kernel.js';
import { type Mask, reachOfMask } from './mask.js';
import { kernelReads, kernelWrites, scaleBuffers } from './kernelAccess.js';
import { MICRO_DEPTH } from './microscaled.js';
import { sourceRows } from './packing.js';
import { orderProblem } from './rotaryOrder.js';
import { MAX_SAMPLE_VOCAB, MAX_TOP_TOKENS, maskWords, SAMPLE_INPUT_NAMES, SAMPLE_INPUTS } from './sampleInputs.js';
import { isRowInvariant } from './scalar.js';
import { FORMATS, isCodeFormat, layoutProblem } from './storage.js';
import type { BufferDType, Dim } from './types.js';
import { type BufferReader, shape, verifyProgram } from './verifyProgram.js';

export interface KernelCheck extends BufferReader {
  readonly extents: readonly ExtentDecl[];
  /** Declaration of a buffer that the kernel may write, which it does now. Throws if it may not. */
  write(name: string): BufferDecl;
  weight(name: string): WeightDecl | undefined;
  /** Throws if `buffer` has another type or shape than as `role` it must have. */
  is(buffer: BufferDecl, dtypes: readonly BufferDType[], rows: Dim, columns: Dim, role: string): void;
}

// Checks what a contraction multiplies.

/** How a kernel reads a weight. */
export interface Multiplied {
  readonly k: number;
  /** Rows of a matrix. */
  readonly each: number;
  readonly pairing: Pairing;
  readonly a: BufferDecl;
  readonly experts?: number | undefined;
}

export const samePairing = (a: Pairing, b: Pairing): boolean =>
  a.kind === b.kind &&
  (a.kind === 'none' || b.kind === 'none' || a.width === b.width) &&
  (a.kind !== 'rotate' || b.kind !== 'rotate' || a.headDim === b.headDim);

/** Checks the weight called `name`, which a kernel multiplies with `a`: `each` rows of depth `k`, of each expert. */
export function verifyContraction(
  name: string,
  { k, each, pairing, a, experts }: Multiplied,
  check: KernelCheck,
): void {
  const rows = each * (experts ?? 1);
  const weight = check.weight(name);
  if (weight === undefined) return check.fail(`weight '${name}' is not declared.`);
  if (weight.layout === 'rows')
    check.fail(`weight '${name}' is in layout rows; a contraction reads panels, vnni or kmajor.`);
  if (weight.k !== k) check.fail(`weight '${name}' has k ${weight.k}, the kernel ${k}.`);
  if (sourceRows(weight) !== rows)
    check.fail(`weight '${name}' has ${sourceRows(weight)} rows, the kernel needs ${rows}.`);
  if (weight.experts !== experts)
    check.fail(`weight '${name}' has ${weight.experts ?? 1} matrices, the kernel reads ${experts ?? 1}.`);
  if (!samePairing(weight.pairing, pairing))
    check.fail(`weight '${name}' is packed with another pairing than the kernel reads.`);
  const { element } = FORMATS[weight.format];
  if (weight.layout === 'kmajor' && a.dtype !== element)
    check.fail(`weight '${name}' is ${weight.format}, '${a.name}' is ${a.dtype}: tensor cores multiply equal types.`);
  if (weight.layout === 'groups' && a.dtype !== 'bf16' && a.dtype !== 'f16')
    check.fail(`weight '${name}' is in groups, but '${a.name}' is ${a.dtype}: tensor cores multiply 16-bit numbers.`);
  if (weight.layout === 'microscaled' && a.dtype !== 'bf16')
    check.fail(`weight '${name}' is microscaled, but '${a.name}' is ${a.dtype}: its values are exact in bf16.`);
  if (weight.layout === 'vnni' && a.dtype !== element)
    check.fail(`weight '${name}' is in layout vnni, but '${a.name}' is ${a.dtype}.`);
}

// Checks an attention kernel and its mask.

export function verifyAttention(kernel: AttentionKernel, check: KernelCheck): void {
  const { heads, kvHeads, headDim, scale, mask } = kernel;
  if (![heads, kvHeads, headDim].every(isExtent))
    check.fail('heads, kvHeads and headDim are whole numbers, at least 1.');
  if (heads % kvHeads !== 0) check.fail(`${heads} heads are not a multiple of ${kvHeads} key-value heads.`);
  if (!(Number.isFinite(scale) && scale > 0)) check.fail(`scale ${scale} is not a positive number.`);
  verifyCap(kernel.cap, check);
  const float: readonly BufferDType[] = ['f32', 'bf16', 'f16'];
  const k = check.read(kernel.k);
  const keys = k.rows;
  const q = check.read(kernel.q);
  const queries = mask.kind === 'path' ? q.rows : keys;
  check.is(q, float, queries, heads * headDim, 'queries');
  const stored = kernel.scales === undefined ? float : CACHE_FORMATS;
  check.is(k, stored, keys, kvHeads * headDim, 'keys');
  const { valueDim = headDim, tail } = kernel;
  if (!isExtent(valueDim)) check.fail(`values of ${valueDim} elements: there is at least 1.`);
  check.is(check.read(kernel.v), [k.dtype], keys, kvHeads * valueDim, 'values');
  if (tail !== undefined) {
    if (!isExtent(tail.headDim)) check.fail(`a tail of ${tail.headDim} elements: there is at least 1.`);
    if (kernel.scales !== undefined) check.fail('keys with a tail are no codes.');
    check.is(check.read(tail.q), [q.dtype], queries, heads * tail.headDim, 'tails of queries');
    check.is(check.read(tail.k), [k.dtype], keys, tail.headDim, 'tails of keys');
  }
  for (const name of scaleBuffers(kernel)) check.is(check.read(name), ['f32'], keys, kvHeads, 'scales');
  verifyMask(mask, queries, keys, kernel.slopes !== undefined, check);
  if (kernel.slopes !== undefined) check.is(check.read(kernel.slopes), ['f32'], heads, 1, 'slopes of heads');
  const { slopeFactor } = kernel;
  if (slopeFactor !== undefined && !(kernel.slopes !== undefined && slopeFactor > 0 && slopeFactor < Infinity))
    check.fail(`a factor ${slopeFactor} of slopes: it is a number above 0, where there are slopes.`);
  if (kernel.sink !== undefined) {
    const sink = check.read(kernel.sink);
    if (sink.space !== 'weight') check.fail(`'${sink.name}' is an ${sink.space}: sinks are weights.`);
    check.is(sink, float, heads, 1, 'sinks');
  }
  if (kernel.queryRow !== undefined) check.is(check.read(kernel.queryRow), ['i32'], kernel.rows, 1, 'rows of queries');
  if (kernel.queryRow === undefined && kernel.rows !== queries)
    check.fail(`its rows are ${kernel.rows}, those of its queries ${queries}: it needs a queryRow.`);
  check.is(check.write(kernel.out), float, kernel.rows, heads * valueDim, 'the result');
}

/** The limit of a soft cap, if there is one. */
export function verifyCap(cap: number | undefined, check: KernelCheck): void {
  if (cap !== undefined && !(Number.isFinite(cap) && cap > 0)) check.fail(`cap ${cap} is not a positive number.`);
}

function verifyMask(mask: Mask, queries: Dim, keys: Dim, isSloped: boolean, check: KernelCheck): void {
  const { window, chunk } = reachOfMask(mask);
  if (window !== undefined && !isExtent(window)) check.fail(`a window of ${window} keys is no whole number above 0.`);
  if (chunk !== undefined && !isExtent(chunk)) check.fail(`chunks of ${chunk} keys are no whole number above 0.`);
  if (window !== undefined && chunk !== undefined) check.fail('keys lie in a window or in chunks.');
  switch (mask.kind) {
    case 'column':
      if ((mask.position === undefined) !== (window === undefined && chunk === undefined && !isSloped))
        check.fail('trees need positions for a window, chunks or slopes, and only for these.');
      if (mask.position !== undefined) check.is(check.read(mask.position), ['i32'], keys, 1, 'positions');
      return check.is(check.read(mask.subtreeEnd), ['i32'], keys, 1, 'ends of subtrees');
    case 'path': {
      check.is(check.read(mask.begin), ['i32'], queries, 1, 'beginnings of paths');
      check.is(check.read(mask.position), ['i32'], queries, 1, 'positions of queries');
      const key = check.read(mask.key);
      return check.is(key, ['i32'], key.rows, 1, 'rows of keys');
    }
    case 'bias':
      if (isSloped) check.fail('slopes want paths, or trees with positions.');
      return check.is(check.read(mask.buffer), ['f32'], keys, keys, 'an attention bias');
    default:
      return mask satisfies never;
  }
}

// Checks the two kernels that make log-probabilities: parts of a log-sum-exp, and what they amount to.

export function verifyLogProb(kernel: LogProbKernel, check: KernelCheck): void {
  if (!isExtent(kernel.k) || !isExtent(kernel.vocab)) check.fail('k and vocab are whole numbers, at least 1.');
  const a = check.read(kernel.a);
  check.is(a, ['f32', 'bf16', 'f16'], kernel.rows, kernel.k, 'the left operand');
  verifyContraction(kernel.weight, { k: kernel.k, each: kernel.vocab, pairing: { kind: 'none' }, a }, check);
  if (!isRowInvariant(kernel.rowScale)) check.fail('rowScale differs between columns of a row.');
  if (kernel.bias !== undefined) {
    const bias = check.read(kernel.bias);
    if (bias.space !== 'weight') check.fail(`'${bias.name}' is an ${bias.space}: a bias of columns is a weight.`);
    check.is(bias, ['f32', 'bf16', 'f16'], kernel.vocab, 1, 'a bias of columns');
  }
  verifyCap(kernel.cap, check);
  verifyProgram(
    kernel.rowScale,
    { rows: kernel.rows, columns: kernel.vocab, accumulators: 0, headDim: undefined },
    check,
  );
  check.is(check.read(kernel.target), ['i32'], kernel.rows, 1, 'target tokens');
  if (kernel.draw !== undefined) {
    const { inverseTemperature, low, high, ids } = kernel.draw;
    check.is(check.read(inverseTemperature), ['f32'], kernel.rows, 1, 'inverse temperatures');
    for (const half of [low, high]) check.is(check.read(half), ['i32'], kernel.rows, 1, 'keys of noise');
    verifyIds(ids, kernel.vocab, check);
  }
  if (kernel.logits !== undefined) {
    const logits = check.write(kernel.logits);
    if (logits.space !== 'arena') check.fail(`'${logits.name}' is an ${logits.space}: logits stay in the arena.`);
    if (!isWithin(logits.rows, kernel.rows, check.extents))
      check.fail(`'${logits.name}' has ${logits.rows} rows, which are not the first of ${kernel.rows}.`);
    check.is(logits, ['f32'], logits.rows, kernel.vocab, 'logits');
  }
  verifyParts(check.write(kernel.parts), kernel, check);
}

/** Tokens of columns. They come from the model's files, so that no kernel may write them. */
function verifyIds(ids: string | undefined, vocab: number, check: KernelCheck): void {
  if (ids === undefined) return;
  const buffer = check.read(ids);
  if (buffer.space !== 'weight') check.fail(`'${ids}' is an ${buffer.space}: tokens of columns are constants.`);
  check.is(buffer, ['f32'], vocab, 1, 'tokens of columns');
}

function verifyParts(parts: BufferDecl, kernel: LogProbKernel | LogProbReduceKernel, check: KernelCheck): void {
  const columns = partWidth(kernel) * Math.ceil(kernel.vocab / LOGPROB_BLOCK);
  check.is(parts, ['f32'], kernel.rows, columns, 'parts of a log-sum-exp');
}

export function verifyLogProbReduce(kernel: LogProbReduceKernel, check: KernelCheck): void {
  if (!isExtent(kernel.vocab)) check.fail('vocab is a whole number, at least 1.');
  verifyParts(check.read(kernel.parts), kernel, check);
  check.is(check.read(kernel.target), ['i32'], kernel.rows, 1, 'target tokens');
  check.is(check.write(kernel.logProb), ['f32'], kernel.rows, 1, 'log-probabilities');
  check.is(check.write(kernel.isArgmax), ['i32'], kernel.rows, 1, 'argmax flags');
  if (kernel.totals !== undefined)
    for (const name of Object.values<string>({ ...kernel.totals }))
      check.is(check.write(name), ['f32'], kernel.rows, 1, 'totals');
  if (kernel.draw === undefined) return;
  verifyIds(kernel.draw.ids, kernel.vocab, check);
  check.is(check.write(kernel.draw.token), ['i32'], kernel.rows, 1, 'drawn tokens');
  check.is(check.write(kernel.draw.logProb), ['f32'], kernel.rows, 1, 'log-probabilities of the drawn tokens');
}

// Checks a kernel that chooses tokens from logits.

export function verifySample(kernel: SampleKernel, check: KernelCheck): void {
  const { rows, vocab, best, totals, inputs } = kernel;
  /** A vector of which the kernel reads the first elements, one for each of its rows. */
  const vector = (name: string, dtype: BufferDType, role: string): void => {
    const buffer = check.read(name);
    check.is(buffer, [dtype], isWithin(rows, buffer.rows, check.extents) ? buffer.rows : rows, 1, role);
  };
  if (!Number.isInteger(vocab) || vocab < 1 || vocab >= MAX_SAMPLE_VOCAB)
    check.fail(`${vocab} tokens: it takes at least 1 and fewer than ${MAX_SAMPLE_VOCAB}.`);
  if (!Number.isInteger(best.most) || best.most < 1 || best.most > MAX_TOP_TOKENS)
    check.fail(`${best.most} best tokens: it finds 1 to ${MAX_TOP_TOKENS}.`);
  check.is(check.read(kernel.logits), ['f32'], rows, vocab, 'logits');
  for (const name of [totals.top, totals.sum]) vector(name, 'f32', 'totals');
  const listed = check.read(inputs.entryToken).rows;
  for (const name of SAMPLE_INPUT_NAMES) {
    const { dtype, per } = SAMPLE_INPUTS[name];
    const buffer = check.read(inputs[name]);
    if (per === 'row') vector(inputs[name], dtype, name);
    else if (per === 'mask') check.is(buffer, [dtype], buffer.rows, maskWords(vocab), name);
    else check.is(buffer, [dtype], per === 'token' ? buffer.rows : listed, 1, name);
  }
  vector(best.count, 'i32', 'numbers of best tokens');
  check.is(check.write(kernel.saved), ['f32'], listed, 1, 'kept logits');
  check.is(check.write(kernel.token), ['i32'], rows, 1, 'chosen tokens');
  check.is(check.write(kernel.logProb), ['f32'], rows, 1, 'log-probabilities');
  check.is(check.write(best.tokens), ['i32'], rows, best.most, 'best tokens');
  check.is(check.write(best.logProbs), ['f32'], rows, best.most, 'log-probabilities of best tokens');
}

// Checks the kernels and weights of mixtures of experts.

/** What is wrong with the matrices of a weight's experts; undefined if nothing is. */
export function expertsProblem({ experts, sources, layout }: WeightDecl): string | undefined {
  if (experts === undefined) return undefined;
  if (!Number.isInteger(experts) || experts < 1 || experts > MAX_EXPERTS)
    return `${experts} experts: there are from 1 to ${MAX_EXPERTS}.`;
  const each = sources.length / experts;
  if (layout === 'rows' || !Number.isInteger(each))
    return `${sources.length} sources are not the packed matrices of ${experts} experts.`;
  const isAlike = sources.every(({ rows, order }, i) => order === undefined && rows === sources[i % each]!.rows);
  return isAlike ? undefined : 'its experts have matrices of different rows.';
}

/** What is wrong with the slots of a weight; undefined if nothing is. */
export function slotsProblem({ slots, experts, group, scalesOf, from }: WeightDecl): string | undefined {
  if (slots === undefined) return undefined;
  if (!isExtent(slots.count) || slots.count > MAX_ADAPTER_SLOTS)
    return `${slots.count} slots: there are from 1 to ${MAX_ADAPTER_SLOTS}.`;
  return [experts, group, scalesOf, from].some((each) => each !== undefined)
    ? 'a weight with slots has neither experts nor codes.'
    : undefined;
}

function counts({ count, chosen }: Pick<RouteKernel, 'count' | 'chosen'>, check: KernelCheck): void {
  if (!Number.isInteger(count) || count < 1 || count > MAX_EXPERTS)
    check.fail(`${count} experts: there are from 1 to ${MAX_EXPERTS}.`);
  if (!Number.isInteger(chosen) || chosen < 1 || chosen > Math.min(count, MAX_CHOSEN))
    check.fail(`${chosen} of ${count} experts: a row has from 1 to ${Math.min(count, MAX_CHOSEN)}.`);
}

export function verifyRoute(kernel: RouteKernel, check: KernelCheck): void {
  const { rows, count, chosen } = kernel;
  counts(kernel, check);
  check.is(check.read(kernel.logits), ['f32'], rows, count, 'logits of a router');
  if (kernel.bias !== undefined)
    check.is(check.read(kernel.bias), ['f32', 'bf16', 'f16'], count, 1, 'numbers that are added to scores');
  const problem = kernel.groups === undefined ? undefined : groupsProblem(kernel.groups, count, chosen);
  if (problem !== undefined) check.fail(`${problem}.`);
  const { factor = 1 } = kernel;
  if (!(factor > 0 && factor < Infinity)) check.fail(`weights times ${factor}: it must be a number above 0.`);
  const { inTurn, normalized, scores, groups, bias } = kernel;
  if (inTurn !== undefined) {
    if (!(inTurn > 0 && inTurn < Infinity))
      check.fail(`weights in turn within ${inTurn}: it must be a number above 0.`);
    if (normalized || [scores, groups, bias].some((each) => each !== undefined))
      check.fail('weights in turn are those of the largest logits, each a part of a softmax of its own.');
  }
  check.is(check.write(kernel.experts), ['i32'], rows, chosen, 'chosen experts');
  if (kernel.weights.length !== chosen) check.fail(`${kernel.weights.length} weights for ${chosen} experts of a row.`);
  for (const name of kernel.weights) check.is(check.write(name), ['f32'], rows, 1, 'weights of experts');
  if (kernel.pairs !== undefined) verifyPairs({ ...kernel, ...kernel.pairs }, check);
}

/** Checks that `behind` are the kernels that a product may run, and that it can. */
export function verifyRouting(kernel: GemmKernel, behind: readonly Kernel[], fail: (what: string) => never): void {
  const { routing, segments, rows } = kernel;
  if (routing === undefined) return;
  const { route, gather } = routing;
  const own = [route, ...(gather === undefined ? [] : [gather])];
  if (JSON.stringify(own) !== JSON.stringify(behind.slice(0, own.length)))
    fail(`the kernels that it may run are not those behind it.`);
  const stores = segments.filter(({ outputs }) =>
    outputs.some(({ kind, buffer }) => kind === 'store' && buffer === route.logits),
  );
  if (route.rows !== rows || route.pairs === undefined || stores.length !== 1)
    fail(`it may run '${route.name}' only if that arranges pairs by logits that one of its segments stores.`);
  if (gather === undefined) return;
  const isPlain = gather.outputs.every(({ kind }) => kind === 'store') && gather.headDim === undefined;
  if (!isPlain || gather.beside !== undefined || gather.finish !== undefined)
    fail(`it may run '${gather.name}' only as a loop of one domain that stores.`);
  if ([...kernelWrites(kernel)].some((name) => kernelReads(gather).has(name)))
    fail(`'${gather.name}' reads what it stores: other columns may not be there yet.`);
}

type Pairs = Pick<SortByExpertKernel, 'rows' | 'count' | 'chosen' | keyof ArrangedPairs>;

function verifyPairs({ rows, count, chosen, order, places, starts, owners }: Pairs, check: KernelCheck): void {
  check.is(check.write(order), ['i32'], productName(rows, chosen), 1, 'rows of pairs');
  if (places.length !== chosen) check.fail(`${places.length} places for ${chosen} experts of a row.`);
  for (const name of places) check.is(check.write(name), ['i32'], rows, 1, 'places of pairs');
  check.is(check.write(starts), ['i32'], count + 1, 1, 'where the rows of experts begin');
  if (owners !== undefined) check.is(check.write(owners), ['i32'], productName(rows, chosen), 1, 'experts of pairs');
}

export function verifySortByExpert(kernel: SortByExpertKernel, check: KernelCheck): void {
  const { rows, chosen } = kernel;
  counts(kernel, check);
  check.is(check.read(kernel.experts), ['i32'], rows, chosen, 'chosen experts');
  verifyPairs(kernel, check);
}

// Verifier of weights as kernels read them, and the rules of names and extents that all declarations share.

/** Names of declarations. They appear in generated source. */
export const IDENTIFIER = /^[a-z][a-z0-9_]{0,127}$/;
/** Largest extent of one dimension: element counts of two dimensions stay exact in a double. */
export const MAX_EXTENT = 2 ** 26;

export const isExtent = (n: number): boolean => Number.isInteger(n) && n >= 1 && n <= MAX_EXTENT;

/** Why `rows` rows cannot be paired so; undefined if they can. */
export function pairingProblem(pairing: Pairing, rows: number): string | undefined {
  if (pairing.kind === 'none') return undefined;
  if (!isExtent(pairing.width)) return `pairing width ${pairing.width} is not a whole number, at least 1.`;
  if (pairing.kind === 'interleave') return undefined;
  const { headDim, width } = pairing;
  if (!isExtent(headDim) || headDim % 2 !== 0) return `head dimension ${headDim} is not an even whole number.`;
  if ((headDim / 2) % width !== 0)
    return `pairing width ${width} does not divide half the head dimension, ${headDim / 2}.`;
  if (rows % headDim !== 0) return `${rows} columns are not whole heads of ${headDim}.`;
  return undefined;
}

/** Throws if `weight` breaks a rule; otherwise it is known from now on. */
export function verifyWeight(
  weight: WeightDecl,
  known: Map<string, WeightDecl>,
  buffers: ReadonlyMap<string, BufferDecl>,
): void {
  const fail = (what: string): never => {
    throw new Error(`Weight ${JSON.stringify(weight.name)}: ${what}`);
  };
  if (!IDENTIFIER.test(weight.name)) fail('the name does not match [a-z][a-z0-9_]*.');
  if (known.has(weight.name)) fail('declared twice.');
  if (!isExtent(weight.k) || weight.sources.some((source) => !isExtent(source.rows)))
    fail('k and the rows of every source are whole numbers, at least 1.');
  if (weight.sources.length === 0) fail('it has no sources.');
  for (const { order, rows } of weight.sources) {
    if (order === undefined) continue;
    if (weight.sources.length > 1) fail('a source whose rows are in another order is the only one.');
    const wrong = orderProblem(order, rows);
    if (wrong !== undefined) fail(`${wrong}.`);
  }
  const rows = sourceRows(weight);
  const misplaced = layoutProblem(weight.layout, weight.format);
  if (misplaced !== undefined) fail(`${misplaced}.`);
  if (weight.columnScale !== undefined && !FORMATS[weight.format].takesColumnScale)
    fail(`format ${weight.format} takes no column scale.`);
  if (weight.columnOffset !== undefined && (weight.columnScale === undefined || !Number.isFinite(weight.columnOffset)))
    fail('a column offset is a number, which is added to a column scale.');
  if (weight.scalesOf !== undefined && (weight.layout !== 'rows' || weight.format !== 'f32' || weight.k !== 1))
    fail('scales of rows are f32 in layout rows.');
  if ((weight.group !== undefined) !== (weight.format === 'u4'))
    fail(`format ${weight.format} ${weight.group === undefined ? 'needs' : 'has no'} groups of columns.`);
  if (weight.group !== undefined && groupOf(weight.group, weight.k) !== weight.group)
    fail(`groups of ${weight.group} columns of ${weight.k} cannot be packed.`);
  if (weight.layout === 'microscaled' && weight.k % MICRO_DEPTH !== 0)
    fail(`${weight.k} columns are no whole blocks of ${MICRO_DEPTH}.`);
  if (weight.group !== undefined && weight.experts !== undefined) fail('matrices of experts are not kept in groups.');
  if (
    weight.from !== undefined &&
    weight.scalesOf === undefined &&
    weight.group === undefined &&
    !isCodeFormat(weight.format)
  )
    fail(`${weight.format} are no codes.`);
  if (weight.layout === 'rows') {
    if (weight.columnScale !== undefined && weight.scalesOf === undefined)
      fail("layout rows is the checkpoint's own memory: it takes no column scale.");
    if (weight.pairing.kind !== 'none' || (weight.sources.length !== 1 && weight.slots === undefined))
      fail('layout rows has one source and no pairing.');
  }
  const mixed = expertsProblem(weight) ?? slotsProblem(weight);
  if (mixed !== undefined) fail(mixed);
  const { experts = 1 } = weight;
  if (weight.pairing.kind === 'interleave') {
    const [first, second, ...more] = weight.sources.slice(0, weight.sources.length / experts);
    if (more.length > 0 || first?.rows !== second?.rows)
      fail('pairing interleave needs exactly two sources of equal rows.');
  }
  const wrong = pairingProblem(weight.pairing, rows / experts);
  if (wrong !== undefined) fail(wrong);
  const buffer = buffers.get(weight.name);
  if (
    buffer !== undefined &&
    (buffer.space !== 'weight' || buffer.rows !== rows || buffer.columns !== weight.k || weight.layout !== 'rows')
  ) {
    fail(
      'a buffer has the same name; it may only declare the same memory, ' +
        `a weight ${shape({ rows, columns: weight.k })} in layout rows.`,
    );
  }
  known.set(weight.name, weight);
}
