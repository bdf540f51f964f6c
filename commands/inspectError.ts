/**
 * `inspect --error`: what an arithmetic costs inside of a model. A few prompts go through its kernels twice, in the
 * interpreter of kernel IR: once with everything that is stored rounded as the target rounds it, once without any
 * rounding, in float64. No kernel is compiled, and no matrix unit is needed.
 */
import { buildGraph, openModel, storedFormats } from '../driver/functions.js';
import { isArtifact } from '../driver/names.js';
import { detectMachine, numericsOf } from '../driver/targets/cpuDevice.js';
import { targetOf } from '../driver/targets/index.js';
import { arithmeticName, type Precision, withCache } from '../driver/precision.js';
import { tensorValues } from '../driver/tensorValues.js';
import { UsageError, UserError } from '../errors.js';
import type { BufferDecl, KernelModule } from '../ir/kernel.js';
import { kernelWrites } from '../ir/kernelAccess.js';
import { interpretModule, logicalWeight, type RawTensor } from '../ir/kernelInterpreter.js';
import { joinF24 } from '../ir/scalar.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { classesOf } from '../models/model/model.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import { createTokenizer } from '../models/tokenizer/tokenizer.js';
import type { Numerics } from '../passes/numerics.js';
import { lower, optimize } from '../passes/runPasses.js';
import { defined } from '../system/defined.js';
import type { InspectRequest } from './inspect.js';

/** Multiplications that the interpreter does in a few minutes, and parameters that fit as float64, twice. */
const MAX_WORK = 1e10;
const MAX_PARAMETERS = 1.5e8;

type AboutModel = Pick<InspectRequest, 'model' | 'init' | 'precision' | 'target' | 'isa' | 'kvCache'>;

export interface ErrorRequest extends AboutModel {
  readonly prompts: readonly string[];
  /** Most tokens of each prompt. */
  readonly tokens: number;
  /** What it is measured by; by default float64 without any rounding. */
  readonly against?: Exclude<Precision, 'auto'>;
}

/** Root mean square of the differences of a kernel's results, divided by that of the exact results. */
export interface KernelError {
  /** Its place in the model: `layers.0.attention.qkv`. */
  readonly path: string;
  /** Undefined outside of layers. */
  readonly layer: number | undefined;
  /** By buffers that it writes; sums of squares and the like are left out. */
  readonly outputs: readonly { readonly buffer: string; readonly error: number }[];
}

export interface ErrorReport {
  readonly model: string;
  /** What is multiplied, and the kind of cache: `int8 and bf16`, `f32, FP8 cache`. */
  readonly arithmetic: string;
  /** Element types of activations and weights that are not codes. */
  readonly activations: string;
  readonly weights: string;
  readonly target: string;
  /** `float64`, or the precision that it was measured by. */
  readonly against: string;
  readonly prompts: number;
  readonly tokens: number;
  readonly kernels: readonly KernelError[];
  /** Error of the residual stream behind each layer. */
  readonly layers: readonly { readonly layer: number; readonly error: number }[];
  /** Log-probabilities of the prompts' own tokens, in nats. */
  /** Classes of the head; absent where it is that of a vocabulary. */
  readonly classes?: number;
  /** Of a vocabulary's head; of another one, of what it gives. */
  readonly logProbability: { readonly meanAbsolute: number; readonly worst: number };
}

/** How a model is computed, and its name. */
interface Arithmetic {
  readonly numerics: Numerics;
  readonly name: string;
}

/** Throws UserError. */
function arithmeticFor(request: ErrorRequest, checkpoint: Checkpoint): Arithmetic {
  const { target: kind = 'cpu', precision, isa, kvCache } = request;
  const target = targetOf(kind);
  const cache = kvCache === undefined ? {} : { kvCache };
  // Rounding needs no matrix units.
  if (target.devices.isHost && precision === 'bf16' && isa === undefined)
    return { numerics: withCache(numericsOf('amx'), kvCache), name: arithmeticName({ arithmetic: 'bf16', ...cache }) };
  const wanted = { target: kind, precision, ...defined({ isa }) };
  const stored = storedFormats(checkpoint, precision);
  const device = target.compiler.choose(wanted, detectMachine(), checkpoint.config.dtype, stored);
  return {
    numerics: withCache(target.compiler.numerics(device), kvCache),
    name: arithmeticName({ arithmetic: target.compiler.arithmetic(device), ...cache }),
  };
}

