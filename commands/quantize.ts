/**
 * Checkpoint → checkpoint with matrices of 4 or 8 bits, by GPTQ (arXiv:2210.17323) or to the nearest. Matrices are
 * quantized in order of the computation, each by inputs that the model computes with those before as they were
 * quantized. The files are in the format of AutoGPTQ and GPTQModel.
 */
import { availableParallelism } from 'node:os';
import { VERSION } from '../driver/program.js';
import { calibrate, type MatrixReport, Quantizer } from '../driver/quantize/calibrate.js';
import { chooseMatrices, type ChosenMatrix, HEAD, type InputGroup } from '../driver/quantize/matrices.js';
import { type CalibrationOptions, readSamples } from '../driver/quantize/samples.js';
import { prepareFolder, QuantizedCheckpoint, storedTensors } from '../driver/quantize/tensors.js';
import type { Ui } from '../driver/requests.js';
import { UsageError, UserError } from '../errors.js';
import type { Graph } from '../ir/graph/graph.js';
import { type Checkpoint, openCheckpoint } from '../models/checkpoint.js';
import { readConfig } from '../models/config.js';
import type { Json } from '../models/model/model.js';
import { gptqConfig, type GptqSettings } from '../models/quantized/packed.js';
import { findGgufModel } from '../models/weights/weightFiles.js';
import { expandExperts } from '../passes/expandExperts.js';
import { isRecord } from '../system/json.js';
import { loadAddon } from '../runtime/addon.js';
import { counted } from '../system/text.js';

export type { CalibrationOptions } from '../driver/quantize/samples.js';
export type { MatrixReport } from '../driver/quantize/calibrate.js';

export interface QuantizeRequest {
  /** Folder of a Hugging Face checkpoint. */
  readonly model: string;
  /** Folder to write; nothing may be there. */
  readonly output: string;
  readonly bits: 4 | 8;
  readonly group: 128 | 64 | 32 | -1;
  readonly method: 'gptq' | 'round';
  readonly isSymmetric: boolean;
  /** Columns with the largest inputs are quantized first. Only for `gptq`. */
  readonly byActivation?: boolean;
  /** Needed for `gptq`. */
  readonly calibration?: CalibrationOptions;
  readonly threads?: number;
  readonly signal?: AbortSignal;
}

export interface QuantizeResult {
  readonly output: string;
  readonly method: QuantizeRequest['method'];
  readonly settings: GptqSettings;
  readonly matrices: readonly MatrixReport[];
  /** Names of matrices that stay as they are, by the reason. */
  readonly kept: Readonly<Record<string, readonly string[]>>;
  readonly samples: number;
  /** Of all samples. */
  readonly tokens: number;
  readonly seconds: number;
}

/** How many names a note lists of matrices that stay as they are. */
const SHOWN = 3;

/** The checkpoint, if it can be quantized. Throws UserError, one line. */
function openPlain(path: string): Checkpoint {
  const others = 'name the folder of a 16-bit Hugging Face checkpoint: config.json and *.safetensors';
  if (findGgufModel(path) !== undefined) throw new UserError(`${path}: GGUF files are not quantized here`, others);
  const checkpoint = openCheckpoint(path);
  if (checkpoint.quantized !== undefined) {
    const [scheme] = checkpoint.quantized.schemes.keys();
    throw new UserError(`${path}: is quantized already (${scheme ?? 'by its configuration'})`, others);
  }
  if (!checkpoint.configPath.endsWith('config.json'))
    throw new UserError(`${path}: has no config.json, which other tools need to read the result`, others);
  return checkpoint;
}

