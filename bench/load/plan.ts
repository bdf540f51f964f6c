/** Which requests a load consists of: how long they are, and when they come. */
import { gunzipSync } from 'node:zlib';
import { readFileSync } from 'node:fs';
import { UserError } from '../../errors.js';
import { at } from '../../system/at.js';
import { fileSize } from '../../system/read.js';
import { requestLengths, type RequestLengths, uniform } from '../requestLengths.js';

/** A request of a load. */
export interface PlannedRequest extends RequestLengths {
  readonly index: number;
  /** Seconds after the beginning at which it is sent. */
  readonly seconds: number;
  /** Its client goes away after so many tokens. */
  readonly abortAfter?: number;
}

export interface PlanOptions {
  readonly requests: number;
  readonly seed: number;
  /** `public`, `fixed`, `random`, or the path of a trace. */
  readonly lengths: string;
  /** Standard deviation of the logarithm of a public length. */
  readonly spread: number;
  /** Tokens of fixed lengths, and the middle of random ones. */
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Random lengths are uniform, from the middle times 1 − x to the middle times 1 + x. */
  readonly rangeRatio: number;
  /** Most tokens of a prompt and its answer; a longer prompt keeps half of them at most. */
  readonly longest?: number;
  /** Requests a second; Infinity: all at once; `trace`: as the trace says. */
  readonly rate: number | 'trace';
  /** Shape of the gamma distribution of gaps: 1 is a Poisson process, more is steadier; Infinity: equal gaps. */
  readonly burstiness: number;
  /** The rate begins here, and is `rate` at the end. */
  readonly rampFrom?: number;
  readonly ramp?: 'linear' | 'exponential';
  /** Share of requests whose client goes away. */
  readonly aborts: number;
}

/** Draws of several kinds from one seed. */
const randomOf = (seed: number, kind: number): (() => number) =>
  uniform(1 + ((seed * 7919 + kind * 104_729) % 2_147_483_646));

const normal = (random: () => number): number => Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());

/** A number of the gamma distribution with this shape and mean 1, by Marsaglia and Tsang's method. */
export function gamma(random: () => number, shape: number): number {
  if (shape === Infinity) return 1;
  const raised = shape < 1 ? shape + 1 : shape;
  const d = raised - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const x = normal(random);
    const v = (1 + c * x) ** 3;
    if (v <= 0 || Math.log(random()) >= 0.5 * x * x + d - d * v + d * Math.log(v)) continue;
    return (d * v * (shape < 1 ? random() ** (1 / shape) : 1)) / shape;
  }
}

/**
 * Seconds at which each request comes. As in the public benchmark, gaps at one rate are scaled so that the last request
 * comes after requests / rate seconds.
 */
export function arrivals({ requests, seed, rate, burstiness, ramp, rampFrom = 1 }: PlanOptions): readonly number[] {
  if (rate === 'trace' || rate === Infinity) return Array.from({ length: requests }, () => 0);
  const random = randomOf(seed, 1);
  const rateOf = (i: number): number => {
    const done = i / requests;
    if (ramp === 'linear') return rampFrom + (rate - rampFrom) * done;
    return ramp === 'exponential' ? rampFrom * (rate / rampFrom) ** done : rate;
  };
  let now = 0;
  const times = Array.from({ length: requests }, (_, i) => (now += gamma(random, burstiness) / rateOf(i)));
  const scale = ramp === undefined ? requests / rate / now : 1;
  return times.map((time) => time * scale);
}

interface TraceRow extends RequestLengths {
  readonly seconds: number;
}

const MAX_TRACE_BYTES = 64 << 20;

/**
 * Rows of a trace in the columns of Azure's: TIMESTAMP, ContextTokens, GeneratedTokens; a `.gz` file is unpacked.
 * Throws UserError.
 */
export function readTrace(path: string): readonly TraceRow[] {
  const hint = 'give a CSV file with the columns TIMESTAMP,ContextTokens,GeneratedTokens, or public, fixed or random';
  const size = fileSize(path);
  if (size === undefined) throw new UserError(`--lengths ${path}: there is no such file`, hint);
  if (size > MAX_TRACE_BYTES) throw new UserError(`${path}: ${size} bytes; at most ${MAX_TRACE_BYTES}`, hint);
  const bytes = readFileSync(path);
  const text = (path.endsWith('.gz') ? gunzipSync(bytes, { maxOutputLength: MAX_TRACE_BYTES }) : bytes).toString();
  const lines = text.split(/\r?\n/).filter((line) => line !== '');
  if (lines.shift() !== 'TIMESTAMP,ContextTokens,GeneratedTokens')
    throw new UserError(`${path}: line 1: other columns`, hint);
  const rows = lines.map((line, i) => {
    const [time = '', prompt, answer] = line.split(',');
    const row = {
      seconds: Date.parse(`${time.replace(' ', 'T')}Z`) / 1000,
      prompt: Number(prompt),
      answer: Number(answer),
    };
    const isRow =
      Number.isFinite(row.seconds) && [row.prompt, row.answer].every((n) => Number.isSafeInteger(n) && n >= 0);
    if (!isRow) throw new UserError(`${path}: line ${i + 2}: expected a time and two numbers of tokens`, hint);
    return row;
  });
  const [first] = rows;
  if (first === undefined) throw new UserError(`${path}: no requests`, hint);
  return rows.map((row) => ({ ...row, seconds: row.seconds - first.seconds }));
}

/** The requests, in the order in which they come. Throws UserError. */
export function planLoad(options: PlanOptions): readonly PlannedRequest[] {
  const { requests, seed, lengths, rate, aborts, longest = Infinity } = options;
  const isTrace = !['public', 'fixed', 'random'].includes(lengths);
  const trace = isTrace ? readTrace(lengths) : undefined;
  if (rate === 'trace' && trace === undefined)
    throw new UserError('--rate trace: the lengths are of no trace', 'give a trace: --lengths FILE');
  const wanted = trace?.slice(0, requests) ?? madeLengths(options);
  const times =
    rate === 'trace' ? trace!.map(({ seconds }) => seconds) : arrivals({ ...options, requests: wanted.length });
  const random = randomOf(seed, 2);
  return wanted.map(({ prompt, answer }, index) => {
    const kept = Math.max(1, Math.min(prompt, prompt + answer > longest ? longest >> 1 : prompt));
    const tokens = Math.max(1, Math.min(answer, longest - kept));
    const isAborted = random() < aborts;
    const after = Math.floor(random() * (tokens + 1));
    return {
      ...{ index, seconds: at(times, index), prompt: kept, answer: tokens },
      ...(isAborted ? { abortAfter: after } : {}),
    };
  });
}

function madeLengths(options: PlanOptions): readonly RequestLengths[] {
  const { requests, seed, lengths, spread, promptTokens, answerTokens, rangeRatio } = options;
  if (lengths === 'public') return requestLengths(requests, spread, seed);
  const random = randomOf(seed, 3);
  const near = (middle: number): number =>
    lengths === 'fixed' ? middle : Math.max(1, Math.round(middle * (1 + rangeRatio * (2 * random() - 1))));
  return Array.from({ length: requests }, () => ({ prompt: near(promptTokens), answer: near(answerTokens) }));
}
