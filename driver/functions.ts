/** A checkpoint as graphs: its functions, their digests, and the matrices that can be multiplied as they are stored. */
import { createHash } from 'node:crypto';
import { UsageError } from '../errors.js';
import type { CodesEncoding } from '../ir/encoding.js';
import { DRAFT, type FunctionInterface, SCORE, STEP } from '../ir/function.js';
import type { Graph, GraphModule } from '../ir/graph/graph.js';
import { printGraph, printModule } from '../ir/graph/printer.js';
import { type BlockName, type CodeFormat, isBlockFormat, isCodeFormat } from '../ir/storage.js';
import type { DType } from '../ir/types.js';
import { type Checkpoint, openCheckpoint } from '../models/checkpoint.js';
import { withDraft } from '../models/draft/open.js';
import type { DraftOptions, MaskKind, StepOptions } from '../models/model/model.js';
import { keptGroups } from '../models/quantized/compressedTensors.js';
import { microscaledIn } from '../models/quantized/mxfp4.js';
import { describeRandomCheckpoint } from '../models/randomCheckpoint.js';
import { copyRows } from '../passes/copyRows.js';
import type { StoredFormats } from '../passes/keepBlockWeights.js';
import type { GroupsOf } from '../passes/keepGroupedWeights.js';
import type { Numerics } from '../passes/numerics.js';
import { type Observer, optimize } from '../passes/runPasses.js';
import { at } from '../system/at.js';
import type { WeightInit } from './names.js';
import type { Precision } from './precision.js';

/** A checkpoint, or made-up weights, as `adapt` changes it; with what drafts for it, where that is given. */
export function openModel(
  path: string,
  init: WeightInit,
  draftModel?: string,
  adapt: (base: Checkpoint) => Checkpoint = (base) => base,
): Checkpoint {
  const open = (from: string): Checkpoint =>
    init.kind === 'random' ? describeRandomCheckpoint(from, init.seed) : openCheckpoint(from);
  const own = adapt(open(path));
  return draftModel === undefined
    ? own
    : withDraft(own, draftModel, open, init.kind === 'random' ? init.seed : undefined);
}

/** Stored element type of a tensor. */
const dtypeIn =
  ({ tensors, config }: Checkpoint) =>
  (name: string): DType =>
    tensors.get(name)?.format ?? config.dtype;

/** The model's function `score` in primitive ops. */
export const buildGraph = (checkpoint: Checkpoint, mask: MaskKind = 'tree'): Graph =>
  checkpoint.model.graph({ mask, dtypeOf: dtypeIn(checkpoint) });

/** The model's function `step` in primitive ops, over a cache of this shape. */
export const buildStepGraph = (checkpoint: Checkpoint, options: Omit<StepOptions, 'dtypeOf'>): Graph =>
  checkpoint.model.step({
    context: checkpoint.config.maxPositions,
    ...options,
    features: checkpoint.model.draft?.features,
    dtypeOf: dtypeIn(checkpoint),
  });

/** The function `draft` of a model that has one, in primitive ops. */
const buildDraftGraph = (checkpoint: Checkpoint, options: Pick<DraftOptions, 'cache'>): Graph | undefined =>
  checkpoint.model.draft?.graph({
    context: checkpoint.model.draft.maxPositions,
    ...options,
    dtypeOf: dtypeIn(checkpoint),
  });

export interface FunctionOptions {
  readonly mask?: MaskKind;
  /** Rows of the states of keys and values; absent: there are none. */
  readonly cacheRows?: number | undefined;
  readonly logits?: boolean;
  readonly feeds?: boolean;
  readonly hidden?: boolean;
  readonly observe?: Observer;
}

/** The functions of a model after all passes: `score`, and where there is a cache `step`, `draft` and `copy`. */
export function modelFunctions(
  checkpoint: Checkpoint,
  numerics: Numerics,
  { mask, cacheRows, logits = false, feeds = false, hidden = false, observe }: FunctionOptions,
): GraphModule {
  const own = ownNumerics(checkpoint, numerics);
  const score = optimize(buildGraph(checkpoint, mask), own, observe);
  if (cacheRows === undefined) return { name: 'model', functions: [score] };
  const cache = { rows: cacheRows, dtype: numerics.attention ?? 'f32' };
  const rounded = numerics.activations;
  const step = optimize(buildStepGraph(checkpoint, { cache, rounded, filters: logits, feeds, hidden }), own, observe);
  const drafting = buildDraftGraph(checkpoint, { cache });
  const keeping = [step, ...(drafting === undefined ? [] : [optimize(drafting, own, observe)])];
  return { name: 'model', functions: [score, ...keeping, copyOf(keeping, own, observe)] };
}

/** What the functions keep is narrow already, where it is to be. */
function copyOf(keeping: readonly Graph[], { cache: _, ...kept }: Numerics, observe?: Observer): Graph {
  return optimize(copyRows(keeping), kept, observe);
}

