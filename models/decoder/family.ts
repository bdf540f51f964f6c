/** Decoders of LLaMA's kind. A family is a name, a few defaults, and the reading of its own keys in config.json. */
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { counted } from '../../system/text.js';
import type { Architecture, Json, Model, PublishedLayout, StoredWays, TiedHead } from '../model/model.js';
import { requireWholeModel } from '../model/refusals.js';
import type { ExpectedTensor, ShapeOf } from '../model/tensors.js';
import { type DecoderConfig, type Differences, type FamilyConfig, parseDecoderConfig } from './config.js';
import { buildDraft } from './draft.js';
import { buildDecoder, buildStep } from './graph.js';
import { type ExpertsConfig, hasExperts } from './experts.js';
import { buildMtp, mtpTensors } from './mtp.js';
import { ACTIVATION_NAMES } from './ops.js';
import { ConfigReader, type Projection } from './reader.js';
import type { RecurrentConfig } from './recurrentConfig.js';
import { recurrentStates } from './recurrentStates.js';
import { rotaryTables } from './rope.js';
import { decoderTensors, isIgnoredTensor, LLAMA_NAMES, type TensorNames } from './tensors.js';

const PROJECTIONS: readonly Projection[] = ['q', 'k', 'v', 'o', 'gate', 'up', 'down'];
/** More than any published model has. */
const MAX_FURTHER = 8;

export interface DecoderFamily
  extends
    Pick<Architecture, 'name' | 'otherNames' | 'modelType' | 'otherModelTypes' | 'covers' | 'textDefaults'>,
    Omit<FamilyConfig, 'architecture' | 'differences'> {
  /** Default: those of LLaMA. */
  readonly names?: TensorNames | ((read: ConfigReader) => TensorNames);
  /** Names in checkpoints on the hub, where those of this family are of other files. */
  readonly publishedNames?: TensorNames;
  /** What a file says, in the words that are common to decoders. Default: the file itself. */
  readonly prepare?: (read: ConfigReader) => Json;
  /** Reads the family's own keys. Throws UserError for what is not supported. */
  readonly differences: (read: ConfigReader) => Differences;
}

export function decoderFamily(family: DecoderFamily): Architecture<DecoderConfig> {
  const { name, otherNames, modelType, otherModelTypes, covers, textDefaults, ...others } = family;
  const { differences, prepare, names: given = LLAMA_NAMES, publishedNames, ...defaults } = others;
  return {
    name,
    modelType,
    covers,
    ...defined({ textDefaults, otherModelTypes, otherNames }),
    describe: (file, where, fallbackDType, ways = {}, other = undefined) => {
      requireWholeModel(file, where);
      const stated = new ConfigReader(file, where);
      const read = prepare === undefined ? stated : new ConfigReader(prepare(stated), where);
      const differing = differences(read);
      const config = parseDecoderConfig(read, fallbackDType, {
        ...defaults,
        ...(ways.hasInterleavedPairs === true ? { hasInterleavedPairs: true } : {}),
        architecture: other?.architecture ?? name,
        differences: withStoredStates(withWholeNorms(differing, ways), ways),
        ...defined({ head: other?.head }),
      });
      const own = typeof given === 'function' ? given(read) : given;
      const names = storedNames(own, ways);
      const hub = publishedNames ?? own;
      const isMoved = ways.hasInterleavedPairs === true || publishedNames !== undefined;
      const added = ways.hasWholeNormWeights === true ? (differing.norm?.offset ?? 0) : 0;
      const further = furtherLayers(file);
      if (!isMoved && names === hub && added === 0) return decoderModel(config, { names, further });
      return decoderModel(config, { names, further, hub: { names: hub, isMoved, added } });
    },
  };
}

/** Layers behind the model's own that predict further tokens, as a file says. */
const furtherLayers = ({ num_nextn_predict_layers: count }: Json): number =>
  typeof count === 'number' && count > 0 && count <= MAX_FURTHER ? count : 0;

/** How the files of a model hold it. */
interface HeldNames {
  readonly names: TensorNames;
  /** Layers behind the model's own. */
  readonly further: number;
  /** How checkpoints on the hub do, where that differs: rows of q and k are in another order, or norms lack a 1. */
  readonly hub?: { readonly names: TensorNames; readonly isMoved: boolean; readonly added: number };
}