/** Throws UserError where groups do not divide the columns of all matrices. */
function requireGroups(matrices: readonly ChosenMatrix[], group: QuantizeRequest['group']): void {
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

/** Says what stays as it is, in one line each. */
function tellKept(kept: ReadonlyMap<string, readonly string[]>, ui: Pick<Ui, 'note'>): void {
  for (const [reason, names] of kept) {
    const more = names.length - SHOWN;
    ui.note(`stays as stored (${reason}): ${names.slice(0, SHOWN).join(', ')}${more > 0 ? `, … ${more} more` : ''}`);
  }
}

/** Names of quantized modules within a layer, as other tools want to be told where a layer has others as well. */
const modulesOf = (matrices: readonly ChosenMatrix[]): readonly (readonly string[])[] => [
  [...new Set(matrices.map(({ tensor: { name } }) => name.replace(/\.weight$/, '').replace(/^.*?\.\d+\./, '')))],
];

/**
 * The model's function `score`; matrices that are quantized are read as f32. Experts are computed one by one, for all
 * tokens: what the matrix behind an expert's activation multiplies is 0 where a token has chosen others.
 */
function graphOf({ model, tensors, config }: Checkpoint, quantized: ReadonlySet<string>): Graph {
  const graph = model.graph({
    mask: 'tree',
    dtypeOf: (name) => (quantized.has(name) ? 'f32' : (tensors.get(name)?.format ?? config.dtype)),
  });
  // Experts with biases lie in one tensor, and stay as they are.
  const isBiased = 'experts' in config && isRecord(config.experts) && config.experts['isBiased'] === true;
  return isBiased ? graph : expandExperts(graph);
}

/**
 * Writes a quantized copy of a checkpoint. Throws UserError, one line, for what cannot be quantized or written; rejects
 * with the signal's reason. Nothing is left behind then.
 */
export async function quantize(request: QuantizeRequest, ui: Ui): Promise<QuantizeResult> {
  const begin = performance.now();
  const { model: path, output, bits, group, method, isSymmetric, byActivation = false, signal } = request;
  const { calibration, threads = availableParallelism() } = request;
  if (method === 'gptq' && calibration === undefined)
    throw new UsageError('GPTQ needs a calibration text', 'name one, or round to the nearest');
  if (method === 'round' && byActivation)
    throw new UsageError('rounding to the nearest has no order of columns', 'use GPTQ for one');
  ui.phase('open model', path);
  prepareFolder(output);
  const checkpoint = openPlain(path);
  for (const line of checkpoint.warnings) ui.warn(line);
  const settings: GptqSettings = { bits, group, isSymmetric, isOrdered: byActivation };
  const stored = storedTensors(checkpoint);
  const { groups: plain, kept } = chooseMatrices(graphOf(checkpoint, new Set()), stored, settings);
  const matricesIn = (all: readonly InputGroup[]): readonly ChosenMatrix[] =>
    all.flatMap(({ inputs }) => inputs.flatMap(({ matrices }) => matrices));
  const matrices = matricesIn(plain);
  if (matrices.length === 0)
    throw new UserError(
      `${path}: none of its matrices can be quantized so`,
      'round them while the model is loaded: tilewright run with --quantize int8 (CPUs) or fp8 (Hopper)',
    );
  requireGroups(matrices, group);
  tellKept(kept, ui);
  const samples = method === 'gptq' ? await readSamples(checkpoint, calibration!) : [];
  if (calibration !== undefined && samples.length < calibration.samples && method === 'gptq')
    ui.note(`the calibration text has ${counted(samples.length, 'sample')}, not ${calibration.samples}`);
  const isPartial = [...kept.keys()].some((reason) => reason !== HEAD);
  const facts: Json = {
    ...(method === 'gptq' ? { damp_percent: 0.01 } : {}),
    meta: { quantizer: [`tilewright:${VERSION}`], method },
  };
  const config = gptqConfig(settings, {
    ...facts,
    ...(isPartial ? { modules_in_block_to_quantize: modulesOf(matrices) } : {}),
  });
  const pool = new (loadAddon().Pool)(threads);
  const out = new QuantizedCheckpoint(output, checkpoint, matrices, settings, config);
  try {
    const work = new Quantizer(checkpoint, settings, out, pool);
    if (method === 'gptq') {
      const names = matrices.flatMap(({ tensor: { name, parts } }) => parts?.map((part) => part.name) ?? [name]);
      const graph = graphOf(checkpoint, new Set(names));
      const { groups } = chooseMatrices(graph, stored, settings);
      await calibrate(work, graph, groups, samples, { threads, pool, signal }, ui);
    } else {
      ui.phase('quantize', 'to the nearest');
      for (const [i, matrix] of matrices.entries()) {
        await work.round(matrix);
        signal?.throwIfAborted();
        ui.step((i + 1) / matrices.length, { done: i + 1, total: matrices.length, unit: 'matrices' });
      }
    }
    ui.phase('write', output);
    out.finish({ ...readConfig(checkpoint.configPath), quantization_config: config });
    return {
      output,
      method,
      settings,
      matrices: work.reports,
      kept: Object.fromEntries(kept),
      samples: samples.length,
      tokens: samples.reduce((sum, { length }) => sum + length, 0),
      seconds: (performance.now() - begin) / 1000,
    };
  } finally {
    out.abandon();
    pool.release();
  }
}
