/**
 * Times launches on a device: in bursts, in turn with other contenders, scaled to the device's speed, and with a limit
 * on how long it may take to answer. A kernel that never ends cannot be stopped from here: whoever waits for it gives
 * up, and nothing that it uses is released.
 */
import { at } from '../../system/at.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { UserError } from '../../errors.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { isCudaError } from '../../runtime/cuda/addon.js';
import type { CudaProgram } from '../../runtime/cuda/native.js';
import type { MeasureRequest } from '../measurement.js';
import { median } from '../records.js';

/**
 * One call of Contender.time: `warmup` samples that are not counted, then `repeats` that are, each of `perSample`
 * launches.
 */
export interface TimeShape {
  readonly warmup: number;
  readonly repeats: number;
  readonly perSample: number;
}

/**
 * Seconds per launch, one value per sample, from CudaProgram.time's milliseconds. A zero reading becomes a small time.
 */
const secondsOfLaunch = (milliseconds: Float64Array, perSample: number): number[] =>
  Array.from(milliseconds, (ms) => (Math.max(ms, 1e-6) * 1e-3) / perSample);

/** How long launches of a program take in a call of such extents; `turn` consecutive launches count as one. */
export const launchTimes =
  (
    program: CudaProgram,
    launches: readonly number[],
    sizes: readonly number[],
    { turn = 1, patienceSeconds }: { readonly turn?: number; readonly patienceSeconds?: number | undefined } = {},
  ): Contender['time'] =>
  async ({ warmup, repeats, perSample }) =>
    secondsOfLaunch(
      await patiently(
        program.time({ extents: sizes, launches, warmup, repeats, perSample: perSample * turn }),
        patienceSeconds,
      ),
      perSample,
    );

export interface Contender {
  readonly name: string;
  /** Seconds per launch, one value per sample. */
  readonly time: (shape: TimeShape) => Promise<readonly number[]>;
}

export interface InterleaveOptions {
  /** Number of turns of each contender. */
  readonly rounds: number;
  /** Counted device seconds for each contender, all rounds together. */
  readonly seconds: number;
}

/**
 * Samples per block, if it has enough launches. The first sample is not counted: it absorbs the cost of changing
 * contenders.
 */
const SAMPLES = 4;
const MAX_PER_BLOCK_SAMPLE = 1000;
const FIRST: TimeShape = { warmup: 1, repeats: 3, perSample: 1 };
const MAX_WARM_SAMPLES = 10_000;
/** Fewest rounds of sustain. Even, because their order alternates. */
const MIN_ROUNDS = 6;
/** Longest block in seconds. The card's power control responds within half of it. */
const LONGEST_BLOCK = 0.12;
/** Seconds of load between checks for an abort. */
const LONGEST_WARM = 1;

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The shape of a block that takes about `seconds` at `estimate` seconds per launch. Counts at least one launch. */
export function blockShape(seconds: number, estimate: number): TimeShape {
  const launches = Math.max(1, Math.round(seconds / Math.max(estimate, 1e-9)));
  const repeats = Math.min(SAMPLES, launches);
  return { warmup: 1, repeats, perSample: Math.min(MAX_PER_BLOCK_SAMPLE, Math.ceil(launches / repeats)) };
}

/** seconds[contender][round] per launch, in the order A B C, A B C, … A first call to each sizes its blocks. */
export async function interleave(
  contenders: readonly Contender[],
  { rounds, seconds }: InterleaveOptions,
): Promise<readonly (readonly number[])[]> {
  const shapes: TimeShape[] = [];
  for (const contender of contenders) shapes.push(blockShape(seconds / rounds, median(await contender.time(FIRST))));
  const found = contenders.map((): number[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, contender] of contenders.entries()) at(found, i).push(mean(await contender.time(at(shapes, i))));
  }
  return found;
}