const ROUNDS: ReadonlySet<unknown> = new Set(['roundBf16', 'roundF20', 'roundF24']);

/** Kernels without the rounding that their programs spell out. */
function exact<T>(value: T): T {
  if (Array.isArray(value)) return (value as unknown[]).map(exact) as T;
  if (typeof value !== 'object' || value === null) return value;
  const record = value as Readonly<Record<string, unknown>>;
  if (ROUNDS.has(record['op'])) return exact(record['a']) as T;
  return Object.fromEntries(Object.entries(record).map(([name, each]) => [name, exact(each)])) as T;
}

function tensorsOf(checkpoint: Checkpoint, { weights }: KernelModule): ReadonlyMap<string, RawTensor> {
  const found = new Map<string, RawTensor>();
  const take = (name: string, k: number): void => {
    if (!found.has(name) && checkpoint.tensors.has(name)) found.set(name, tensorValues(checkpoint.tensors, name, k));
  };
  for (const { sources, k: own, scalesOf, columnScale } of weights) {
    const k = scalesOf?.k ?? own;
    for (const { tensor } of sources) take(tensor, k);
    if (columnScale !== undefined) take(columnScale, k);
  }
  return found;
}

const constantsOf = ({ constants = [] }: KernelModule): readonly (readonly [string, RawTensor])[] =>
  constants.map(({ name, values }) => [name, { rows: values.length, columns: 1, data: Float64Array.from(values) }]);

/** A prompt: one path, every token of which but the last predicts the next. */
function inputsOf(tokens: readonly number[]): ReadonlyMap<string, Float64Array> {
  const count = tokens.length;
  const places = Float64Array.from(tokens, (_, i) => i);
  return new Map([
    ['tokens', Float64Array.from(tokens)],
    ['position', places],
    ['subtree_end', new Float64Array(count).fill(count)],
    ['row', places.subarray(0, count - 1)],
    ['target', Float64Array.from(tokens.slice(1))],
  ]);
}

const layerOf = (path: string): number | undefined => {
  const number = /^layers\.(\d+)\./.exec(path)?.[1];
  return number === undefined ? undefined : Number(number);
};

/** Errors by kernel, and of the residual stream behind each layer. */
function errorsOf(module: KernelModule, compared: readonly Compared[]): Pick<ErrorReport, 'kernels' | 'layers'> {
  const kernels = module.kernels.flatMap(({ path }): readonly KernelError[] => {
    const own = compared.filter(({ kernel }) => kernel === path);
    const outputs = own.map(({ name, sums }) => ({ buffer: name, error: sums.error }));
    return outputs.length === 0 ? [] : [{ path, layer: layerOf(path), outputs }];
  });
  // What the last kernel of a layer writes in the width that the head reads.
  const head = module.kernels.find(({ anchor }) => anchor === 'logprob');
  const width = head?.anchor === 'logprob' ? head.k : undefined;
  const last = new Map(module.kernels.map(({ path }) => [layerOf(path), path]));
  const streams = new Map<number, number>();
  for (const { kernel, buffer, sums } of compared) {
    const layer = layerOf(kernel);
    if (layer !== undefined && last.get(layer) === kernel && buffer.columns === width) streams.set(layer, sums.error);
  }
  return { kernels, layers: [...streams].map(([layer, error]) => ({ layer, error })) };
}

/** A way to compute a model's scores. */
interface Computation {
  readonly module: KernelModule;
  /** The buffer of log-probabilities. */
  readonly output: string;
  run(tokens: readonly number[]): ReadonlyMap<string, Float64Array>;
}

function computation(checkpoint: Checkpoint, module: KernelModule, round: boolean): Computation {
  const tensors = tensorsOf(checkpoint, module);
  const all = new Map([...tensors, ...constantsOf(module)]);
  const weights = new Map(module.weights.map((weight) => [weight.name, logicalWeight(weight, all, round)]));
  return {
    module,
    output: module.buffers.find(({ space, dtype }) => space === 'output' && dtype === 'f32')!.name,
    run: (tokens) =>
      interpretModule(module, {
        sizes: { T: tokens.length, R: tokens.length - 1 },
        buffers: inputsOf(tokens),
        tensors,
        weights,
        round,
      }),
  };
}

