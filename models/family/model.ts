/** What the rest of the compiler knows of a model: its tensors, its graph, and the few facts that every family has. */
import type { Graph } from '../../ir/graph/graph.js';
import type { DType, FloatType } from '../../ir/types.js';
import type { MaskKind } from './mask.js';
import type { FormatName } from '../../ir/storage.js';
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
}

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
  /** Chooses tokens of the first F rows from whole rows of logits. */
  readonly filters?: boolean;
  /** Takes tokens that the call before has drawn, which it keeps in a state. */
  readonly feeds?: boolean;
}

/** A head that the configuration says to be the embedding table. */
export interface TiedHead<Config extends ModelConfig = ModelConfig> {
  /** Names of the tensors; files may hold the head as well. */
  readonly embedding: string;
  readonly head: string;
  /** The same model with a head of its own. */
  readonly untied: () => Model<Config>;
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
  /** True if checkpoints hold it inside a multimodal model, with names that models/wrapper.ts reads. */
  readonly isWrapped?: boolean;
  /** Tensors that checkpoints of the family contain but the model does not read. */
  readonly isIgnored: (tensor: string) => boolean;
  /**
   * score(tokens i32[T], position i32[T], mask inputs, row i32[R], target i32[R]) → (f32[R] log-probability of
   * target[r] after token row[r], i32[R] 1 where the target is the most likely token), in primitive ops. The inputs of
   * mask `path` are key i32[C], which lists tokens, and begin i32[T]: token t sees the tokens key[begin[t]] …
   * key[begin[t] + position[t]], of which the last is t itself.
   */
  readonly graph: (options: GraphOptions) => Graph;
  /**
   * step(tokens i32[T], position i32[T], slot i32[T], begin i32[T], key i32[C], row i32[R], target i32[R],
   * inverseTemperature f32[R], keyLow i32[R], keyHigh i32[R]; k_0, v_0, …) → (logProb f32[R], isArgmax i32[R], drawn
   * i32[R], drawnLogProb f32[R]; k_0, v_0, …): tokens that continue paths, and the next one drawn for each row. The
   * keys and values of token t go to row slot[t] of the states of their layer (nowhere if it is −1). Token t sees the
   * rows key[begin[t]] … key[begin[t] + position[t]], of which the last is its own.
   * With `feeds` it takes isFed i32[T], feed i32[T], keep i32[R] and the state `drawn` i32[N] too. Where isFed[t] is 1,
   * token t is drawn[feed[t]] as the call finds it, and the token that row r draws goes to drawn[keep[r]].
   * With `filters` it takes, for each of the first F ≤ R rows, what ir/sampleInputs lists and topCount i32[F], with
   * lists of E entries in all. It returns sampled i32[F], sampledLogProb f32[F], topTokens i32[F, 32] and topLogProbs
   * f32[F, 32], of which topCount[r] are set. With both, the token chosen for row r goes to drawn[keepSampled[r]].
   */
  readonly step: (options: StepOptions) => Graph;
}

/** How files hold the weights of a family in another way than Hugging Face checkpoints do. Default of each: false. */
export interface StoredWays {
  /** Rows of q and k lie so that rotary embedding turns pairs of neighbours. */
  readonly hasInterleavedPairs?: boolean;
  /** Norm weights are whole where the family keeps differences from 1. */
  readonly hasWholeNormWeights?: boolean;
  /** A tensor with q, k and v has all of q first, where the family has those of each head together. */
  readonly hasProjectionsInTurn?: boolean;
}

/** A family of models: one folder of models/, listed in registry.ts. */
export interface Architecture<Config extends ModelConfig = ModelConfig> {
  /** `architectures[0]` of its config.json. */
  readonly name: string;
  /** `model_type` of its config.json, which selects the family if `architectures` is absent. */
  readonly modelType: string;
  /** Sizes that a text_config may leave out, because transformers has defaults for them. Default: none. */
  readonly textDefaults?: Json;
  /** The published models that belong to it, for users. */
  readonly covers: string;
  /**
   * Reads a parsed config.json. `where` (its path) starts every message. `fallbackDType` is the element type of the
   * weights if the file names none. Throws UserError, one line.
   */
  readonly describe: (json: Json, where: string, fallbackDType: FormatName, ways?: StoredWays) => Model<Config>;
}