export interface SustainOptions {
  /** Device seconds of all contenders together. */
  readonly seconds: number;
  /** Share of them spent on load by the first contender before counting starts. */
  readonly settling: number;
  /** After every round. */
  readonly onRound?: (() => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * seconds[contender][round] per launch at a sustained rate, without pauses. The order of contenders alternates, so that
 * none always follows the same neighbour. The first half of each block is not counted. A card that was idle oscillates
 * between clocks for seconds: an H100 at its power limit varies by 10 %, once per second, for about five seconds.
 * Undefined if the work was aborted.
 */
export async function sustain(
  contenders: readonly Contender[],
  { seconds, settling, onRound, signal }: SustainOptions,
): Promise<readonly (readonly number[])[] | undefined> {
  const [first] = contenders;
  if (first === undefined) return [];
  const isAborted = (): boolean => signal?.aborted === true;
  for (let left = settling * seconds; left > 0 && !isAborted(); left -= LONGEST_WARM)
    await warmUp(first, Math.min(LONGEST_WARM, left));
  const rest = ((1 - settling) * seconds) / contenders.length;
  const block = Math.min(LONGEST_BLOCK, rest / MIN_ROUNDS);
  const rounds = Math.max(MIN_ROUNDS, 2 * Math.floor(rest / block / 2));
  const shapes: TimeShape[] = [];
  for (const contender of contenders) {
    const { repeats, perSample } = blockShape(block / 2, median(await contender.time(FIRST)));
    shapes.push({ warmup: repeats, repeats, perSample });
  }
  const found = contenders.map((): number[] => []);
  const order = [...contenders.keys()];
  for (let round = 0; round < rounds; round++) {
    for (const i of round % 2 === 0 ? order : [...order].reverse()) {
      if (isAborted()) return undefined;
      at(found, i).push(mean(await at(contenders, i).time(at(shapes, i))));
    }
    onRound?.();
  }
  return found;
}

/** Launches for about `seconds`, until the card reaches its sustained clock. */
export async function warmUp(contender: Contender, seconds: number): Promise<void> {
  const estimate = median(await contender.time(FIRST));
  const { perSample } = blockShape(0.02, estimate);
  await contender.time({
    warmup: 0,
    repeats: Math.max(1, Math.min(MAX_WARM_SAMPLES, Math.ceil(seconds / (estimate * perSample)))),
    perSample,
  });
}

/**
 * `other` divided by `ours`: above 1 where ours is faster. The median over rounds of each round's quotient, whose two
 * times were measured next to each other.
 */
export const ratioOverRounds = (ours: readonly number[], other: readonly number[]): number =>
  median(ours.map((seconds, i) => (other[i] ?? NaN) / seconds));

/** Sums of each round. */
export const sumOverRounds = (all: readonly (readonly number[])[]): readonly number[] =>
  (all[0] ?? []).map((_, i) => all.reduce((sum, seconds) => sum + (seconds[i] ?? NaN), 0));

const FIRST_SAMPLES = 3;
const MIN_SAMPLES = 7;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** Seconds of launches before counting starts: clocks settle and the queue fills. */
const WARM_SECONDS = 0.01;
const MAX_WARM = 64;
/** Shorter launches are grouped into one sample of this many seconds: events resolve half a microsecond. */
const SHORTEST_SAMPLE = 1e-4;
const MAX_PER_SAMPLE = 32;
/** After the first samples, a candidate is abandoned if it is this many times slower than the best. */
const HOPELESS = 1.3;

export const wasGivenUp = (seconds: readonly number[]): boolean => seconds.length === FIRST_SAMPLES;

/** Seconds per launch, one value per sample. Takes few samples if a launch takes far more than `best` seconds. */
export async function sample(time: Contender['time'], best: number): Promise<readonly number[]> {
  const first = await time({ warmup: 1, repeats: FIRST_SAMPLES, perSample: 1 });
  const estimate = median(first);
  if (estimate > HOPELESS * best) return first;
  const perSample = Math.max(1, Math.min(MAX_PER_SAMPLE, Math.ceil(SHORTEST_SAMPLE / estimate)));
  const repeats = Math.max(MIN_SAMPLES, Math.min(MAX_SAMPLES, Math.ceil(SAMPLE_SECONDS / (estimate * perSample))));
  return time({ warmup: Math.min(MAX_WARM, Math.ceil(WARM_SECONDS / (estimate * perSample))), repeats, perSample });
}

/** Seconds of a burst of the default; undefined if it did not compile. */
type DefaultNow = () => Promise<number | undefined>;

/**
 * Scales the seconds of one candidate after another. The default runs again after each of them. Seconds are unscaled if
 * the default fails or the candidate was abandoned.
 */
export function paceOf(
  request: MeasureRequest<CudaSchedule>,
  defaultNow: DefaultNow,
): (schedule: CudaSchedule, seconds: readonly number[]) => Promise<readonly number[]> {
  const own = cudaScheduling.key(request.reference);
  let nominal = request.referenceSeconds;
  let before: number | undefined;
  return async (schedule, seconds) => {
    const taken = median(seconds);
    if (cudaScheduling.key(schedule) === own) {
      nominal ??= taken;
      before = taken;
      return seconds;
    }
    if (nominal === undefined || wasGivenUp(seconds)) return seconds;
    const after = await defaultNow();
    if (after === undefined) return seconds;
    const factor = (2 * nominal) / ((before ?? after) + after);
    before = after;
    return seconds.map((each) => each * factor);
  };
}

/** Seconds from `time`, scaled by the default's before and after it. `nominal`: the default's when it was measured. */
export async function timedBetween(
  nominal: number,
  defaultNow: DefaultNow,
  time: () => Promise<readonly number[]>,
): Promise<readonly number[]> {
  const before = await defaultNow();
  const seconds = await time();
  const after = await defaultNow();
  return before === undefined || after === undefined
    ? seconds
    : seconds.map((each) => (each * 2 * nominal) / (before + after));
}

/** Longest wait for the device to answer, in seconds. */
const PATIENCE_SECONDS = 60;

export class Hung extends Error {
  override readonly name = 'Hung';
}

/** Whether work ended because the device does not answer. None of its memory can be released. */
export const isDeviceHung = (error: unknown): boolean =>
  error instanceof Hung || (error instanceof Error && error.cause instanceof Hung);

/** Rejects with Hung if `work` takes longer. */
export async function patiently<T>(work: Promise<T>, seconds = PATIENCE_SECONDS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const end = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Hung(`the device has not answered for ${seconds} s`));
    }, seconds * 1000);
  });
  try {
    return await Promise.race([work, end]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether the device cannot be used any more after `error`. */
export const endsDevice = (error: unknown): boolean =>
  error instanceof Hung || (isCudaError(error) && error.isContextDead);

const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

/** The error for a candidate that ended the device. */
export const lostToCandidate = (
  request: MeasureRequest<CudaSchedule>,
  schedule: CudaSchedule,
  cause: unknown,
): UserError =>
  new UserError(
    `${request.kernel.path} with ${cudaScheduling.key(schedule)} made the device unusable: ${reasonOf(cause)}`,
    'run the same tune command again: it continues without that schedule',
    { cause },
  );

/** The error for a final that ended the device. */
export const lostInFinal = (kernels: readonly Kernel[], bucket: Bucket, cause: unknown): UserError =>
  new UserError(
    `A final of ${kernels.length} kernels at ${tokensIn(bucket)} tokens made the device unusable: ${reasonOf(cause)}`,
    'run the same tune command again: measurements so far are kept',
    { cause },
  );

/** The text's start, short enough for a record. */
export const shorten = (text: string): string => text.trim().slice(0, 400) || 'it failed without a message';