/** Results that are one quantity differ by the order of additions alone. */
const SAME = 1e-6;

/** Whether two results are one quantity: where kernels differ, that is seen by their exact values for a prompt. */
function sameValues(a: Computation, b: Computation, prompt: readonly number[]): IsSame {
  const [left, right] = [a, b].map((each) => {
    const values = each.run(prompt);
    return new Map(resultsOf(each.module).map((result) => [result.name, valuesOf(result, values)]));
  });
  return (one, other) => {
    const sums = new Sums();
    const [found, wanted] = [left!.get(one.name), right!.get(other.name)];
    if (found === undefined || wanted === undefined) return false;
    sums.add(found, wanted);
    return sums.error < SAME;
  };
}

/** What is measured, and what it is measured by; `prompt` tells which of their results are the same. */
function computationsOf(
  request: ErrorRequest,
  checkpoint: Checkpoint,
  numerics: Numerics,
  prompt: readonly number[],
): { readonly own: Computation; readonly other: Computation; readonly isSame: IsSame } {
  const graph = buildGraph(checkpoint, 'tree');
  const roundedBy = (of: Numerics): Computation => computation(checkpoint, lower(optimize(graph, of), of), true);
  // The same kernels without rounding: their stream is one number, and nothing is codes.
  const exactBy = (of: Numerics): Computation => {
    const { narrow: _narrow, stored: _stored, cache: _cache, groups: _groups, groupsOf: _of, ...floats } = of;
    const whole: Numerics = { ...floats, stream: 'f32', products: 'f32' };
    return computation(checkpoint, exact(lower(optimize(graph, whole), whole)), false);
  };
  const { against } = request;
  const own = roundedBy(numerics);
  if (against === undefined) return { own, other: exactBy(numerics), isSame: (a, b) => a.name === b.name };
  // GPUs multiply 16-bit numbers.
  const place = against === 'f32' ? { target: 'cpu' as const } : {};
  const { kvCache: _cache, ...plain } = request;
  const { numerics: others } = arithmeticFor({ ...plain, ...place, precision: against }, checkpoint);
  return { own, other: roundedBy(others), isSame: sameValues(exactBy(numerics), exactBy(others), prompt) };
}

/** Throws UserError for a model that is too large, or whose weights are not there. */
export async function inspectError(request: ErrorRequest): Promise<ErrorReport> {
  const { model: path, init, target = 'cpu' } = request;
  if (isArtifact(path)) throw new UsageError(`${path} is an artifact`, 'name the checkpoint that it was compiled from');
  const checkpoint = openModel(path, init);
  const { config, tensors } = checkpoint;
  const parameters = [...tensors.values()].reduce(
    (sum, { shape }) => sum + shape.reduce((product, extent) => product * extent, 1),
    0,
  );
  const tokenizer = createTokenizer(describeTokenizer(checkpoint.path, config.vocabSize).spec);
  const limit = Math.min(request.tokens, config.maxPositions);
  const texts = await Promise.all(request.prompts.map((prompt) => tokenizer.encode(prompt)));
  const prompts = texts.map((tokens) => tokens.slice(0, limit)).filter(({ length }) => length > 1);
  if (prompts.length === 0) throw new UserError('no prompt has two tokens', 'Give longer texts');
  const tokens = prompts.reduce((sum, { length }) => sum + length, 0);
  if (parameters > MAX_PARAMETERS || parameters * tokens > MAX_WORK)
    throw new UserError(
      `${tokens} tokens through ${Math.round(parameters / 1e6)} M parameters are more than an interpreter does`,
      'Take fewer prompts (--limit), fewer tokens of each (--tokens), or a smaller model of the family',
    );
  const { numerics, name: arithmetic } = arithmeticFor(request, checkpoint);
  const { own, other, isSame } = computationsOf(request, checkpoint, numerics, prompts[0]!);
  const compared = comparedResults(own.module, other.module, isSame);
  let [absolute, worst, scored] = [0, 0, 0];
  for (const prompt of prompts) {
    const [got, wanted] = [own.run(prompt), other.run(prompt)];
    for (const each of compared) each.sums.add(valuesOf(each, got), valuesOf(each.other, wanted));
    const [found, right] = [got.get(own.output)!, wanted.get(other.output)!];
    for (let i = 0; i < right.length; i++) {
      const difference = Math.abs(found[i]! - right[i]!);
      [absolute, worst, scored] = [absolute + difference, Math.max(worst, difference), scored + 1];
    }
  }
  const errors = errorsOf(own.module, compared);
  const lost = errors.kernels.find(({ outputs }) => outputs.some(({ error }) => !Number.isFinite(error)));
  if (lost !== undefined || !Number.isFinite(absolute))
    throw new UserError(
      `${lost?.path ?? 'head'}: a value is not finite`,
      'the weights hold values that are not, or are too large: look at the checkpoint',
    );
  return {
    model: path,
    arithmetic,
    activations: numerics.activations,
    weights: numerics.weights.format,
    target,
    prompts: prompts.length,
    tokens,
    against: request.against ?? 'float64',
    ...errors,
    ...defined({ classes: classesOf(config) }),
    logProbability: { meanAbsolute: absolute / scored, worst },
  };
}

