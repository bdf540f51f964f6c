/**
 * Times several things in turn, block after block, so that clocks, heat and neighbours are the same for all of them.
 */
import type { Bucket } from '../../ir/plan.js';
import type { CudaProgram } from '../../runtime/cuda/addon.js';
import { median } from '../median.js';
import { patiently } from './patience.js';
import { sizesOf } from '../../runtime/extents.js';

/**
 * What one call of Contender.time does: `warmup` samples that do not count, then `repeats` that do, each of `perSample`
 * launches.
 */
export interface TimeShape {
  readonly warmup: number;
  readonly repeats: number;
  readonly perSample: number;
}

/**
 * Seconds of one launch, once a sample, of what CudaProgram.time gives. A clock that did not move still measured
 * something.
 */
const secondsOfLaunch = (milliseconds: Float64Array, perSample: number): number[] =>
  Array.from(milliseconds, (ms) => (Math.max(ms, 1e-6) * 1e-3) / perSample);

/** How long launches of a program take; `turn` of them, one after another, count as one. */
export const launchTimes =
  (
    program: CudaProgram,
    launches: readonly number[],
    bucket: Pick<Bucket, 'extents'>,
    { turn = 1, patienceSeconds }: { readonly turn?: number; readonly patienceSeconds?: number | undefined } = {},
  ): Contender['time'] =>
  async ({ warmup, repeats, perSample }) =>
    secondsOfLaunch(
      await patiently(
        program.time({ extents: sizesOf(bucket), launches, warmup, repeats, perSample: perSample * turn }),
        patienceSeconds,
      ),
      perSample,
    );

export interface Contender {
  readonly name: string;
  /** Seconds of one launch, once a sample. */
  readonly time: (shape: TimeShape) => Promise<readonly number[]>;
}

export interface InterleaveOptions {
  /** Times each contender has its turn. */
  readonly rounds: number;
  /** Counted seconds of the device for each contender, all rounds together. */
  readonly seconds: number;
}

/**
 * Samples of a block, as far as its launches go round: the first one, uncounted, takes up whatever the change of
 * contenders costs.
 */
const SAMPLES = 4;
const MOST_PER_SAMPLE = 1000;
const FIRST: TimeShape = { warmup: 1, repeats: 3, perSample: 1 };
const MOST_SAMPLES = 10_000;
/** Of sustain; even: to and fro. */
const LEAST_ROUNDS = 6;
/** Seconds: of half of them the card's power control needs no more to answer. */
const LONGEST_BLOCK = 0.12;
/** Seconds of load after which it looks whether it was aborted. */
const LONGEST_WARM = 1;

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The shape of a block that takes about `seconds` at `estimate` a launch; at least one launch counts. */
export function blockShape(seconds: number, estimate: number): TimeShape {
  const launches = Math.max(1, Math.round(seconds / Math.max(estimate, 1e-9)));
  const repeats = Math.min(SAMPLES, launches);
  return { warmup: 1, repeats, perSample: Math.min(MOST_PER_SAMPLE, Math.ceil(launches / repeats)) };
}

/** seconds[contender][round] of one launch: A B C, A B C, … All are asked once before, to size their blocks. */
export async function interleave(
  contenders: readonly Contender[],
  { rounds, seconds }: InterleaveOptions,
): Promise<readonly (readonly number[])[]> {
  const shapes: TimeShape[] = [];
  for (const contender of contenders) shapes.push(blockShape(seconds / rounds, median(await contender.time(FIRST))));
  const found = contenders.map((): number[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, contender] of contenders.entries()) found[i]!.push(mean(await contender.time(shapes[i]!)));
  }
  return found;
}

export interface SustainOptions {
  /** Of all contenders together. */
  readonly seconds: number;
  /** Share of them that is load by the first contender before anything counts. */
  readonly settling: number;
  /** After every round. */
  readonly onRound?: (() => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * seconds[contender][round] of a launch that each keeps up, without a pause: blocks in turn, to and fro, so that nobody
 * always follows the same neighbour; of each block the first half does not count. A card that comes from rest swings
 * between its clocks for seconds: an H100 at its power limit by a tenth, once a second, for about five. Undefined where
 * it was aborted.
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
  const block = Math.min(LONGEST_BLOCK, rest / LEAST_ROUNDS);
  const rounds = Math.max(LEAST_ROUNDS, 2 * Math.floor(rest / block / 2));
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
      found[i]!.push(mean(await contenders[i]!.time(shapes[i]!)));
    }
    onRound?.();
  }
  return found;
}

/** Launches for about `seconds`: the card reaches the clock that it holds under load. */
export async function warmUp(contender: Contender, seconds: number): Promise<void> {
  const estimate = median(await contender.time(FIRST));
  const { perSample } = blockShape(0.02, estimate);
  await contender.time({
    warmup: 0,
    repeats: Math.max(1, Math.min(MOST_SAMPLES, Math.ceil(seconds / (estimate * perSample)))),
    perSample,
  });
}

/**
 * How many times as long `other` takes as `ours`: above 1 where ours is faster. Median over rounds of each round's
 * quotient, whose two sides stood next to each other.
 */
export const ratioOverRounds = (ours: readonly number[], other: readonly number[]): number =>
  median(ours.map((seconds, i) => (other[i] ?? NaN) / seconds));

/** Sums round by round. */
export const sumOverRounds = (all: readonly (readonly number[])[]): readonly number[] =>
  (all[0] ?? []).map((_, i) => all.reduce((sum, seconds) => sum + (seconds[i] ?? NaN), 0));
