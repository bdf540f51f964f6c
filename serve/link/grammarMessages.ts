/** What the thread that follows grammars is told, and what it tells: batches, so that a step costs one of each. */
import type { GrammarSource } from '../../grammar/source.js';
import type { TokenizerSpec } from '../../models/tokenizer/files.js';

/** A model whose texts may be asked to be something. Plain data. */
export interface GrammarModel {
  /** The name in the engine. */
  readonly key: string;
  readonly vocabSize: number;
  /** Tokens that end an answer. */
  readonly eosTokenIds: readonly number[];
  readonly tokenizer: TokenizerSpec;
}

/** The thread's workerData. */
export interface GrammarThreadData {
  readonly models: readonly GrammarModel[];
  /** i32[2]: the number of what it does, 0 for nothing and −1 for opening models; and how much it has done. */
  readonly progress: Int32Array;
}

/** A state is a text that is followed, from its `tokens` on. States and questions have numbers, used once. */
export interface GrammarBegin {
  readonly state: number;
  readonly model: string;
  readonly source: GrammarSource;
  readonly tokens: Int32Array;
}

/** Drafts behind the tokens of a state: what could come behind each of them. A question has a number, used once. */
export interface GrammarLook {
  readonly question: number;
  readonly state: number;
  /** Tokens that are taken first. */
  readonly taken: Int32Array;
  /** The drafts, and the places of those that they follow; −1: the last token. */
  readonly tokens: Int32Array;
  readonly parents: Int32Array;
}

export interface ToGrammars {
  readonly check: readonly { readonly question: number; readonly model: string; readonly source: GrammarSource }[];
  /** Each is answered with the mask behind its tokens. */
  readonly begin: readonly GrammarBegin[];
  /** States and the tokens that come next, each answered with the mask behind the last. */
  readonly take: readonly { readonly state: number; readonly tokens: Int32Array }[];
  /** Each is answered with a mask for each draft, or not at all where its state is over. */
  readonly look: readonly GrammarLook[];
  /** States that are over. */
  readonly close: Int32Array;
}

export interface GrammarLooked {
  readonly question: number;
  readonly state: number;
  readonly masks: Int32Array;
}

/** Why something cannot be done. `isBusy`: not now. `isFault`: nobody asked for anything wrong. */
export interface GrammarProblem {
  readonly message: string;
  readonly isBusy?: true;
  readonly isFault?: true;
}

export interface FromGrammars {
  /** Questions whose grammars are there. */
  readonly checked: readonly number[];
  /** Questions and states for which there is no answer; such states are closed. */
  readonly failed: readonly (readonly [number, GrammarProblem])[];
  /** Masks that are forgotten: their numbers mean nothing from now on. */
  readonly dropped: readonly number[];
  /** Masks that were not sent before. */
  readonly fresh: readonly { readonly mask: number; readonly words: Uint32Array }[];
  /** Pairs of a state and the number of its mask. */
  readonly masks: Int32Array;
  /** Questions about drafts, and the numbers of the masks behind them; 0 for a draft that may not come. */
  readonly looked: readonly GrammarLooked[];
}
