/**
 * What the engine asks of a model on one replica. The device keeps a table of sequences; a message names what changed,
 * so its size follows the tokens of the step and never the length of what is kept.
 */
import type { MemoryBudget } from './memory.js';
import type { FilterInputs } from './tokenEntries.js';

/** What a call of so many new tokens takes, apart from reading the keys of its paths. */
export interface CallSeconds {
  readonly tokens: number;
  readonly seconds: number;
}

/** How much a step may be. */
export interface StepLimits {
  /** Most new tokens. */
  readonly tokens: number;
  /** Most keys: the lengths of all paths. */
  readonly keys: number;
  /** Most rows. Default: as many as tokens. */
  readonly rows?: number;
  /** Most new tokens of a step in which a sequence gets its next token, which waits for all. Default: `tokens`. */
  readonly besideTokens?: number;
  /**
   * Whether a few prompts beside texts take longer than a step of each: they then take turns. On a GPU, attention over
   * the keys of a text that waits for one token costs much more in a call that has prompts.
   */
  readonly takesPromptsApart?: boolean;
  /** Rows whose drawn token a step keeps for the next one, which need not wait for the host. Default: none. */
  readonly keptRows?: number;
  /** Steps that keep all stages of a pipeline busy, each with sequences of its own. Default: 1. */
  readonly groups?: number;
  /** Seconds of calls that continue texts, as far as they were measured before: the tuner's table. Default: none. */
  readonly callSeconds?: readonly CallSeconds[] | undefined;
  /** Most filtered rows, and entries of their lists. Default: none, and the model takes no filters. */
  readonly filtered?: number;
  readonly entries?: number;
  /** Rows of states of recurrent layers that the device has. Default: none, the model has no such layers. */
  readonly states?: number;
  /** Bytes of such a row, in all layers. */
  readonly stateBytes?: number;
}

/** Pages that are copied before a step: the first rows of `from` become those of `to`. */
export interface PageCopies {
  /** Pages, as many as there are copies. No page is in both. */
  readonly from: Int32Array;
  readonly to: Int32Array;
  /** Rows of each, from 1 to the size of a page. */
  readonly rows: Int32Array;
}

/**
 * Drafts that leave the path of a part (B branches). Their tokens come behind those of all parts, branch after branch,
 * and see the path up to where they leave it. Their keys and values are in pages of their own, of which the device
 * knows nothing after the step.
 */
export interface DraftBranches {
  /** i32[B]: the part whose path a branch leaves; P + b: that of branch b before it. */
  readonly of: Int32Array;
  /** i32[B]: the position of its first token; and how many there are, from 1 to the size of a page. */
  readonly from: Int32Array;
  readonly count: Int32Array;
  /** i32[B]: a page that nobody else has. */
  readonly page: Int32Array;
}

/**
 * Rows of states of recurrent layers that a step reads and writes (P parts, S states). All are read before any is
 * written. A row that is written goes on from itself or is read by nobody: only the part whose last token writes it may
 * have it in `from`. Branches go on from the states behind the tokens that they leave.
 */
export interface StateRows {
  /** i32[P]: the row that each part goes on from; −1: from zeros, where a part begins its text. */
  readonly from: Int32Array;
  /** i32[S]: a new token of the step, from 0 to T − 1, ascending, each at most twice. */
  readonly token: Int32Array;
  /** i32[S]: the row that gets the states behind it. No row is written twice. */
  readonly to: Int32Array;
}

/** Numbers of sequences are below this. */
export const MAX_SEQUENCES = 1 << 20;

/** A step: sequences that go on, each by some tokens (P parts, T tokens, R rows). */
export interface StepMessage {
  /**
   * Sequences that the device forgets before the step. Their numbers may be used again in the same message. One that it
   * does not have is passed over: a message that was refused may have named it.
   */
  readonly ended: Int32Array;
  /**
   * i32[P]: the sequence of each part, below MAX_SEQUENCES. A number that is not in the table begins a sequence without
   * pages.
   */
  readonly sequence: Int32Array;
  /** i32[P]: how many of its pages it keeps; those behind them are forgotten. */
  readonly keptPages: Int32Array;
  /** i32[P]: how many of `pages` come behind those. */
  readonly newPages: Int32Array;
  /** Pages that the parts gained, part after part. */
  readonly pages: Int32Array;
  /**
   * i32[P]: the position of its first new token, and how many tokens are new, at least one. Its pages hold all up to
   * the last. No other part writes into the pages of its new tokens.
   */
  readonly from: Int32Array;
  readonly count: Int32Array;
  /** i32[T]: part after part; −1 − r: the token that row r of the step before has drawn. */
  readonly tokens: Int32Array;
  /** i32[R]: the new token after which a row stands, from 0 to T − 1. A token may have several rows. */
  readonly row: Int32Array;
  /** i32[R]: the token whose log-probability is asked for; any where none is. */
  readonly target: Int32Array;
  /** What each row draws its token with: 0 takes the most likely one (ir/gumbel). */
  readonly inverseTemperature: Float32Array;
  readonly keyLow: Int32Array;
  readonly keyHigh: Int32Array;
  /** i32[R]: 1 where the next step may name the token that the row draws. */
  readonly keep: Int32Array;
  /** Of the first rows, which are filtered. */
  readonly filters?: FilterInputs;
  /** i32[P]: the slot of each part's adapter; −1: it has none. Default: no part has one. */
  readonly adapter?: Int32Array;
  readonly copies?: PageCopies;
  readonly branches?: DraftBranches;
  /** Of a model that has states (StepLimits.states), and of no other. */
  readonly states?: StateRows;
  /** For the function `draft`, whose drawn tokens are kept apart from those of `step`. Neither filters nor branches. */
  readonly isDraft?: true;
}

