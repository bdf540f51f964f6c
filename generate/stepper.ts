/** A model on its devices, as generation sees it: one function, whose calls take turns. */
import type { StepLimits } from './scheduler.js';
import type { StepInputs } from './stepArrays.js';

/** What a call of `step` returns, a number for each row. */
export interface StepOutputs {
  readonly logProb: Float32Array;
  readonly isArgmax: Int32Array;
  /** A token drawn from the row, and its log-probability at temperature 1. */
  readonly nextToken: Int32Array;
  readonly nextTokenLogProb: Float32Array;
  /** The tokens of the first rows, chosen from their logits, where the model does that. */
  readonly filtered?: FilteredOutputs;
}

/** For each filtered row. Log-probabilities are those at temperature 1, of unchanged logits. */
export interface FilteredOutputs {
  readonly token: Int32Array;
  readonly logProb: Float32Array;
  /** The most likely tokens, as many numbers a row as the model finds at most; those past topCount are 0. */
  readonly topTokens: Int32Array;
  readonly topLogProbs: Float32Array;
}

export interface Stepper {
  readonly limits: StepLimits;
  /** Tokens whose keys and values there is room for. */
  readonly cacheTokens: number;
  /** Longest context of the model, in tokens. */
  readonly maxLength: number;
  /** `step` chooses tokens from whole rows of logits: tokens of its vocabulary. Absent: it does not. */
  readonly vocab?: number | undefined;
  /**
   * Calls are executed in the order in which they are made. Rejects with StateLost where the device and all keys and
   * values are gone; with an error that has `rows` where only some rows could not be computed.
   */
  step(inputs: StepInputs): Promise<StepOutputs>;
  /** Whether keys and values are gone already, so that the next call would reject with StateLost. */
  isLost?(): boolean;
  /** After StateLost: settles when another device is ready; rejects where there will be none. */
  recovered?(): Promise<void>;
}

/** The device ended, and the keys and values in its memory with it. */
export class StateLost extends Error {
  /** Whether it may have been computing the call when it ended. */
  readonly wasAsked: boolean;

  constructor(message: string, wasAsked = true) {
    super(message);
    this.wasAsked = wasAsked;
  }
}