/**
 * What answers depend on: the functions as they are without a draft. `module`: those of this checkpoint with the same
 * numerics and options.
 */
export function answeringFunctions(
  module: GraphModule,
  checkpoint: Checkpoint,
  numerics: Numerics,
  { observe: _, ...options }: FunctionOptions,
): GraphModule {
  const { draft, ...model } = checkpoint.model;
  if (draft === undefined || !module.functions.some(({ name }) => name === DRAFT)) return module;
  // Steps compute features for a draft that goes on from them.
  if (draft.ahead > 0) return modelFunctions({ ...checkpoint, model }, numerics, options);
  const kept = module.functions.filter(({ name }) => name === SCORE || name === STEP);
  const steps = kept.filter(({ name }) => name === STEP);
  return { ...module, functions: [...kept, copyOf(steps, ownNumerics(checkpoint, numerics))] };
}

const ownNumerics = (checkpoint: Checkpoint, numerics: Numerics): Numerics => ({
  ...numerics,
  ...(numerics.groups === 'kept' ? { groupsOf: groupsIn(checkpoint) } : {}),
  ...(numerics.micro === 'kept' ? { microscaled: microscaledIn(checkpoint.tensors) } : {}),
});

/** The groups of a checkpoint's matrices of 4 bits. Throws UsageError where it has none that kernels read so. */
function groupsIn({ tensors }: Checkpoint): GroupsOf {
  const { groups } = keptGroups(tensors);
  if (groups.size === 0)
    throw new UsageError(
      '--quantize int4 keeps matrices that are stored in 4 bits, and this checkpoint has none that kernels read so',
      'tilewright quantize makes such a checkpoint; without --quantize this one is computed as it is',
    );
  return (tensor) => groups.get(tensor);
}

/** The text of an artifact's graph.tw. */
export function printFunctions(module: GraphModule): string {
  const [only, ...others] = module.functions;
  return only !== undefined && others.length === 0 ? printGraph(only) : printModule(module);
}

/** SHA-256, hexadecimal, of texts of a model's optimized graph. */
export interface GraphDigests {
  /** All of it that answers depend on: a draft's functions are no part of it. */
  readonly all: string;
  /** The function `score` alone. */
  readonly score: string;
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The digests of a module without a draft, and of its function `score`. `text`: that of the module. */
export function graphDigests({ functions }: GraphModule, text: string): GraphDigests {
  const score = functions.find(({ name }) => name === SCORE);
  const all = sha256(text);
  return { all, score: score === undefined || functions.length === 1 ? all : sha256(printGraph(score)) };
}

/** Whether steps of a plan choose tokens from whole rows of logits. */
export const choosesFromLogits = ({
  plan: { functions },
}: {
  readonly plan: { readonly functions: readonly { readonly interface: Pick<FunctionInterface, 'outputs'> }[] };
}): boolean => functions.some(({ interface: { outputs } }) => outputs.some(({ name }) => name === 'filteredToken'));

/** Whether steps of a plan return rows of the residual stream. */
export const returnsHidden = ({
  plan: { functions },
}: {
  readonly plan: { readonly functions: readonly { readonly interface: Pick<FunctionInterface, 'outputs'> }[] };
}): boolean => functions.some(({ interface: { outputs } }) => outputs.some(({ name }) => name === 'hidden'));

/** Matrices of layers: their names have a number. The head and embeddings are read in other ways. */
const OF_LAYER = /\.\d+\./;

/** The `--quantize` value that means these codes. */
const PRECISIONS: Readonly<Record<CodeFormat, 'int8' | 'fp8'>> = { i8: 'int8', e4m3: 'fp8' };

/** The format of codes of a byte that have one scale for each row, or for several rows; undefined for others. */
function scaledByRows({ codes, scales, zero, hasGroups }: CodesEncoding, k: number): CodeFormat | undefined {
  const isByRows =
    !codes.isTransposed && scales.blockColumns >= k && zero.kind === 'constant' && zero.value === 0 && !hasGroups;
  return isByRows && isCodeFormat(codes.type) ? codes.type : undefined;
}

/**
 * Blocks of GGUF files, and codes of int8 or E4M3: where the checkpoint says that rows of activations become such codes
 * too, or `precision` does.
 */
export const storedFormats = (
  { tensors, quantized }: Pick<Checkpoint, 'tensors' | 'quantized'>,
  precision: Precision,
): StoredFormats =>
  new Map(
    [...tensors.values()].flatMap((tensor): [string, BlockName | CodeFormat][] => {
      if (tensor.kind !== 'encoded') return [];
      const { name, encoding, shape } = tensor;
      if (encoding.kind === 'blocks') return isBlockFormat(encoding.block) ? [[name, encoding.block]] : [];
      const format = OF_LAYER.test(name) ? scaledByRows(encoding, at(shape, 1)) : undefined;
      if (format === undefined) return [];
      const own = PRECISIONS[format];
      return precision === own || quantized?.activations === own ? [[name, format]] : [];
    }),
  );
