/** What the rest of the compiler knows of a model: its tensors, its graph, and the few facts that every family has. */
import type { Graph, GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { FormatName } from '../../ir/storage.js';
import type { DType, ExtentName, FloatType } from '../../ir/types.js';
import type { ExpectedTensor, ShapeOf } from './tensors.js';

/** A parsed JSON object. */
export type Json = Readonly<Record<string, unknown>>;

/** The facts that every model has. A family's own configuration extends them with plain data. */
export interface ModelConfig {
  /** As `architectures` in config.json names it. */
  readonly architecture: string;
  readonly layers: number;
  /** Columns of the residual stream. */
  readonly hiddenSize: number;
  readonly vocabSize: number;
  /** Longest context the model was made for, in tokens. */
  readonly maxPositions: number;
  /** Element type that the checkpoint claims for its weights. */
  readonly dtype: FormatName;
  readonly bosTokenId?: number;
  readonly eosTokenIds: readonly number[];
  /** Default: a head of the vocabulary. */
  readonly head?: ClassHead;
}

/** A head of a few classes: linear layers, the larger of 0 and x between them, behind the last norm. */
export interface ClassHead {
  /** The record of models/heads/ that says what the classes mean. */
  readonly kind: string;
  /** In order; the last one has a row for each class. */
  readonly layers: readonly HeadLayer[];
}

export interface HeadLayer {
  /** The name of its tensors without `.weight` and `.bias`. */
  readonly module: string;
  readonly rows: number;
  readonly isBiased: boolean;
}

/** Classes of a model's head; undefined where it is that of a vocabulary. */
export const classesOf = ({ head }: Pick<ModelConfig, 'head'>): number | undefined => head?.layers.at(-1)?.rows;

export interface GraphOptions {
  readonly mask: MaskKind;
  /** Stored element type of a checkpoint tensor. */
  readonly dtypeOf: (tensor: string) => DType;
}

/** Memory for keys and values that outlives calls. */
export interface CacheShape {
  /** Tokens that there is room for. */
  readonly rows: number;
  readonly dtype: FloatType;
}

export interface StepOptions extends Pick<GraphOptions, 'dtypeOf'> {
  readonly cache: CacheShape;
  /** The type in which kernels read what layers compute, and keep it where it is read again. Default: f32. */
  readonly rounded?: FloatType;
  /** Most tokens of a path. Default: any number. */
  readonly context?: number | undefined;
  /** Chooses tokens of the first F rows from whole rows of logits. */
  readonly filters?: boolean;
  /** Takes tokens that the call before has drawn, which it keeps in a state. */
  readonly feeds?: boolean;
  /** Returns rows of the residual stream behind the last norm. */
  readonly hidden?: boolean;
  /** Keeps what a draft head reads of each token. */
  readonly features?: DraftFeatures | undefined;
}

/**
 * What a draft head reads of each token: `step` computes it, and writes it to the state draft_x at the token's slot.
 */
export interface DraftFeatures {
  /** Columns of a row. */
  readonly width: number;
  /**
   * Layers whose inputs it is made of; the number of layers: what the last one gives. Or the stream behind the norm.
   */
  readonly of: readonly number[] | 'normed';
  /** f32[T, width] of those streams, f32[T, hidden] each. */
  readonly build: (b: GraphBuilder, streams: readonly Value[], dtypeOf: GraphOptions['dtypeOf']) => Value;
}

/** What stands before the names of a draft's tensors, where it has files of its own. */
export const DRAFT_TENSORS = 'draft.';

export interface DraftOptions extends Pick<StepOptions, 'dtypeOf' | 'cache' | 'context'> {
  /** What stands before the names of its tensors: DRAFT_TENSORS. */
  readonly prefix: string;
}

/** What proposes tokens behind a model's texts on its device: the function `draft` beside `step`. */
export interface ModelDraft {
  /** For summaries and metrics: `model`, `eagle`, `mtp`. */
  readonly name: string;
  /**
   * 0: it takes token p at position p, as the model does. 1: it takes token p + 1 at position p, beside what `step`
   * computed there.
   */
  readonly ahead: 0 | 1;
  /** Longest path that it may have, tokens. */
  readonly maxPositions: number;
  /** What it reads of the model's own numbers. Default: nothing. */
  readonly features?: DraftFeatures;
  /** Its token ids are below this. */
  readonly vocabSize: number;
  /** Plain data: with its tensors it identifies the draft. */
  readonly config: Json;
  /** Its sizes in a few words, for users. */
  readonly summary: string;
  /**
   * The tensors that it reads beside the model's, in the order of the computation, by their names in the checkpoint.
   */
  readonly tensors: readonly ExpectedTensor[];
  /**
   * draft(tokens i32[T], isFed i32[T], feed i32[T], keep i32[R], position i32[T], slot i32[T], begin i32[T], key
   * i32[C], row i32[R], target i32[R], inverseTemperature f32[R], keyLow i32[R], keyHigh i32[R]; draft_k_0,
   * draft_v_0, …, draft_last_tokens) → (logProb f32[R], nextToken i32[R], nextTokenLogProb f32[R]; the states): as
   * `step`, whose slots and lists of keys it shares. Where isFed[t] is 1, token t is draft_last_tokens[feed[t]] as
   * the call finds it. With `features` it takes feature i32[T], keepFeature i32[R] and the state draft_x too: token t
   * goes on from draft_x[feature[t]] as the call finds it, and what the next token of row r's path goes on from is
   * written to draft_x[keepFeature[r]] (nowhere if it is −1). Targets of a head that has fewer tokens are its own.
   */
  readonly graph: (options: Omit<DraftOptions, 'prefix'>) => Graph;
}

/**
 * How files name a layer that predicts further tokens: modules, and tensors of its own in place of the model's. What it
 * reads is projection·(norm(embedding), norm(stream)).
 */
export interface MtpLayout {
  /** What stands before the modules of an ordinary layer. */
  readonly layer: string;
  readonly embeddingNorm: string;
  readonly streamNorm: string;
  readonly projection: string;
  readonly finalNorm: string;
  readonly embedding?: string | undefined;
  readonly head?: string | undefined;
  /** Columns of the stream come before those of the embedding. */
  readonly isStreamFirst?: boolean;
  /** The next token goes on from what the last norm gives. Default: from what it reads. */
  readonly goesOnNormed?: boolean;
  /** The embedding at position 0 is zero. */
  readonly hidesFirst?: boolean;
}

/** A head that the configuration says to be the embedding table. */
export interface TiedHead<Config extends ModelConfig = ModelConfig> {
  /** Names of the tensors; files may hold the head as well. */
  readonly embedding: string;
  readonly head: string;
  /** The same model with a head of its own. */
  readonly untied: () => Model<Config>;
}

/** States of recurrent layers: rows, each with what all layers keep behind a token. */
export interface ModelStates {
  readonly rows: number;
  /** Rows of what a convolution has seen last, behind each of them. */
  readonly tails: number;
  /** Whether layers have states beside those. */
  readonly hasScans: boolean;
  /** Bytes of a row in all layers, at most. */
  readonly bytes: number;
}

export interface Model<Config extends ModelConfig = ModelConfig> {
  /** Frozen plain data: with the weights it identifies the model. */
  readonly config: Config;
  /** The family's own sizes in a few words, for users. */
  readonly summary: string;
  /** What its configuration leaves open, and how that was decided: one line, for users. */
  readonly note?: string;
  /** The class that the file names, where it is that of a model without a head: the embeddings are its head. */
  readonly headless?: string;
  /** Every tensor that the model reads, in the order of the computation. */
  readonly tensors: readonly ExpectedTensor[];
  /** `tensors` as a checkpoint stores them whose tensors have these shapes, where it may store them in more ways. */
  readonly stored?: (shapeOf: ShapeOf) => readonly ExpectedTensor[];
  /** Present if the configuration says that the head is the embedding table. */
  readonly tied?: TiedHead<Config>;
  /** True if checkpoints hold it inside a multimodal model, with names that models/config.ts reads. */
  readonly isWrapped?: boolean;
  /** Tensors that checkpoints of the family contain but the model does not read. */
  readonly isIgnored: (tensor: string) => boolean;
  /** The same model with the head whose tensors have these shapes. Absent where its file says all of it. */
  readonly withHead?: (shapeOf: ShapeOf) => Model<Config>;
  /**
   * score(tokens i32[T], position i32[T], mask inputs, row i32[R], target i32[R]) → (f32[R] log-probability of
   * target[r] after token row[r], i32[R] 1 where the target is the most likely token), in primitive ops. The inputs of
   * mask `path` are key i32[C], which lists tokens, and begin i32[T]: token t sees the tokens key[begin[t]] …
   * key[begin[t] + position[t]], of which the last is t itself. With a head of N classes it takes no target and returns
   * classLogits f32[R, N], what the head gives after token row[r].
   */
  readonly graph: (options: GraphOptions) => Graph;
  /**
   * step(tokens i32[T], position i32[T], slot i32[T], begin i32[T], key i32[C], row i32[R], target i32[R],
   * inverseTemperature f32[R], keyLow i32[R], keyHigh i32[R]; k_0, v_0, …) → (logProb f32[R], isArgmax i32[R],
   * nextToken i32[R], nextTokenLogProb f32[R]; k_0, v_0, …): tokens that continue paths, and the next one drawn for
   * each row. The keys and values of token t go to row slot[t] of the states of their layer (nowhere if it is −1).
   * Token t sees the rows key[begin[t]] … key[begin[t] + position[t]], of which the last is its own. With `feeds` it
   * takes isFed i32[T], feed i32[T], keep i32[R] and the state last_tokens i32[N] too. Where isFed[t] is 1, token t is
   * last_tokens[feed[t]] as the call finds it, and nextToken[r] goes to last_tokens[keep[r]]. With `filters` it takes,
   * for each of the first F ≤ R rows, what ir/sampleInputs lists and topCount i32[F], with lists of E entries in all,
   * and M masks.
   * It returns filteredToken i32[F], filteredTokenLogProb f32[F], topTokens i32[F, 32] and topLogProbs f32[F, 32], of
   * which topCount[r] are set. With both, filteredToken[r] goes to last_tokens[keepFiltered[r]]. With a head of N
   * classes nothing is drawn, whatever the options ask: of what belongs to rows it takes row[r] alone, and it returns
   * classLogits f32[R, N].
   * With `hidden` it returns hidden f32[R, H] too: what the head multiplies, before any factor of logits. A model with
   * states takes what ir/stepping lists beside (STEP_STATES), and subtreeEnd i32[T].
   */
  readonly step: (options: StepOptions) => Graph;
  /** Rows of states of recurrent layers that `step` keeps beside keys and values. Default: it has no such layers. */
  readonly states?: ModelStates;
  /** Its table of embeddings, and the matrix of its head, which draft heads may share. */
  readonly ends?: { readonly embedding: string; readonly head: string };
  /** A layer of its files that predicts further tokens: its tensors, and the function `draft` of it. */
  readonly mtp?: (layout: MtpLayout) => {
    readonly tensors: readonly ExpectedTensor[];
    readonly graph: (options: DraftOptions) => Graph;
  };
  /** This model as the function `draft` of another one. Absent where its head is none of a vocabulary. */
  readonly asDraft?: (options: DraftOptions) => Graph;
  /** What proposes tokens for this one (models/draft). */
  readonly draft?: ModelDraft;
  /** How checkpoints on the hub hold it. Default: as `tensors` says. */
  readonly published?: PublishedLayout;
  /** The same model with biases behind these modules of layers as well; undefined where it can have none there. */
  readonly withBiases?: (modules: readonly string[]) => Model<Config> | undefined;
}

/** How checkpoints on the hub hold a model whose own files do so in another way. Adapters are made for those. */
export interface PublishedLayout {
  /** `Model.tensors` there. The names of their parts are those of the model's own tensors. */
  readonly tensors: readonly ExpectedTensor[];
  /** The row there of row `row` of one of the model's own tensors, or of the part that it is of a tensor there. */
  readonly rowOf: (tensor: string, row: number) => number;
  /** What the model's own norm weights have more than those there. */
  readonly addedToNorms: number;
}

/** How files hold the weights of a family in another way than Hugging Face checkpoints do. Default of each: false. */
export interface StoredWays {
  /** Rows of q and k lie so that rotary embedding turns pairs of neighbours. */
  readonly hasInterleavedPairs?: boolean;
  /** Norm weights are whole where the family keeps differences from 1. */
  readonly hasWholeNormWeights?: boolean;
  /** A tensor with q, k and v has all of q first, where the family has those of each head together. */
  readonly hasProjectionsInTurn?: boolean;
  /** Matrices are stored as [out, in] where the family has [in, out]. */
  readonly hasRowsOfOutputs?: boolean;
  /** Recurrent layers keep A = −e^A_log under the name of A_log. */
  readonly hasDecays?: boolean;
  /** Value heads of recurrent layers lie so that they take key heads in turn. */
  readonly hasHeadsInTurn?: boolean;
}

/** A class that is a family with another head. */
export interface OtherHead {
  /** The class, as config.json names it. */
  readonly architecture: string;
  readonly head: ClassHead;
}

/** A family of models: one folder of models/, listed in registry.ts. */
export interface Architecture<Config extends ModelConfig = ModelConfig> {
  /** `architectures[0]` of its config.json. */
  readonly name: string;
  /** Other names of the same class. Default: none. */
  readonly otherNames?: readonly string[];
  /** `model_type` of its config.json, which selects the family if `architectures` is absent. */
  readonly modelType: string;
  /** Further ones, of models with its shape. Default: none. */
  readonly otherModelTypes?: readonly string[];
  /** Sizes that a text_config may leave out, because transformers has defaults for them. Default: none. */
  readonly textDefaults?: Json;
  /** The published models that belong to it, for users. */
  readonly covers: string;
  /**
   * Reads a parsed config.json. `where` (its path) starts every message. `fallbackDType` is the element type of the
   * weights if the file names none. Throws UserError, one line.
   */
  readonly describe: (
    json: Json,
    where: string,
    fallbackDType: FormatName,
    ways?: StoredWays,
    other?: OtherHead,
  ) => Model<Config>;
}

// Attention masks as ordinary IR expressions: f32[T, T], 0 where query row q may look at key column k, −∞ elsewhere.
// The compiler proves what it can about them (passes/canonicalizeMask); no mask has an op of its own.

/**
 * How tokens of a micro-batch see each other. `path` and `tree` describe the same trees. Under `path`, a list names the
 * keys of every branch in order of position, so kernels group them by position; under `tree`, keys are grouped by their
 * place in the micro-batch.
 */
export const MASKS = ['path', 'tree', 'metaPair', 'slidingWindow'] as const;
export type MaskKind = (typeof MASKS)[number];

/** bias[q, k] = predicate ? 0 : −∞ */
const toBias = (b: GraphBuilder, visible: Value): Value =>
  b.add(
    'select',
    {
      condition: visible,
      a: b.add('const', {}, { value: 0 }, 'zero'),
      b: b.add('const', {}, { value: -Infinity }, 'hidden'),
    },
    {},
    'bias',
  );

/** Row and column numbers as i32[T, 1] and i32[1, T]. */
function indices(b: GraphBuilder): { query: Value; key: Value } {
  const index = b.add('iota', {}, { size: ['T'] }, 'index');
  return { query: asQuery(b, index), key: asKey(b, index) };
}
const asQuery = (b: GraphBuilder, v: Value): Value => b.add('reshape', { x: v }, { shape: ['T', 1] }, 'of_query');
const asKey = (b: GraphBuilder, v: Value): Value => b.add('reshape', { x: v }, { shape: [1, 'T'] }, 'of_key');

/** Trees in depth-first order: k ≤ q and q < subtreeEnd[k]. */
function treeMask(b: GraphBuilder): Value {
  const { query, key } = indices(b);
  const end = asKey(b, b.param('subtreeEnd', 'i32', ['T'], { kind: 'subtreeEnd' }));
  return toBias(
    b,
    b.add('and', { a: b.add('le', { a: key, b: query }), b: b.add('lt', { a: query, b: end }) }, {}, 'visible'),
  );
}

/**
 * The meta-pair: a question (branch 0) followed by its answers (branches 1, 2, …); several such groups are packed, each
 * with its own number in `pair`. Positions restart after the question for every answer. Key k is visible to query q
 * when k ≤ q, both belong to one pair, and k is in the question or in q's own answer. Both inputs are constant on
 * consecutive runs of tokens, and branch 0 comes first in its pair.
 */
function metaPairMask(b: GraphBuilder): Value {
  const { query, key } = indices(b);
  const branch = b.param('branch', 'i32', ['T']);
  const pair = b.param('pair', 'i32', ['T']);
  const [branchOfKey, branchOfQuery] = [asKey(b, branch), asQuery(b, branch)];
  const zero = b.add('cast', { x: b.add('const', {}, { value: 0 }) }, { dtype: 'i32' }, 'question');
  const samePair = b.add('eq', { a: asKey(b, pair), b: asQuery(b, pair) }, {}, 'same_pair');
  const open = b.add(
    'or',
    { a: b.add('eq', { a: branchOfKey, b: zero }), b: b.add('eq', { a: branchOfKey, b: branchOfQuery }) },
    {},
    'open',
  );
  return toBias(
    b,
    b.add('and', { a: b.add('and', { a: b.add('le', { a: key, b: query }), b: samePair }), b: open }, {}, 'visible'),
  );
}

/** A window of `width` keys inside the tree. It has no column form, so it stays a materialized bias. */
function slidingWindowMask(b: GraphBuilder, width: number): Value {
  const { query, key } = indices(b);
  const end = asKey(b, b.param('subtreeEnd', 'i32', ['T'], { kind: 'subtreeEnd' }));
  const limit = b.add('cast', { x: b.add('const', {}, { value: width }) }, { dtype: 'i32' }, 'width');
  const near = b.add('lt', { a: b.add('sub', { a: query, b: key }), b: limit }, {}, 'near');
  const inTree = b.add(
    'and',
    { a: b.add('le', { a: key, b: query }), b: b.add('lt', { a: query, b: end }) },
    {},
    'in_tree',
  );
  return toBias(b, b.add('and', { a: inTree, b: near }, {}, 'visible'));
}

/**
 * Keys of a path: entry c of the list of keys (extent `keys`) is visible to query q when it is one of the position[q] +
 * 1 entries from begin[q] on. The bias f32[T, C], and the position of each key on a query's path, i32[T, C].
 */
export function pathMask(
  b: GraphBuilder,
  position: Value,
  keys: ExtentName,
): { readonly bias: Value; readonly keyPosition: Value } {
  const entry = b.add('reshape', { x: b.add('iota', {}, { size: [keys] }, 'entry') }, { shape: [1, keys] }, 'of_key');
  const begin = asQuery(b, b.param('begin', 'i32', ['T'], { kind: 'row', of: keys }));
  const isAfter = b.add('le', { a: begin, b: entry }, {}, 'is_after');
  const offset = b.add('sub', { a: entry, b: begin }, {}, 'offset');
  const isBefore = b.add('le', { a: offset, b: asQuery(b, position) }, {}, 'is_before');
  return { bias: toBias(b, b.add('and', { a: isAfter, b: isBefore }, {}, 'visible')), keyPosition: offset };
}

/**
 * `bias` within a window: −∞ where the key is `width` or more positions before the query. `position`: of the queries,
 * i32[T]. `keyPosition`: of the keys on the query's path, i32[1, C] or i32[T, C].
 */
export function windowed(b: GraphBuilder, bias: Value, position: Value, keyPosition: Value, width: number): Value {
  const limit = b.add('cast', { x: b.add('const', {}, { value: width }, 'window') }, { dtype: 'i32' }, 'window_width');
  const distance = b.add('sub', { a: asQuery(b, position), b: keyPosition }, {}, 'distance');
  const near = b.add('lt', { a: distance, b: limit }, {}, 'near');
  return b.add(
    'select',
    { condition: near, a: bias, b: b.add('const', {}, { value: -Infinity }, 'far') },
    {},
    'window_bias',
  );
}

/**
 * `bias` within chunks: −∞ where the key's position divided by `width` gives a smaller whole number than the query's.
 * Keys behind the query are hidden already. Positions are as in `windowed`, and exact in f32.
 */
export function chunked(b: GraphBuilder, bias: Value, position: Value, keyPosition: Value, width: number): Value {
  const by = b.add('const', {}, { value: width }, 'chunk_width');
  const pieceOf = (at: Value, hint: string): Value => {
    const wide = b.add('cast', { x: at }, { dtype: 'f32' }, `${hint}_position`);
    return b.add('floor', { x: b.add('div', { a: wide, b: by }) }, {}, `${hint}_chunk`);
  };
  const near = b.add('le', { a: pieceOf(asQuery(b, position), 'query'), b: pieceOf(keyPosition, 'key') }, {}, 'near');
  return b.add(
    'select',
    { condition: near, a: bias, b: b.add('const', {}, { value: -Infinity }, 'far') },
    {},
    'chunk_bias',
  );
}

/** How many positions keys are further on than queries, i32[T, C]. Positions are as in `windowed`. */
export const distances = (b: GraphBuilder, position: Value, keyPosition: Value): Value =>
  b.add('sub', { a: keyPosition, b: asQuery(b, position) }, {}, 'further_on');

/** Positions of keys for each query, i32[T, C]. */
export const keyPositions = (b: GraphBuilder, position: Value, keyPosition: Value): Value =>
  b.add('add', { a: distances(b, position, keyPosition), b: asQuery(b, position) }, {}, 'position_of_key');

/** Positions of the keys of a tree or meta-pair, i32[1, T]. */
export const ownPositions = (b: GraphBuilder, position: Value): Value => asKey(b, position);

/** The f32[T, T] bias of `kind`; adds the parameters it reads. `window` is the width of a sliding window, tokens. */
export function buildMask(b: GraphBuilder, kind: Exclude<MaskKind, 'path'>, window = 64): Value {
  switch (kind) {
    case 'tree':
      return treeMask(b);
    case 'metaPair':
      return metaPairMask(b);
    case 'slidingWindow':
      return slidingWindowMask(b, window);
    default:
      return kind satisfies never;
  }
}
