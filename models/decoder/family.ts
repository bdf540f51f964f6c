/** Decoders of LLaMA's kind. A family is a name, a few defaults, and the reading of its own keys in config.json. */
import { defined } from '../../system/defined.js';
import { counted } from '../../system/text.js';
import type { Architecture, Json, Model, StoredWays, TiedHead } from '../model/model.js';
import { requireWholeModel } from '../model/refusals.js';
import type { ShapeOf } from '../model/tensors.js';
import { type DecoderConfig, type Differences, type FamilyConfig, parseDecoderConfig } from './config.js';
import { buildDraft } from './draft.js';
import { buildDecoder, buildStep } from './graph.js';
import type { ExpertsConfig } from './experts.js';
import { buildMtp, mtpTensors } from './mtp.js';
import { ConfigReader } from './reader.js';
import { rotaryTables } from './rope.js';
import { decoderTensors, isIgnoredTensor, LLAMA_NAMES, type TensorNames } from './tensors.js';

/** More than any published model has. */
const MAX_FURTHER = 8;

export interface DecoderFamily
  extends
    Pick<Architecture, 'name' | 'modelType' | 'covers' | 'textDefaults'>,
    Omit<FamilyConfig, 'architecture' | 'differences'> {
  /** Default: those of LLaMA. */
  readonly names?: TensorNames;
  /** What a file says, in the words that are common to decoders. Default: the file itself. */
  readonly prepare?: (read: ConfigReader) => Json;
  /** Reads the family's own keys. Throws UserError for what is not supported. */
  readonly differences: (read: ConfigReader) => Differences;
}

export function decoderFamily(family: DecoderFamily): Architecture<DecoderConfig> {
  const { name, modelType, covers, textDefaults, ...others } = family;
  const { differences, prepare, names: published = LLAMA_NAMES, ...defaults } = others;
  return {
    name,
    modelType,
    covers,
    ...defined({ textDefaults }),
    describe: (file, where, fallbackDType, ways = {}, other = undefined) => {
      requireWholeModel(file, where);
      const given = new ConfigReader(file, where);
      const read = prepare === undefined ? given : new ConfigReader(prepare(given), where);
      const own = differences(read);
      const config = parseDecoderConfig(read, fallbackDType, {
        ...defaults,
        ...(ways.hasInterleavedPairs === true ? { hasInterleavedPairs: true } : {}),
        architecture: other?.architecture ?? name,
        differences: withWholeNorms(own, ways),
        ...defined({ head: other?.head }),
      });
      const names = ways.hasProjectionsInTurn === true ? inTurn(published) : published;
      return decoderModel(config, names, furtherLayers(file));
    },
  };
}

/** Layers behind the model's own that predict further tokens, as a file says. */
const furtherLayers = ({ num_nextn_predict_layers: count }: Json): number =>
  typeof count === 'number' && count > 0 && count <= MAX_FURTHER ? count : 0;

function decoderModel(config: DecoderConfig, names: TensorNames, further = 0): Model<DecoderConfig> {
  const behind = Array.from({ length: further }, (_, i) => `${names.layers}.${config.layers + i}.`);
  return {
    config,
    summary: summarize(config),
    tensors: decoderTensors(config, names),
    ...defined({ stored: config.experts && ((shapeOf: ShapeOf) => decoderTensors(config, names, shapeOf)) }),
    ...(config.tieWordEmbeddings && config.head === undefined ? { tied: tiedHead(config, names, further) } : {}),
    isIgnored: (tensor) => isIgnoredTensor(tensor, config, names) || behind.some((layer) => tensor.startsWith(layer)),
    graph: (options) => buildDecoder(config, { ...options, names, ...rotaryTables(config) }),
    step: (options) => buildStep(config, { ...options, names, ...rotaryTables(config) }),
    ...(config.head === undefined ? drafting(config, names) : {}),
  };
}

