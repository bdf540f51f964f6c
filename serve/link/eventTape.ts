/**
 * Events of many requests as two arrays of numbers, which change threads without being copied: whole numbers in the
 * order of reading, and log-probabilities beside them. Rows of classes and errors, which are rare, lie apart.
 */
import type { EndReason, GeneratedToken, RequestEvent, RowResult, TokenLogProb } from '../../engine/request.js';
import { receivedError, type SentError, sentError } from './failures.js';

export interface Tape {
  /** For each request its number, the number of its events, and these. */
  readonly ints: Int32Array;
  readonly floats: Float64Array;
  readonly classes: readonly Float32Array[];
  readonly errors: readonly SentError[];
}

const KINDS = ['token', 'topToken', 'row', 'classes', 'end', 'failed'] as const;
const REASONS: readonly EndReason[] = ['eos', 'stop', 'length', 'context', 'cache', 'aborted', 'deadline'];
const NOTHING = -1;

/** What fills a tape. It grows, and its memory is used again. */
export class TapeWriter {
  private ints = new Int32Array(1024);
  private floats = new Float64Array(1024);
  private intCount = 0;
  private floatCount = 0;
  private classes: Float32Array[] = [];
  private errors: SentError[] = [];

  get isEmpty(): boolean {
    return this.intCount === 0;
  }

  add(request: number, events: readonly RequestEvent[]): void {
    this.int(request);
    this.int(events.length);
    for (const event of events) this.event(event);
  }

  /** What was added since the last time. */
  take(): Tape {
    const { classes, errors } = this;
    const tape = {
      ints: this.ints.slice(0, this.intCount),
      floats: this.floats.slice(0, this.floatCount),
      classes,
      errors,
    };
    this.intCount = 0;
    this.floatCount = 0;
    this.classes = [];
    this.errors = [];
    return tape;
  }

  private event(event: RequestEvent): void {
    const kind = event.kind === 'token' && event.token.top !== undefined ? 'topToken' : event.kind;
    this.int(KINDS.indexOf(kind));
    this.int(event.sample);
    switch (event.kind) {
      case 'token':
        this.int(event.token.token);
        this.float(event.token.logProb);
        if (event.token.top !== undefined) this.tops(event.token.top);
        return;
      case 'row':
        return this.row(event.row);
      case 'classes':
        this.int(event.row.position);
        this.classes.push(event.row.logits);
        return;
      case 'end': {
        const { reason, foundTokens, promptScores, tokens } = event.result;
        this.int(REASONS.indexOf(reason));
        this.int(foundTokens);
        this.int(tokens.length);
        this.int(promptScores.length);
        for (const { logProb, isArgmax } of promptScores) {
          this.float(logProb);
          this.int(Number(isArgmax));
        }
        return;
      }
      case 'failed':
        this.errors.push(sentError(event.error));
        return;
      default:
        return event satisfies never;
    }
  }

  private row({ position, logProb, isArgmax, argmax, top }: RowResult): void {
    this.int(position);
    this.int(logProb === undefined ? NOTHING : Number(isArgmax));
    if (logProb !== undefined) this.float(logProb);
    this.int(argmax.token);
    this.float(argmax.logProb);
    if (top === undefined) this.int(NOTHING);
    else this.tops(top);
  }

  private tops(top: readonly TokenLogProb[]): void {
    this.int(top.length);
    for (const { token, logProb } of top) {
      this.int(token);
      this.float(logProb);
    }
  }

  private int(value: number): void {
    if (this.intCount === this.ints.length) {
      const more = new Int32Array(2 * this.intCount);
      more.set(this.ints);
      this.ints = more;
    }
    this.ints[this.intCount++] = value;
  }

  private float(value: number): void {
    if (this.floatCount === this.floats.length) {
      const more = new Float64Array(2 * this.floatCount);
      more.set(this.floats);
      this.floats = more;
    }
    this.floats[this.floatCount++] = value;
  }
}

/** An event as it is read; the tokens of a result are those that came before it. */
export type TapeEvent =
  | Exclude<RequestEvent, { readonly kind: 'end' }>
  | {
      readonly kind: 'end';
      readonly sample: number;
      readonly reason: EndReason;
      readonly foundTokens: number;
      /** So many of the tokens that were told belong to the result. */
      readonly count: number;
      readonly promptScores: readonly { readonly logProb: number; readonly isArgmax: boolean }[];
    };

/** Reads a tape from its beginning: for each request its number and its events. */
export function readTape(
  { ints, floats, classes, errors }: Tape,
  take: (request: number, events: TapeEvent[]) => void,
) {
  let atInt = 0;
  let atFloat = 0;
  let atClasses = 0;
  let atError = 0;
  const topsOf = (count: number): TokenLogProb[] => {
    const top: TokenLogProb[] = [];
    for (let i = 0; i < count; i++) top.push({ token: ints[atInt++]!, logProb: floats[atFloat++]! });
    return top;
  };
  const rowOf = (): RowResult => {
    const position = ints[atInt++]!;
    const hit = ints[atInt++]!;
    const target = hit === NOTHING ? {} : { logProb: floats[atFloat++]!, isArgmax: hit === 1 };
    const argmax = { token: ints[atInt++]!, logProb: floats[atFloat++]! };
    const count = ints[atInt++]!;
    return { position, ...target, argmax, ...(count === NOTHING ? {} : { top: topsOf(count) }) };
  };
  const eventOf = (): TapeEvent => {
    const kind = KINDS[ints[atInt++]!]!;
    const sample = ints[atInt++]!;
    switch (kind) {
      case 'token':
      case 'topToken': {
        const token = ints[atInt++]!;
        const logProb = floats[atFloat++]!;
        const own: GeneratedToken =
          kind === 'token' ? { token, logProb } : { token, logProb, top: topsOf(ints[atInt++]!) };
        return { kind: 'token', sample, token: own };
      }
      case 'row':
        return { kind, sample, row: rowOf() };
      case 'classes':
        return { kind, sample, row: { position: ints[atInt++]!, logits: classes[atClasses++]! } };
      case 'end': {
        const reason = REASONS[ints[atInt++]!]!;
        const foundTokens = ints[atInt++]!;
        const count = ints[atInt++]!;
        const promptScores = [];
        for (let left = ints[atInt++]!; left > 0; left--)
          promptScores.push({ logProb: floats[atFloat++]!, isArgmax: ints[atInt++]! === 1 });
        return { kind, sample, reason, foundTokens, count, promptScores };
      }
      case 'failed':
        return { kind, sample, error: receivedError(errors[atError++]!) };
      default:
        return kind satisfies never;
    }
  };
  while (atInt < ints.length) {
    const request = ints[atInt++]!;
    const count = ints[atInt++]!;
    const events: TapeEvent[] = [];
    for (let i = 0; i < count; i++) events.push(eventOf());
    take(request, events);
  }
}