/** Sums of squares of one buffer over all prompts. */
export class Sums {
  #differences = 0;
  #values = 0;

  add(rounded: Float64Array, precise: Float64Array): void {
    for (let i = 0; i < precise.length; i++) {
      this.#differences += (rounded[i]! - precise[i]!) ** 2;
      this.#values += precise[i]! ** 2;
    }
  }

  get error(): number {
    return this.#differences === 0 ? 0 : Math.sqrt(this.#differences / this.#values);
  }
}

const isFloat = ({ dtype }: BufferDecl): boolean => dtype === 'f32' || dtype === 'bf16' || dtype === 'f16';
const TAIL = '_tail';
const HALF = /_(bf16|f16)$/;

/** What a kernel leaves for others, in its widest type. */
export interface Result {
  readonly kernel: string;
  /** The name without its element type. */
  readonly name: string;
  readonly buffer: BufferDecl;
  /** The lower bits of a stream of 24 bits. */
  readonly tail: string | undefined;
}

export interface Compared extends Result {
  readonly other: Result;
  readonly sums: Sums;
}

export function resultsOf({ buffers, kernels }: KernelModule): readonly Result[] {
  const decls = new Map(buffers.map((each) => [each.name, each]));
  return kernels.flatMap((kernel) => {
    const written = [...kernelWrites(kernel)].flatMap((name) => decls.get(name) ?? []).filter(isFloat);
    return written.flatMap((buffer): readonly Result[] => {
      const name = buffer.name.replace(HALF, '');
      // Where a value is stored twice, the wider copy is compared. Partial sums are not results.
      const isNarrow = name !== buffer.name && decls.has(name);
      if (isNarrow || name.endsWith('_parts') || buffer.space === 'state') return [];
      const tail = decls.has(`${name}${TAIL}`) ? `${name}${TAIL}` : undefined;
      return [{ kernel: kernel.path, name, buffer, tail }];
    });
  });
}

export type IsSame = (a: Result, b: Result) => boolean;

/** Results of a kernel that both have. */
export function comparedResults(a: KernelModule, b: KernelModule, isSame: IsSame): readonly Compared[] {
  const others = resultsOf(b);
  return resultsOf(a).flatMap((result) => {
    const isLike = ({ kernel, buffer }: Result): boolean =>
      kernel === result.kernel && buffer.columns === result.buffer.columns && buffer.rows === result.buffer.rows;
    const other = others.find((each) => isLike(each) && isSame(result, each));
    return other === undefined ? [] : [{ ...result, other, sums: new Sums() }];
  });
}

/** The values of a result after a call. */
export function valuesOf({ buffer, tail }: Result, left: ReadonlyMap<string, Float64Array>): Float64Array {
  const data = left.get(buffer.name)!;
  if (tail === undefined) return data;
  const low = left.get(tail)!;
  return data.map((upper, i) => joinF24(upper, low[i]!));
}