function decoderModel(config: DecoderConfig, held: HeldNames): Model<DecoderConfig> {
  const { names, further, hub } = held;
  const behind = Array.from({ length: further }, (_, i) => `${names.layers}.${config.layers + i}.`);
  return {
    config,
    summary: summarize(config),
    tensors: decoderTensors(config, names),
    ...defined({ stored: config.experts && ((shapeOf: ShapeOf) => decoderTensors(config, names, shapeOf)) }),
    ...(config.tieWordEmbeddings && config.head === undefined ? { tied: tiedHead(config, held) } : {}),
    isIgnored: (tensor) => isIgnoredTensor(tensor, config, names) || behind.some((layer) => tensor.startsWith(layer)),
    graph: (options) => buildDecoder(config, { ...options, names, ...rotaryTables(config) }),
    step: (options) => buildStep(config, { ...options, names, ...rotaryTables(config) }),
    ...(config.recurrent === undefined ? {} : { states: recurrentStates(config.recurrent, config.hiddenSize) }),
    ...(config.head === undefined ? drafting(config, names) : {}),
    ...(hub === undefined ? {} : { published: publishedLayout(config, names, hub) }),
    withBiases: (modules) => {
      const biased = biasedProjections(config, hub?.names ?? names, modules);
      return biased && decoderModel(Object.freeze({ ...config, biased }), held);
    },
  };
}

/** In the names of what a layer of gated DeltaNet has. */
const RECURRENT_MODULE = '.linear_attn.';

/** The tensors on the hub, whose parts have the names of the model's own. */
function publishedLayout(
  config: DecoderConfig,
  names: TensorNames,
  { names: hub, isMoved, added }: NonNullable<HeldNames['hub']>,
): PublishedLayout {
  const own = decoderTensors(config, names);
  const tensors = decoderTensors(config, hub).map((tensor, i): ExpectedTensor => {
    const { name, parts = [{ name, first: 0, rows: at(tensor.shape, 0), stride: at(tensor.shape, 0), count: 1 }] } =
      tensor;
    const { name: whole, parts: ownParts } = at(own, i);
    return { ...tensor, parts: parts.map((part, j) => ({ ...part, name: ownParts?.[j]?.name ?? whole })) };
  });
  const { q, k } = names.projections;
  const { headDim } = config;
  const turned = (tensor: string): boolean => [q, k].some((module) => tensor.includes(`.${module}.`));
  // Adapters of layers whose heads lie in another order are refused: columns would have to be moved, too.
  const { recurrent } = config;
  const takesTurns = recurrent?.kind === 'delta' && recurrent.takesTurns === true;
  return {
    tensors: takesTurns ? tensors.filter(({ name }) => !name.includes(RECURRENT_MODULE)) : tensors,
    addedToNorms: added,
    // Pairs of neighbours there are columns i and i + headDim / 2 here.
    rowOf: (tensor, row) => {
      if (!isMoved || !turned(tensor)) return row;
      const within = row % headDim;
      return row - within + (within % 2) * (headDim / 2) + Math.floor(within / 2);
    },
  };
}