/** How the model drafts, and what draft heads share with it. */
function drafting(
  config: DecoderConfig,
  names: TensorNames,
): Required<Pick<Model<DecoderConfig>, 'ends' | 'mtp' | 'asDraft'>> {
  const ends = {
    embedding: `${names.embedding}.weight`,
    head: `${config.tieWordEmbeddings ? names.embedding : names.head}.weight`,
  };
  return {
    ends,
    mtp: (layout) => ({
      tensors: mtpTensors(config, names, layout),
      graph: (options) => buildMtp(config, names, layout, ends, options),
    }),
    asDraft: (options) => buildDraft(config, { ...options, names, ...rotaryTables(config) }),
  };
}

const tiedHead = (config: DecoderConfig, names: TensorNames, further: number): TiedHead<DecoderConfig> => ({
  embedding: `${names.embedding}.weight`,
  head: `${names.head}.weight`,
  untied: () => decoderModel(Object.freeze({ ...config, tieWordEmbeddings: false }), names, further),
});

/** Norms whose weights are whole: nothing is added to them. */
function withWholeNorms(own: Differences, { hasWholeNormWeights = false }: StoredWays): Differences {
  return hasWholeNormWeights && own.norm !== undefined ? { ...own, norm: { ...own.norm, offset: 0 } } : own;
}

/** Names of modules that hold the rows of one projection after those of another. */
function inTurn({ fused, ...names }: TensorNames): TensorNames {
  return fused === undefined ? names : { ...names, fused: fused.map((each) => ({ ...each, isByHead: false })) };
}

function summarize({ hiddenSize, intermediateSize, layers, heads, headDim, kvHeads, ...rest }: DecoderConfig): string {
  return [
    `hidden ${hiddenSize}, feed-forward ${intermediateSize}, ${layers} layers`,
    `${heads} heads of ${headDim}, ${kvHeads} key/value heads`,
    ...(rest.biased.length === 0 ? [] : [`biases on ${rest.biased.join(', ')}`]),
    ...(rest.norm?.kind === 'layer' ? ['LayerNorm'] : []),
    ...(rest.norm?.offset === 1 ? ['norm weights around 1'] : []),
    ...(rest.activation === undefined ? [] : [rest.activation === 'gelu' ? 'GELU' : 'GELU by tanh']),
    ...(rest.experts === undefined ? [] : [printExperts(rest.experts)]),
    ...(rest.isGated === false ? ['feed-forward without a gate'] : []),
    ...(rest.parallel === undefined ? [] : ['attention and feed-forward side by side']),
    ...(rest.rotary === undefined ? [] : [printRotary(rest.rotary)]),
    ...(rest.qkNorm === undefined ? [] : [`norms of each ${rest.qkNorm} of q and k`]),
    ...(rest.unrotated === undefined ? [] : [`layers without rotary embedding: ${rest.unrotated.length}`]),
    ...(rest.windows === undefined ? [] : [printWindows(rest.windows)]),
    ...(rest.caps === undefined || Object.keys(rest.caps).length === 0
      ? []
      : [`soft caps on ${Object.keys(rest.caps).join(', ')}`]),
    ...(rest.factors === undefined ? [] : [`factors on ${Object.keys(rest.factors).join(', ')}`]),
    ...(rest.head === undefined
      ? rest.tieWordEmbeddings
        ? ['head tied to the embedding']
        : []
      : [`${rest.head.kind} head of ${counted(rest.head.layers.at(-1)?.rows ?? 0, 'class', 'classes')}`]),
  ].join(', ');
}

function printWindows(windows: readonly (number | null)[]): string {
  const widths = windows.filter((width) => width !== null);
  return `windows of ${[...new Set(widths)].join(' and ')} tokens in ${widths.length} layers`;
}
const printExperts = ({ count, chosen, width, sharedWidth, dense = [] }: ExpertsConfig): string =>
  [
    `${chosen} of ${count} experts of ${width} for each token`,
    ...(sharedWidth === undefined ? [] : [`a shared expert of ${sharedWidth}`]),
    ...(dense.length === 0 ? [] : [`layers without experts: ${dense.length}`]),
  ].join(', ');

const printRotary = ({ rotated, interleaved }: NonNullable<DecoderConfig['rotary']>): string =>
  `rotary embedding of ${rotated} elements of a head${interleaved ? ', pairs of neighbours' : ''}`;