/** What filtered rows are given. Log-probabilities are those at temperature 1, of unchanged logits. */
export interface FilteredAnswer {
  readonly token: Int32Array;
  readonly logProb: Float32Array;
  /** The most likely tokens, as many numbers a row as the model finds at most; those past topCount are 0. */
  readonly topTokens: Int32Array;
  readonly topLogProbs: Float32Array;
}

/**
 * What a step computes, a number for each row unless it says otherwise. Drafts have drawn tokens alone: −1 where
 * nothing was, and a log-probability that is not finite.
 */
export interface StepAnswer {
  /** Natural logarithm of the target's probability, and whether it is the most likely token. Of a vocabulary head. */
  readonly logProb: Float32Array;
  readonly isArgmax: Int32Array;
  /** A token drawn from the row, and its log-probability at temperature 1. */
  readonly nextToken: Int32Array;
  readonly nextTokenLogProb: Float32Array;
  /** For the first rows, as many as have filters. */
  readonly filtered?: FilteredAnswer;
  /** f32[R, N]: what a head of N classes gives, before any softmax. */
  readonly classLogits?: Float32Array;
  /** f32[R, H]: rows of the residual stream behind the last norm. */
  readonly hidden?: Float32Array;
}

/** The device ended, and the keys and values in its memory with it. */
export class StateLost extends Error {
  /** Whether it may have been computing the step when it ended. */
  readonly wasAsked: boolean;

  constructor(message: string, wasAsked = true) {
    super(message);
    this.wasAsked = wasAsked;
  }
}

/** How a model is asked for drafts: by messages with `isDraft`, over the pages that its sequences have. */
export interface DraftFunction {
  /** For summaries and metrics: `model`, `eagle`, `mtp`. */
  readonly name: string;
  /**
   * 0: it takes token p at position p, as the model does. 1: it takes token p + 1 at position p, beside what `step`
   * computed there. A row behind the last token it may take then draws the one that follows.
   */
  readonly ahead: 0 | 1;
  /** Positions that it has, if those are fewer than the model's: drafts end there. */
  readonly maxLength?: number | undefined;
  readonly limits: Pick<StepLimits, 'tokens' | 'keys' | 'rows'>;
}

/** An adapter as devices are asked for it. Its content, not its place, is what it is. */
export interface AdapterRef {
  /** SHA-256, hexadecimal, of its content. */
  readonly hash: string;
  /** Absolute path of its folder. */
  readonly path: string;
  /** Largest rank of its products, where that is known: what no slot can hold is refused before it waits for one. */
  readonly rank?: number | undefined;
}

/** Slots of adapters on a device, each with one adapter or none. */
export interface DeviceAdapters {
  readonly count: number;
  /** Largest rank of an adapter. */
  readonly rank: number;
  /**
   * Puts an adapter into a slot, in place of what it holds. No step that was sent may name the slot until it resolves;
   * other slots are read meanwhile. Rejects with a UserError where the folder no longer holds what the hash says, or
   * does not fit the model. A device that was replaced has empty slots.
   */
  load(slot: number, adapter: AdapterRef): Promise<void>;
}

/** A model on one replica, as the engine sees it. Its steps are executed in the order in which they are sent. */
export interface DeviceModel {
  readonly limits: StepLimits;
  /** Longest context of the model, in tokens. */
  readonly maxLength: number;
  /** Tokens of its vocabulary, where it chooses tokens from whole rows of logits. */
  readonly vocab?: number | undefined;
  /** Classes of its head, where that is none of a vocabulary. */
  readonly classes?: number | undefined;
  /** Pages that it has addresses for, and those that have memory when it is opened. */
  readonly maxPages: number;
  readonly mappedPages: number;
  /** Pages whose memory comes and goes together, and the bytes of those in all states. */
  readonly piecePages: number;
  readonly pieceBytes: number;
  /** The function that proposes tokens on the device, if the model has one. */
  readonly draft?: DraftFunction | undefined;
  /** Where adapters of requests go, if the model was compiled for them. */
  readonly adapters?: DeviceAdapters | undefined;
  /** Says how many pages it has, beside other models on its device. Absent: it keeps those that it is opened with. */
  readonly budget?: MemoryBudget | undefined;
  /** Rejects with StateLost where the device is gone, and with an error that has `rows` where only those failed. */
  step(message: StepMessage): Promise<StepAnswer>;
  /**
   * Has memory behind pages 0 to `pages` − 1 and no others, as soon as the steps before are done. Sequences with other
   * pages are forgotten. Resolves with the number of pages there is memory for: fewer where it ran out, never fewer
   * than before unless that was asked.
   */
  resize(pages: number): Promise<number>;
  /** Whether its pages are lost already, so that the next step would reject with StateLost. */
  isLost?(): boolean;
  /** After StateLost: settles when another device is ready, without sequences; rejects where there will be none. */
  recovered?(): Promise<void>;
}