/** The projections with biases, those of `modules` among them; undefined where one of them is no projection. */
function biasedProjections(
  { biased, layers, experts, isGated }: DecoderConfig,
  { projections, fused = [], layers: list }: TensorNames,
  modules: readonly string[],
): DecoderConfig['biased'] | undefined {
  const all = new Set(biased);
  const own = new Map<string, readonly Projection[]>([
    ...PROJECTIONS.filter((each) => each !== 'gate' || isGated !== false).map(
      (each) => [projections[each], [each]] as const,
    ),
    ...fused.map(({ module, of }) => [module, of] as const),
  ]);
  for (const module of modules) {
    const [, layer = '', name = ''] = /^(\d+)\.(.+)$/.exec(module.slice(list.length + 1)) ?? [];
    const found = module.startsWith(`${list}.`) && Number(layer) < layers ? own.get(name) : undefined;
    const isOfExperts =
      hasExperts(experts, Number(layer)) && found?.some((each) => ['gate', 'up', 'down'].includes(each));
    if (found === undefined || isOfExperts === true) return undefined;
    for (const each of found) all.add(each);
  }
  return PROJECTIONS.filter((each) => all.has(each));
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

const tiedHead = (config: DecoderConfig, held: HeldNames): TiedHead<DecoderConfig> => ({
  embedding: `${held.names.embedding}.weight`,
  head: `${held.names.head}.weight`,
  untied: () => decoderModel(Object.freeze({ ...config, tieWordEmbeddings: false }), held),
});

/** Norms whose weights are whole: nothing is added to them. */
function withWholeNorms(own: Differences, { hasWholeNormWeights = false }: StoredWays): Differences {
  return hasWholeNormWeights && own.norm !== undefined ? { ...own, norm: { ...own.norm, offset: 0 } } : own;
}

/** Names of modules that hold the rows of one projection after those of another, or matrices the other way. */
function storedNames(own: TensorNames, { hasProjectionsInTurn = false, hasRowsOfOutputs = false }: StoredWays) {
  const { fused } = own;
  const inTurn =
    fused === undefined || !hasProjectionsInTurn
      ? own
      : { ...own, fused: fused.map((each) => ({ ...each, isByHead: false })) };
  return hasRowsOfOutputs ? { ...inTurn, isTurned: false } : inTurn;
}

/** Recurrent layers as files hold them. */
function withStoredStates(
  own: Differences,
  { hasDecays, hasProjectionsInTurn, hasHeadsInTurn }: StoredWays,
): Differences {
  const { recurrent } = own;
  if (recurrent === undefined || recurrent.kind === 'conv' || hasDecays !== true) return own;
  const isParted = recurrent.kind === 'delta' && recurrent.isByHead === true && hasProjectionsInTurn === true;
  return {
    ...own,
    recurrent: {
      ...recurrent,
      hasDecays: true,
      ...(isParted ? { isByHead: false, hasPairs: true } : {}),
      ...(recurrent.kind === 'delta' && hasHeadsInTurn === true && recurrent.keyHeads !== recurrent.valueHeads
        ? { takesTurns: true }
        : {}),
    },
  };
}

function summarize({ hiddenSize, intermediateSize, layers, heads, headDim, kvHeads, ...rest }: DecoderConfig): string {
  return [
    `hidden ${hiddenSize}, feed-forward ${intermediateSize}, ${layers} layers`,
    rest.latent === undefined
      ? `${heads} heads of ${headDim}, ${kvHeads} key/value heads`
      : `${heads} heads of ${rest.latent.plain} + ${rest.latent.turned}, latent attention of ${rest.latent.rank}`,
    ...(rest.biased.length === 0 ? [] : [`biases on ${rest.biased.join(', ')}`]),
    ...(rest.norm?.kind === 'layer' ? ['LayerNorm'] : []),
    ...(rest.norm?.offset === 1 ? ['norm weights around 1'] : []),
    ...(rest.activation === undefined ? [] : [ACTIVATION_NAMES[rest.activation]]),
    ...(rest.experts === undefined ? [] : [printExperts(rest.experts)]),
    ...(rest.isGated === false ? ['feed-forward without a gate'] : []),
    ...(rest.parallel === undefined ? [] : ['attention and feed-forward side by side']),
    ...(rest.positionRows === undefined ? [] : ['vectors of positions']),
    ...(rest.rotary === undefined ? [] : [printRotary(rest.rotary)]),
    ...(rest.qkNorm === undefined ? [] : [`norms of each ${rest.qkNorm} of q and k`]),
    ...(rest.slopes === undefined ? [] : ['ALiBi']),
    ...(rest.clip === undefined ? [] : [`q, k and v within ±${rest.clip}`]),
    ...(rest.unrotated === undefined ? [] : [`layers without rotary embedding: ${rest.unrotated.length}`]),
    ...(rest.windows === undefined ? [] : [printWindows(rest.windows)]),
    ...(rest.sinks === true ? ['sinks'] : []),
    ...(rest.caps === undefined || Object.keys(rest.caps).length === 0
      ? []
      : [`soft caps on ${Object.keys(rest.caps).join(', ')}`]),
    ...(rest.recurrent === undefined ? [] : [printRecurrent(rest.recurrent)]),
    ...(rest.hasFinalNorm === false ? ['no norm before the head'] : []),
    ...(rest.isOutputGated === true ? ['a gate behind attention'] : []),
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
function printRecurrent(recurrent: RecurrentConfig): string {
  const layers = counted(recurrent.layers.length, 'layer');
  switch (recurrent.kind) {
    case 'delta': {
      const { valueHeads, keyHeads, keyDim, valueDim } = recurrent;
      return `${layers} of gated DeltaNet: ${valueHeads} heads of ${keyDim}×${valueDim}, ${keyHeads} key heads`;
    }
    case 'conv':
      return `${layers} of gated convolutions of ${recurrent.taps} tokens`;
    case 'mamba': {
      const { heads, stateSize, headDim, groups } = recurrent;
      return `${layers} of Mamba 2: ${heads} heads of ${stateSize}×${headDim}, ${counted(groups, 'group')}`;
    }
    default:
      return recurrent satisfies never;
  }
}

const printExperts = ({ count, chosen, width, sharedWidth, routing, dense = [] }: ExpertsConfig): string =>
  [
    `${chosen} of ${count} experts of ${width} for each token${routing?.inTurn === undefined ? '' : ', in turn'}`,
    ...(sharedWidth === undefined ? [] : [`a shared expert of ${sharedWidth}`]),
    ...(dense.length === 0 ? [] : [`layers without experts: ${dense.length}`]),
  ].join(', ');

const printRotary = ({ rotated, interleaved }: NonNullable<DecoderConfig['rotary']>): string =>
  `rotary embedding of ${rotated} elements of a head${interleaved ? ', pairs of neighbours' : ''}`;
