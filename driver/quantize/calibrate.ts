/** GPTQ's order of work: samples go through the model group by group, and every group is quantized as they pass. */
import { UserError } from '../../errors.js';
import type { Graph, Value } from '../../ir/graph/graph.js';
import { FORMATS } from '../../ir/storage.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import type { GptqSettings } from '../../models/quantized/packed.js';
import { rowElements } from '../../runtime/call.js';
import { machineBytes } from '../../runtime/cpu/memoryUse.js';
import { type CodeSettings, hessianBytes, inOrder, LayerHessian, roundRows } from '../../runtime/hessian.js';
import type { CodedRows, NativePool } from '../../runtime/native.js';
import { at } from '../../system/at.js';
import { bytes } from '../../system/text.js';
import type { DeviceExecutor } from '../executor.js';
import type { Ui } from '../requests.js';
import { compilePieces, cutGraph, type GraphPiece } from './cutGraph.js';
import type { ChosenMatrix, InputGroup, SharedInputs } from './matrices.js';
import type { QuantizedCheckpoint } from './tensors.js';

/** Tokens of a call, where samples are shorter. */
const CALL_TOKENS = 2048;
/** Share of the memory that activations and sums of products may take; the rest is for kernels and weights. */
const MEMORY_SHARE = 0.5;
/** Share of the time of a group that its activations take, about. */
const CALLS_SHARE = 0.4;

/** Throws UserError where activations and sums of products take more memory than there is. */
function requireRoom(activations: number, groups: readonly InputGroup[]): void {
  const squares = Math.max(...groups.flatMap(({ inputs }) => inputs.map(({ k }) => hessianBytes(k))));
  const needed = activations + squares;
  const room = MEMORY_SHARE * machineBytes();
  if (needed > room)
    throw new UserError(
      `the inputs of layers take ${bytes(activations)} and their products ${bytes(squares)}; there is room for ` +
        bytes(room),
      'take fewer or shorter samples, or a machine with more memory',
    );
}

export interface CalibrationWork {
  readonly threads: number;
  readonly pool: NativePool;
  readonly signal?: AbortSignal | undefined;
}

/** Quantizes the groups of `graph`. Throws UserError where there is too little memory. */
export async function calibrate(
  work: Quantizer,
  graph: Graph,
  groups: readonly InputGroup[],
  samples: readonly Int32Array[],
  { threads, pool, signal }: CalibrationWork,
  ui: Ui,
): Promise<void> {
  const { length } = at(samples, 0);
  const perCall = Math.max(1, Math.floor(CALL_TOKENS / length)) * length;
  const pieces = cutGraph(
    graph,
    groups.map(({ value }) => value),
  );
  const activations = new Activations(samples, perCall);
  requireRoom(valueBytes(pieces, activations.tokens), groups);
  const compiled = await compilePieces(pieces, { tokens: perCall, longest: length, threads }, ui);
  const total = groups.reduce((sum, { inputs }) => sum + inputs.flatMap((each) => each.matrices).length, 0);
  ui.phase('quantize', `${activations.tokens} tokens in samples of ${length}`);
  for (const [i, { value, inputs }] of groups.entries()) {
    const show = (share: number): void =>
      ui.step((i + share) / groups.length, { done: work.reports.length, total, unit: 'matrices' });
    const executor = await compiled.open(i, work.tensors);
    let done = 0;
    try {
      await activations.run(at(pieces, i), executor, (tokens) => {
        signal?.throwIfAborted();
        done += tokens;
        show((CALLS_SHARE * done) / activations.tokens);
      });
    } finally {
      await executor.close();
    }
    for (const [at, own] of inputs.entries()) {
      const hessian = new LayerHessian(pool, own.k);
      try {
        for (const columns of activations.columns(value, own.first, own.k)) {
          await hessian.add(columns);
          signal?.throwIfAborted();
        }
        await work.calibrated(own, hessian);
      } finally {
        hessian.release();
      }
      signal?.throwIfAborted();
      show(CALLS_SHARE + ((1 - CALLS_SHARE) * (at + 1)) / inputs.length);
    }
  }
}

/** Samples that go through a piece in one call, each a path of its own, and the values that pieces left for them. */
interface SampleBatch {
  readonly tokens: Int32Array;
  readonly position: Int32Array;
  readonly subtreeEnd: Int32Array;
  readonly values: Map<Value, Float32Array>;
}

function batchOf(samples: readonly Int32Array[]): SampleBatch {
  const total = samples.reduce((sum, { length }) => sum + length, 0);
  const [tokens, position, subtreeEnd] = [0, 1, 2].map(() => new Int32Array(total)) as [
    Int32Array,
    Int32Array,
    Int32Array,
  ];
  let at = 0;
  for (const sample of samples) {
    tokens.set(sample, at);
    for (let i = 0; i < sample.length; i++) position[at + i] = i;
    subtreeEnd.fill(at + sample.length, at, at + sample.length);
    at += sample.length;
  }
  return { tokens, position, subtreeEnd, values: new Map() };
}

/** Bytes of a value for `tokens` tokens. */
const bytesOf = (value: Value, tokens: number): number => 4 * tokens * rowElements(value.type, {});

/** Most bytes that values of all samples take between two pieces. */
export function valueBytes(pieces: readonly GraphPiece[], tokens: number): number {
  const live = new Set<Value>();
  let most = 0;
  for (const { gives, drops } of pieces) {
    for (const value of gives.values()) live.add(value);
    most = Math.max(
      most,
      [...live].reduce((sum, value) => sum + bytesOf(value, tokens), 0),
    );
    for (const value of drops) live.delete(value);
  }
  return most;
}

export class Activations {
  /** Tokens of all samples. */
  readonly tokens: number;
  private readonly batches: readonly SampleBatch[];

