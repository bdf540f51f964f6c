/**
 * How much memory the problems of a search take, now and in iterations to come. It is an estimate: it decides how many
 * problems run at once and how long they take, and no result depends on it.
 */
import type { MemoryRoom } from '../engine/replicaMemory.js';
import { PAGE_TOKENS } from '../engine/limits.js';
import type { SearchOptions } from './options.js';
import type { Path, Problem, Step } from './path.js';

/** Characters of a token of a problem, at least; tokens of what is written around it, and around a judged step. */
const TOKEN_CHARACTERS = 3;
const TEMPLATE_TOKENS = 128;
const TURN_TOKENS = 12;
/** Tokens of a whole sample, and of a step, before any was drawn. */
const SAMPLE_TOKENS = 512;
const STEP_TOKENS = 64;
/** How much the latest of each counts beside those before. */
const NOVELTY = 1 / 64;
/** Memory that is planned for; the rest is for pages that are not full, and for errors of the estimate. */
const PLANNED = 0.95;

/** Tokens that have keys and values in both models. */
export interface HeldTokens {
  readonly writer: number;
  readonly judge: number;
}

/** What both models have room for on the devices of a lane. */
export interface LaneRoom {
  readonly writer: MemoryRoom;
  readonly judge: MemoryRoom | undefined;
}

/** Whether the models have room for so many tokens, side by side where they share memory. */
export function hasRoom({ writer, judge }: LaneRoom, held: HeldTokens): boolean {
  if (held.writer > PLANNED * writer.tokens) return false;
  if (judge === undefined) return true;
  if (held.judge > PLANNED * judge.tokens) return false;
  const { deviceBytes } = writer;
  if (deviceBytes === undefined || judge.deviceBytes === undefined) return true;
  return held.writer * writer.tokenBytes + held.judge * judge.tokenBytes <= PLANNED * deviceBytes;
}

/** What problems of a search have in common, learned from those that ran. */
export class SearchHabits {
  /** Tokens of a step; and those by which the paths that go on grow in an iteration. */
  stepTokens: number;
  growth: number;
  private readonly n: number;
  private readonly iterations: number;
  /** Iterations that began, and problems that ended. */
  private begun = 0;
  private ended = 0;

  constructor({ method, n = 16, width = 4, iterations = 40, stepTokens }: SearchOptions) {
    const isSampling = method === 'best-of-n' || method === 'weighted' || method === 'majority';
    this.n = n;
    this.iterations = isSampling ? 1 : iterations;
    this.stepTokens = stepTokens ?? (isSampling ? SAMPLE_TOKENS : STEP_TOKENS);
    this.growth = Math.ceil(n / width) * this.stepTokens;
  }

  drew(tokens: number): void {
    this.stepTokens += NOVELTY * (tokens - this.stepTokens);
  }

  /** An iteration begins, `number` of its problem, whose paths have `kept` tokens together. */
  began(number: number, kept: number): void {
    this.begun++;
    if (number > 0) this.growth += NOVELTY * (kept / number - this.growth);
  }

  end(): void {
    this.ended++;
  }

  /** Iterations that are left to a problem behind so many: it is as likely to end after each. */
  leftAfter(iteration: number): number {
    const most = Math.max(0, this.iterations - 1 - iteration);
    return this.ended === 0 ? most : Math.min(most, Math.ceil(this.begun / this.ended));
  }

  /** Tokens of an iteration's candidates while they are drawn and judged, with what their last pages leave blank. */
  get candidates(): HeldTokens {
    const { n, stepTokens } = this;
    return {
      writer: n * (stepTokens + PAGE_TOKENS / 2),
      judge: n * (stepTokens + TURN_TOKENS + PAGE_TOKENS / 2),
    };
  }
}

/** What the paths of a problem hold. */
export class ProblemLoad {
  readonly lane: number;
  /** The first has 0. */
  readonly order: number;
  iteration = -1;
  private readonly prompt: number;
  private readonly habits: SearchHabits;
  private readonly steps = new Set<Step>();
  private kept = 0;

  constructor({ problem }: Pick<Problem, 'problem'>, lane: number, order: number, habits: SearchHabits) {
    this.lane = lane;
    this.order = order;
    this.habits = habits;
    this.prompt = TEMPLATE_TOKENS + Math.ceil(problem.length / TOKEN_CHARACTERS);
  }

  /** `path` is extended. Returns whether it is the first of its iteration. */
  extend(path: Path, iteration: number): boolean {
    const isFirst = iteration > this.iteration;
    if (isFirst) {
      if (this.iteration >= 0) this.habits.began(this.iteration, this.kept);
      this.iteration = iteration;
      this.steps.clear();
      this.kept = 0;
    }
    for (let at: Path | undefined = path; at?.step !== undefined && !this.steps.has(at.step); at = at.parent) {
      this.steps.add(at.step);
      this.kept += at.step.tokens.length;
    }
    return isFirst;
  }

  /** What it holds so many iterations from now, if it has not ended. */
  after(iterations: number): HeldTokens {
    const { habits, prompt, kept, steps } = this;
    const { candidates, growth, stepTokens } = habits;
    const writer = prompt + kept + iterations * growth;
    const turns = steps.size + (iterations * growth) / Math.max(1, stepTokens);
    return { writer: writer + candidates.writer, judge: writer + TURN_TOKENS * turns + candidates.judge };
  }

  get left(): number {
    return this.habits.leftAfter(this.iteration);
  }
}

const sum = (held: readonly HeldTokens[]): HeldTokens =>
  held.reduce((all, { writer, judge }) => ({ writer: all.writer + writer, judge: all.judge + judge }), {
    writer: 0,
    judge: 0,
  });

/** What the problems hold now. */
export const heldNow = (loads: readonly ProblemLoad[]): HeldTokens => sum(loads.map((load) => load.after(0)));

/** Whether that fits a lane. */
export const fitsNow = (room: LaneRoom, loads: readonly ProblemLoad[]): boolean => hasRoom(room, heldNow(loads));

/** Whether all that is expected of them fits, at the end of each: it is most just before one ends. */
export const fitsLater = (room: LaneRoom, loads: readonly ProblemLoad[]): boolean =>
  [...new Set(loads.map(({ left }) => left))].every((at) =>
    hasRoom(room, sum(loads.filter(({ left }) => left >= at).map((load) => load.after(at)))),
  );
