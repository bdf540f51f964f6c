/**
 * One sequence of a request on its way: what was generated of it, and who listens. The loop that computes it calls
 * `take`, `score`, `end` and `fail`, none of which waits for anybody.
 */
import { Recent } from '../system/recent.js';
import { allowsAny, isAllowedBy } from './guide.js';
import {
  type EndReason,
  type Generated,
  type GeneratedToken,
  GenerateError,
  GivenUp,
  type GenerateRequest,
  type RequestOptions,
  sequenceOf,
  type SequenceLimits,
  type TokenLogProb,
} from './request.js';
import type { Sequence } from './sequence.js';

/** What a row says: the log-probability of its target, and the most likely token. */
export interface Score {
  readonly logProb: number;
  readonly isArgmax: boolean;
  readonly argmax: number;
  readonly argmaxLogProb: number;
  /** The most likely tokens, where they were asked for. */
  readonly top?: readonly TokenLogProb[] | undefined;
  /** f32[N], of a head of classes. */
  readonly classLogits?: Float32Array | undefined;
}

/** Is told what happens to a task, in the loop that feeds the device: it must return at once and not throw. */
export interface TaskListener {
  onToken?(token: GeneratedToken): void;
  /** Of row `ask` of those that were asked for of the prompt. */
  onScore?(score: Score, ask: number): void;
  onEnd(result: Generated): void;
  onFail(error: Error): void;
}

/** The loop that computes a task. */
export interface TaskOwner {
  /** The task is to end before its next step; at once, where no step that will say something about it is on its way. */
  stop(task: Task): void;
  /** The task takes no part in steps. It keeps its pages while nobody else needs them. */
  pause(task: Task): void;
  /** A task that took no part in steps goes on. */
  resume(task: Task): void;
  /** The mask of its next token is there. */
  guide(task: Task): void;
}

/** A sequence counts as the cause where so many devices end within an hour while they compute it. */
const MAX_LOSSES = 3;
const LOSS_MS = 3_600_000;

export class Task {
  readonly request: GenerateRequest;
  readonly sequence: Sequence;
  /** Tasks with equal ones are computed by one replica while it is there. */
  readonly affinity: number | undefined;
  /** Set by the loop that takes it. */
  owner: TaskOwner | undefined;
  /** Why it is to end before its next step. */
  stopped: EndReason | undefined;
  /** The error that it is to end with instead. */
  failure: Error | undefined;
  /** When it was made, in milliseconds; when its first step was planned; when its first token was read. */
  readonly submitted = performance.now();
  begun: number | undefined;
  firstToken: number | undefined;
  private readonly generated: GeneratedToken[] = [];
  private readonly scores: { readonly logProb: number; readonly isArgmax: boolean }[] = [];
  private answers = 0;
  private readonly listener: TaskListener;
  private losses: Recent | undefined;
  private isOver = false;
  private drafted = 0;
  private accepted = 0;

  /** Throws as sequenceOf does. */
  constructor(
    request: GenerateRequest,
    limits: SequenceLimits,
    listener: TaskListener,
    options: Pick<RequestOptions, 'priority' | 'affinity' | 'adapter'> = {},
  ) {
    this.request = request;
    this.affinity = options.affinity;
    this.sequence = sequenceOf(request, limits, options);
    this.listener = listener;
  }

  /** The loop that computes it has it: its guide is asked for the first mask. */
  begin(): void {
    this.sequence.guided?.begin({
      onMask: () => this.guide(),
      onAhead: () => {
        this.sequence.takeLooked();
        this.owner?.guide(this);
      },
      onFail: (error) => this.stopFor(new GenerateError(`its guide failed: ${error.message}`, { cause: error })),
    });
  }

  private guide(): void {
    const { guided, banned } = this.sequence;
    const { mask, vocab } = guided!;
    if (allowsAny(mask!, vocab, banned)) return this.owner?.guide(this);
    const isEnd = banned !== undefined && allowsAny(mask!, vocab);
    const what = isEnd ? 'no token but those that end the text, which is to have more tokens' : 'no token';
    this.stopFor(new GenerateError(`its guide allows ${what}`));
  }

