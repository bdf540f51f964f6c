/** What is said of the experts of a model: their numbers, how they are chosen, and names of their modules. */
import type { ExpertGroups } from '../../ir/experts.js';
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { PlainActivation } from './ops.js';

/** (up + 1)·gate·sigmoid(slope·gate), where gate is at most `limit` and up from −limit to limit. */
export interface ClampedSwiglu {
  readonly limit: number;
  readonly slope: number;
}

/**
 * How a router chooses, where it is not by the largest logits of a softmax. Scores are a softmax of the logits or their
 * sigmoids; experts are those of the largest scores, plus `bias` of each expert if there is one (arXiv:2408.15664),
 * within some groups of experts (arXiv:2405.04434).
 */
export interface RoutingConfig {
  /** Default: softmax. */
  readonly scores?: 'sigmoid';
  /** The tensor, below the layer, of a number for each expert that counts in the choice only. Default: none. */
  readonly bias?: string;
  /** Default: one group. */
  readonly groups?: ExpertGroups;
  /** Of the weights of experts. Default: 1. */
  readonly factor?: number;
  /** Experts have weights in turn, of those within this (ir/experts.ts, RoutingRule). Default: of all. */
  readonly inTurn?: number;
}

/** Feed-forward blocks of which each token takes a few, chosen by a router (arXiv:1701.06538, arXiv:2401.04088). */
export interface ExpertsConfig {
  readonly count: number;
  /** Experts that a token is sent to. */
  readonly chosen: number;
  /** Inner width of an expert. */
  readonly width: number;
  /** Whether the weights of the chosen experts add up to 1. If not, they are their probabilities among all. */
  readonly isNormalized: boolean;
  /** Default: by the largest logits, with softmax. */
  readonly routing?: RoutingConfig;
  /** Inner width of an expert that every token takes, times a gate of its own. Default: there is none. */
  readonly sharedWidth?: number;
  /**
   * True if experts read a row times their weights for it, and what they give is added as it is. Weights of several
   * experts are their scores then. Default: false.
   */
  readonly scalesInputs?: boolean;
  /** False if what that expert gives is added as it is. Default: true. */
  readonly hasSharedGate?: boolean;
  /** Whether the matrices of that expert have biases. Default: none has. */
  readonly hasSharedBiases?: true;
  /** Whether the router and all matrices of experts have biases. Default: none has. */
  readonly isBiased?: true;
  /** What is computed between the products, if it is not f(gate) ∘ up: SwiGLU of bounded numbers. */
  readonly clamped?: ClampedSwiglu;
  /** Layers with one feed-forward block instead, in ascending order. Default: none. */
  readonly dense?: readonly number[];
}

/** Names of modules below a layer. `expert` is followed by a number and the name of a matrix. */
export interface ExpertNames {
  readonly router: string;
  readonly expert: string;
  readonly matrices: Readonly<Record<'gate' | 'up' | 'down', string>>;
  /** An expert for all tokens, whose matrices are `gate_proj`, `up_proj` and `down_proj`, and its gate. */
  readonly shared: string;
  readonly sharedGate: string;
  /** True if the bias of the choice is stored as [1, experts]. Default: as [experts]. */
  readonly isBiasOfOneRow?: true;
  /** Tensors with gate and up, and with down, of all experts of a layer. Default: those of transformers 5. */
  readonly inOne?: readonly [inner: string, outer: string];
  /** Where files that hold all experts of a layer in one tensor may have router and experts too. Default: nowhere. */
  readonly elsewhere?: Pick<ExpertNames, 'router' | 'expert'>;
}

/** What the layers of a decoder bring. */
export interface ExpertContext {
  readonly b: GraphBuilder;
  readonly names: ExpertNames;
  readonly hidden: number;
  readonly activation: PlainActivation;
  readonly weight: (name: string, dims: readonly number[]) => Value;
  readonly toF32: (v: Value, hint: string) => Value;
}
