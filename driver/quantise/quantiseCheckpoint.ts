/**
 * Checkpoint → checkpoint with matrices of 4 or 8 bits, by GPTQ (arXiv:2210.17323) or to the nearest. Matrices are
 * quantised in order of the computation, each by inputs that the model computes with those before as they were
 * quantised. The files are in the format of AutoGPTQ and GPTQModel.
 */
import { availableParallelism } from 'node:os';
import { UserError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import { openCheckpoint, type Checkpoint } from '../../models/checkpoint.js';
import { readConfig } from '../../models/config.js';
import type { Json } from '../../models/family/model.js';
import type { TensorLocation } from '../../models/family/tensors.js';
import { gptqConfig, type GptqSettings } from '../../models/quantised/gptqTensors.js';
import { findGgufModel } from '../../models/weightFiles.js';
import { loadAddon, type CodedRows, type NativePool } from '../../runtime/addon.js';
import { machineBytes } from '../../runtime/cpu/memoryUse.js';
import { hessianBytes, inOrder, LayerHessian, roundRows, type CodeSettings } from '../../runtime/hessian.js';
import { bytes } from '../../system/format.js';
import type { Ui } from '../requests.js';
import { VERSION } from '../version.js';
import { Activations, valueBytes } from './activations.js';
import { readSamples, type CalibrationOptions } from './calibration.js';
import { cutGraph } from './cutGraph.js';
import { prepareFolder } from './folder.js';
import { chooseMatrices, type ChosenMatrix, type InputGroup, type SharedInputs } from './matrices.js';
import { compilePieces } from './pieces.js';
import { QuantisedTensors, storedTensors } from './tensors.js';

export interface QuantiseRequest {
  /** Folder of a Hugging Face checkpoint. */
  readonly model: string;
  /** Folder to write; nothing may be there. */
  readonly output: string;
  readonly bits: 4 | 8;
  readonly group: 128 | 64 | 32 | -1;
  readonly method: 'gptq' | 'round';
  readonly isSymmetric: boolean;
  /** Columns with the largest inputs are quantised first. Only for `gptq`. */
  readonly byActivation?: boolean;
  /** Needed for `gptq`. */
  readonly calibration?: CalibrationOptions;
  readonly threads?: number;
  readonly signal?: AbortSignal;
}

/** What quantising cost a matrix. */
export interface MatrixReport {
  readonly tensor: string;
  readonly rows: number;
  readonly k: number;
  /**
   * Root of the error of its outputs, squared, over that of the outputs, for the calibration text: as it was written,
   * and as rounding to the nearest would have made it. Absent where nothing was calibrated.
   */
  readonly error?: number;
  readonly roundingError?: number;
}

export interface QuantiseResult {
  readonly output: string;
  readonly method: QuantiseRequest['method'];
  readonly settings: GptqSettings;
  readonly matrices: readonly MatrixReport[];
  /** Names of matrices that stay as they are, by the reason. */
  readonly kept: Readonly<Record<string, readonly string[]>>;
  readonly samples: number;
  /** Of all samples. */
  readonly tokens: number;
  readonly seconds: number;
}

/** Tokens of a call, where samples are shorter. */
const CALL_TOKENS = 2048;
/** Share of the memory that activations and sums of products may take; the rest is for kernels and weights. */
const MEMORY_SHARE = 0.5;
const LAST_NAMES = 3;

/** The checkpoint, if it can be quantised. Throws UserError, one line. */
function openPlain(path: string): Checkpoint {
  const others = 'name the folder of a 16-bit Hugging Face checkpoint: config.json and *.safetensors';
  if (findGgufModel(path) !== undefined) throw new UserError(`${path}: GGUF files are not quantised here`, others);
  const checkpoint = openCheckpoint(path);
  if (checkpoint.quantised !== undefined) {
    const [scheme] = checkpoint.quantised.schemes.keys();
    throw new UserError(`${path}: is quantised already (${scheme ?? 'by its configuration'})`, others);
  }
  if (!checkpoint.configPath.endsWith('config.json'))
    throw new UserError(`${path}: has no config.json, which other tools need to read the result`, others);
  return checkpoint;
}

/** Throws UserError where groups do not divide the columns of all matrices. */
function requireGroups(matrices: readonly ChosenMatrix[], group: QuantiseRequest['group']): void {
  if (group === -1) return;
  const odd = matrices.filter(({ k }) => k % group !== 0);
  const [first] = odd;
  if (first === undefined) return;
  const smaller = [128, 64, 32].filter((size) => matrices.every(({ k }) => k % size === 0));
  throw new UserError(
    `groups of ${group} columns do not divide the ${first.k} of ${first.tensor.name}` +
      (odd.length > 1 ? ` (and those of ${odd.length - 1} other matrices)` : ''),
    smaller.length > 0
      ? `take groups of ${smaller.join(' or ')}, or -1 for one scale in each row`
      : 'take -1: one scale in each row',
  );
}

/** Throws UserError where activations and sums of products take more memory than there is. */
function requireRoom(activations: number, inputs: readonly SharedInputs[][]): void {
  const squares = Math.max(...inputs.map((group) => group.reduce((sum, { k }) => sum + hessianBytes(k), 0)));
  const needed = activations + squares;
  const room = MEMORY_SHARE * machineBytes();
  if (needed > room)
    throw new UserError(
      `the inputs of layers take ${bytes(activations)} and their products ${bytes(squares)}; there is room for ` +
        bytes(room),
      'take fewer or shorter samples, or a machine with more memory',
    );
}

/** The work of one call of quantiseCheckpoint. */
class Quantiser {
  readonly reports: MatrixReport[] = [];
  /** Tensors as the model reads them now. */
  readonly tensors: Map<string, TensorLocation>;
  private readonly request: QuantiseRequest;
  private readonly out: QuantisedTensors;
  private readonly pool: NativePool;

  constructor(request: QuantiseRequest, checkpoint: Checkpoint, out: QuantisedTensors, pool: NativePool) {
    this.request = request;
    this.tensors = new Map(checkpoint.tensors);
    this.out = out;
    this.pool = pool;
  }

  private settingsFor(k: number): CodeSettings {
    const { bits, group, isSymmetric } = this.request;
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

  /** Quantises matrices of the same inputs. */
  async calibrated({ k, matrices }: SharedInputs, hessian: LayerHessian): Promise<void> {
    const factored = await hessian.factor(this.request.byActivation === true);
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
        const { weights, all, rounding } = measured[i]!;
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
  const factors = halves(scales);
  return weights.map((value, i) => {
    const at = Math.floor((i % k) / group) * rows + Math.floor(i / k);
    return value - (codes[i]! - zeros[at]!) * factors[at]!;
  });
}

/** Values of positive f16 numbers. */
const halves = (bits: Uint16Array): Float64Array =>
  Float64Array.from(bits, (half) =>
    half < 0x400 ? half * 2 ** -24 : (1024 + (half & 0x3ff)) * 2 ** ((half >> 10) - 25),
  );

/** Says what stays as it is, in one line each. */
function tellKept(kept: ReadonlyMap<string, readonly string[]>, ui: Pick<Ui, 'note'>): void {
  for (const [reason, names] of kept) {
    const more = names.length - LAST_NAMES;
    ui.note(`stays as stored (${reason}): ${names.slice(0, LAST_NAMES).join(', ')}${more > 0 ? `, … ${more} more` : ''}`);
  }
}

/** The model's function `score`; matrices that are quantised are read as f32. */
const graphOf = ({ model, tensors, config }: Checkpoint, quantised: ReadonlySet<string>): Graph =>
  model.graph({
    mask: 'tree',
    dtypeOf: (name) => (quantised.has(name) ? 'f32' : (tensors.get(name)?.format ?? config.dtype)),
  });

/** Samples through the model, group by group. */
async function calibrate(
  work: Quantiser,
  groups: readonly InputGroup[],
  graph: Graph,
  samples: readonly Int32Array[],
  { threads, pool, signal }: { readonly threads: number; readonly pool: NativePool; readonly signal?: AbortSignal },
  ui: Ui,
): Promise<number> {
  const length = samples[0]!.length;
  const perCall = Math.max(1, Math.floor(CALL_TOKENS / length)) * length;
  const pieces = cutGraph(graph, groups.map(({ value }) => value));
  const activations = new Activations(samples, perCall);
  requireRoom(valueBytes(pieces, activations.tokens), groups.map(({ inputs }) => [...inputs]));
  const compiled = await compilePieces(pieces, { tokens: perCall, longest: length, threads }, ui);
  const total = groups.reduce((sum, { inputs }) => sum + inputs.flatMap((each) => each.matrices).length, 0);
  ui.phase('quantise', `${activations.tokens} tokens in samples of ${length}`);
  for (const [i, { value, inputs }] of groups.entries()) {
    const show = (share: number): void =>
      ui.step((i + share) / groups.length, { done: work.reports.length, total, unit: 'matrices' });
    const executor = await compiled.open(i, work.tensors);
    let done = 0;
    try {
      await activations.run(pieces[i]!, executor, (tokens) => {
        signal?.throwIfAborted();
        done += tokens;
        show((0.4 * done) / activations.tokens);
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
      show(0.4 + (0.6 * (at + 1)) / inputs.length);
    }
  }
  return activations.tokens;
}

/**
 * Writes a quantised copy of a checkpoint. Throws UserError, one line, for what cannot be quantised or written; rejects
 * with the signal's reason. Nothing is left behind then.
 */
export async function quantiseCheckpoint(request: QuantiseRequest, ui: Ui): Promise<QuantiseResult> {
  const begin = performance.now();
  const { model: path, output, bits, group, method, isSymmetric, byActivation = false, signal } = request;
  const { calibration, threads = availableParallelism() } = request;
  ui.phase('open model', path);
  prepareFolder(output);
  const checkpoint = openPlain(path);
  const settings: GptqSettings = { bits, group, isSymmetric, isOrdered: byActivation };
  const stored = storedTensors(checkpoint);
  const { groups: plain, kept } = chooseMatrices(graphOf(checkpoint, new Set()), stored, settings);
  const matricesIn = (all: readonly InputGroup[]): readonly ChosenMatrix[] =>
    all.flatMap(({ inputs }) => inputs.flatMap(({ matrices }) => matrices));
  const matrices = matricesIn(plain);
  if (matrices.length === 0) throw new UserError(`${path}: none of its matrices can be quantised so`);
  requireGroups(matrices, group);
  tellKept(kept, ui);
  if (method === 'gptq' && calibration === undefined)
    throw new UserError('GPTQ needs a calibration text', 'name one, or round to the nearest');
  const samples = method === 'gptq' ? await readSamples(checkpoint, calibration!) : [];
  if (calibration !== undefined && samples.length < calibration.samples && method === 'gptq')
    ui.note(`the calibration text has ${samples.length} samples, not ${calibration.samples}`);
  const facts: Json = {
    ...(method === 'gptq' ? { damp_percent: 0.01 } : {}),
    meta: { quantizer: [`tilewright:${VERSION}`], method },
  };
  const config = gptqConfig(settings, facts);
  const pool = new (loadAddon().Pool)(threads);
  const out = new QuantisedTensors(output, checkpoint, matrices, settings, config);
  try {
    const work = new Quantiser(request, checkpoint, out, pool);
    let tokens = 0;
    if (method === 'gptq') {
      const quantised = new Set(matrices.flatMap(({ tensor }) => tensor.parts?.map(({ name }) => name) ?? [tensor.name]));
      const graph = graphOf(checkpoint, quantised);
      const { groups } = chooseMatrices(graph, stored, settings);
      tokens = await calibrate(
        ...([work, groups, graph, samples] as const),
        { threads, pool, ...(signal === undefined ? {} : { signal }) },
        ui,
      );
    } else {
      ui.phase('quantise', 'to the nearest');
      for (const [i, matrix] of matrices.entries()) {
        await work.round(matrix);
        signal?.throwIfAborted();
        ui.step((i + 1) / matrices.length, { done: i + 1, total: matrices.length, unit: 'matrices' });
      }
    }
    ui.phase('write', output);
    out.finish({ ...readConfig(checkpoint.configPath), quantization_config: config });
    return {
      ...{ output, method, settings, matrices: work.reports, kept: Object.fromEntries(kept) },
      ...{ samples: samples.length, tokens, seconds: (performance.now() - begin) / 1000 },
    };
  } finally {
    out.abandon();
    pool.release();
  }
}