  /** Ends it with an error, before its next step. */
  stopFor(error: Error): void {
    if (this.isOver || this.stopped !== undefined) return;
    this.failure = error;
    this.stop('aborted');
  }

  /** Tokens that are left to compute, the first of which may be in pages. */
  get workTokens(): number {
    return this.sequence.pending + this.request.maxNewTokens - this.generated.length;
  }

  /** Ends it with what there is, soon. The first reason counts. */
  stop(reason: EndReason): void {
    if (this.isOver || this.stopped !== undefined) return;
    this.stopped = reason;
    this.owner?.stop(this);
  }

  /** It keeps its pages while nobody else needs them, and takes no part in steps. */
  pause(): void {
    this.sequence.isPaused = true;
    if (!this.isOver) this.owner?.pause(this);
  }

  resume(): void {
    if (!this.sequence.isPaused) return;
    this.sequence.isPaused = false;
    if (!this.isOver) this.owner?.resume(this);
  }

  /** Takes the next token. Returns why the sequence ends with it, if it does. */
  take(next: GeneratedToken, { maxLength, room }: SequenceLimits): EndReason | undefined {
    const { stopTokens, maxNewTokens, endsAt } = this.request;
    if (maxNewTokens === 0) return 'length';
    // A device that finds nothing to choose gives token 0.
    const mask = this.sequence.guided?.mask;
    if (mask !== undefined && !isAllowedBy(mask, next.token))
      throw new GenerateError('no token that its guide allows has a probability above 0');
    this.generated.push(next);
    const length = this.sequence.promptLength + this.generated.length;
    this.listener.onToken?.(next);
    if (stopTokens?.has(next.token) === true) return 'eos';
    if (endsAt?.(next.token) === true) return 'stop';
    if (this.generated.length >= maxNewTokens) return 'length';
    if (length >= maxLength) return 'context';
    if (length >= room) return 'cache';
    this.sequence.guided?.advance(next.token);
    return undefined;
  }

  /** A step computed so many drafts behind it, of which so many are its tokens. */
  countDrafts(drafted: number, accepted: number): void {
    this.drafted += drafted;
    this.accepted += accepted;
  }

  /** Takes the answer of row `ask` of the prompt. Returns why the sequence ends with it, if it does. */
  score(score: Score, ask: number): EndReason | undefined {
    const { asks, isDrawing } = this.sequence;
    asks.answered = Math.max(asks.answered, ask + 1);
    if (this.request.rows === undefined) this.scores.push({ logProb: score.logProb, isArgmax: score.isArgmax });
    this.listener.onScore?.(score, ask);
    return ++this.answers === asks.length && !isDrawing ? 'length' : undefined;
  }

  end(reason: EndReason): void {
    if (this.isOver) return;
    this.close();
    this.listener.onEnd(this.resultOf(reason));
  }

  /** Ends it with its first `count` tokens, whatever has come since. Whoever listens is not told. */
  cut(count: number, reason: EndReason): Generated {
    this.stop(reason);
    this.close();
    return this.resultOf(reason, count);
  }

  private close(): void {
    this.isOver = true;
    this.sequence.guided?.close();
  }

  private resultOf(reason: EndReason, count = this.generated.length): Generated {
    const { generated, sequence, drafted, accepted } = this;
    return {
      tokens: generated.slice(0, count),
      promptScores: this.scores,
      reason,
      foundTokens: sequence.found,
      ...(drafted > 0 ? { drafts: { drafted, accepted } } : {}),
    };
  }

  fail(error: Error): void {
    if (this.isOver) return;
    this.close();
    this.listener.onFail(error);
  }

  /** A device ended while it computed this. Returns false, having failed, where that has happened too often. */
  survive(error: Error): boolean {
    this.losses ??= new Recent(LOSS_MS);
    this.losses.add();
    if (this.losses.count < MAX_LOSSES) return true;
    this.fail(new GivenUp(`its steps ended ${MAX_LOSSES} devices: ${error.message}`));
    return false;
  }
}