  /** `perCall`: tokens that a call takes. */
  constructor(samples: readonly Int32Array[], perCall: number) {
    const batches: Int32Array[][] = [];
    let room = 0;
    for (const sample of samples) {
      if (room < sample.length) {
        batches.push([]);
        room = perCall;
      }
      batches.at(-1)!.push(sample);
      room -= sample.length;
    }
    this.batches = batches.map(batchOf);
    this.tokens = samples.reduce((sum, { length }) => sum + length, 0);
  }

  /** Calls the piece for every batch; `onBatch` is called after each, with its tokens. */
  async run(
    { graph, takes, gives, drops }: GraphPiece,
    executor: DeviceExecutor,
    onBatch: (tokens: number) => void,
  ): Promise<void> {
    for (const { tokens, position, subtreeEnd, values } of this.batches) {
      const own: Record<string, Int32Array> = { tokens, position, subtreeEnd };
      const inputs = graph.params.map(({ name }) => {
        const value = takes.get(name);
        const data = value === undefined ? own[name] : values.get(value);
        if (data === undefined) throw new Error(`${graph.name} takes ${name}, which nothing gives`);
        return [name, data] as const;
      });
      const { outputs } = await executor.call(graph.name, Object.fromEntries(inputs));
      for (const value of drops) values.delete(value);
      for (const [name, value] of gives) values.set(value, outputs[name] as Float32Array);
      onBatch(tokens.length);
    }
  }

  /** Columns of a value for each batch: `k` from `first` on. */
  *columns(value: Value, first: number, k: number): Generator<Float32Array> {
    const width = rowElements(value.type, {});
    for (const { values } of this.batches) {
      const data = values.get(value)!;
      if (width === k) {
        yield data;
        continue;
      }
      const rows = data.length / width;
      const part = new Float32Array(rows * k);
      for (let row = 0; row < rows; row++)
        part.set(data.subarray(row * width + first, row * width + first + k), row * k);
      yield part;
    }
  }
}

/** What quantizing cost a matrix. */
export interface MatrixReport {
  readonly tensor: string;
  readonly rows: number;
  readonly k: number;
  /**
   * Relative RMS error of the outputs on the calibration text, ‖ΔW·X‖ / ‖W·X‖: as written, and as rounding to the
   * nearest code would have given. Absent without calibration.
   */
  readonly error?: number;
  readonly roundingError?: number;
}

export class Quantizer {
  readonly reports: MatrixReport[] = [];
  /** Tensors as the model reads them now. */
  readonly tensors: Map<string, TensorLocation>;
  private readonly settings: GptqSettings;
  private readonly out: QuantizedCheckpoint;
  private readonly pool: NativePool;

  constructor(
    { tensors }: Pick<Checkpoint, 'tensors'>,
    settings: GptqSettings,
    out: QuantizedCheckpoint,
    pool: NativePool,
  ) {
    this.settings = settings;
    this.tensors = new Map(tensors);
    this.out = out;
    this.pool = pool;
  }

  private settingsFor(k: number): CodeSettings {
    const { bits, group, isSymmetric } = this.settings;
    return { bits, group: group === -1 ? k : group, isSymmetric };
  }

  private take(matrix: ChosenMatrix, coded: CodedRows, order: Int32Array, errors: Partial<MatrixReport>): void {
    for (const place of this.out.write(matrix, { ...coded, order })) this.tensors.set(place.name, place);
    const { tensor, rows, k } = matrix;
    this.reports.push({ tensor: tensor.name, rows, k, ...errors });
  }

  async round(matrix: ChosenMatrix): Promise<void> {
    const { k } = matrix;
    const coded = await roundRows(this.pool, this.valuesOf(matrix), k, this.settingsFor(k));
    this.take(matrix, coded, inOrder(k), {});
  }

  /** Quantizes matrices of the same inputs. */
  async calibrated({ k, matrices }: SharedInputs, hessian: LayerHessian): Promise<void> {
    const factored = await hessian.factor(this.settings.isOrdered);
    try {
      const settings = this.settingsFor(k);
      const measured: { readonly weights: Float32Array; readonly all: number; readonly rounding: number }[] = [];
      for (const matrix of matrices) {
        const weights = this.valuesOf(matrix);
        const rounded = errorsOf(weights, k, await roundRows(this.pool, weights, k, settings), settings);
        measured.push({ weights, all: await factored.norm(weights), rounding: await factored.norm(rounded) });
      }
      await factored.invert();
      for (const [i, matrix] of matrices.entries()) {
        const { weights, all, rounding } = at(measured, i);
        const coded = await factored.code(weights, settings);
        const share = (norm: number): number => (all === 0 ? 0 : Math.sqrt(norm / all));
        this.take(matrix, coded, factored.order, { error: share(coded.loss), roundingError: share(rounding) });
      }
    } finally {
      factored.release();
    }
  }

  private valuesOf(matrix: ChosenMatrix): Float32Array {
    const values = this.out.values(matrix);
    if (values.every(Number.isFinite)) return values;
    throw new UserError(
      `${matrix.tensor.name}: has a weight that is not finite`,
      'download the checkpoint again, or use another one',
    );
  }
}

/** What rounding in order of columns takes from weights [rows, k]. */
function errorsOf(
  weights: Float32Array,
  k: number,
  { codes, scales, zeros }: CodedRows,
  { group }: CodeSettings,
): Float32Array {
  const rows = weights.length / k;
  const factors = FORMATS.f16.decode(new Uint8Array(scales.buffer, scales.byteOffset, scales.byteLength));
  return weights.map((value, i) => {
    const at = Math.floor((i % k) / group) * rows + Math.floor(i / k);
    return value - (codes[i]! - zeros[at]!) * factors[at]!;
  });
}
