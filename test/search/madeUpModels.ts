/**
 * Made-up models for properties of searches: steps and scores follow from a hash of what they are asked, and come after
 * random delays. Scores tie often; steps end in every way; some asks fail.
 */
import { createHash } from 'node:crypto';
import { type Path, type Step, type StepEnd, stepsOf } from '../../search/path.js';
import { PathFailed, type PathJudge, type StepAsk, type StepWriter } from '../../search/ports.js';

/** From 0 to 1, by the text. */
export function share(text: string): number {
  return createHash('sha256').update(text).digest().readUInt32BE(0) / 2 ** 32;
}

/** What the models do, as shares of asks. */
export interface Habits {
  readonly ends?: number;
  readonly cut?: number;
  readonly writeFails?: number;
  readonly scoreFails?: number;
  readonly nan?: number;
  /** So many different scores. */
  readonly levels?: number;
}

export type Delay = () => Promise<void>;

/** Random turns of the event loop, by a generator of their own. */
export function delays(seed: number, most = 5): Delay {
  let state = seed;
  return async () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const turns = (state >>> 16) % (most + 1);
    for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
  };
}

export const atOnce: Delay = () => Promise.resolve();

const textsOf = (path: Path, ahead: readonly Step[]): string =>
  [...stepsOf(path), ...ahead].map(({ text }) => text).join('|');

export class MadeUpWriter implements StepWriter {
  readonly asks: StepAsk[] = [];
  live = 0;
  aborted = 0;
  private readonly habits: Habits;
  private readonly delay: Delay;

  constructor(habits: Habits = {}, delay: Delay = atOnce) {
    this.habits = habits;
    this.delay = delay;
  }

  async write(ask: StepAsk): Promise<Step> {
    this.asks.push(ask);
    this.live++;
    try {
      await this.delay();
      ask.signal.throwIfAborted();
      return this.stepOf(ask);
    } catch (error) {
      if (ask.signal.aborted) this.aborted++;
      throw error;
    } finally {
      this.live--;
    }
  }

  private stepOf({ path, ahead, seed, toEnd }: StepAsk): Step {
    const { ends = 0.15, cut = 0, writeFails = 0 } = this.habits;
    const key = `${path.problem.problem}/${textsOf(path, ahead)}/${seed ?? 'greedy'}/${toEnd}`;
    if (share(`fails ${key}`) < writeFails) throw new PathFailed('a prompt beyond the context');
    const r = share(`ends ${key}`);
    const end: StepEnd = r < ends / 2 ? 'eos' : r < ends ? 'other-eos' : r < ends + cut ? 'length' : 'step';
    const word = Math.floor(share(`word ${key}`) * 50);
    const answer = Math.floor(share(`answer ${key}`) * 3);
    const isLast = toEnd || end !== 'step';
    const text = isLast ? `so \\boxed{${answer}}.` : `we see ${word}.\n\n`;
    const tokens = Array.from({ length: 1 + (word % 5) }, (_, i) => word + i);
    return { text, tokens, end: toEnd && end === 'step' ? 'eos' : end };
  }
}

export class MadeUpJudge implements PathJudge {
  readonly kind: PathJudge['kind'] = 'process';
  live = 0;
  private readonly habits: Habits;
  private readonly delay: Delay;

  constructor(habits: Habits = {}, delay: Delay = atOnce) {
    this.habits = habits;
    this.delay = delay;
  }

  async score(path: Path, ahead: readonly Step[], signal: AbortSignal): Promise<readonly number[]> {
    const { scoreFails = 0, nan = 0, levels = 20 } = this.habits;
    this.live++;
    try {
      await this.delay();
      signal.throwIfAborted();
      const { problem } = path.problem;
      if (share(`unscored ${problem}/${textsOf(path, ahead)}`) < scoreFails)
        throw new PathFailed('a solution beyond the context');
      const texts = [...stepsOf(path), ...ahead].map(({ text }) => text);
      return texts.map((_, i) => {
        const beginning = `${problem}/${texts.slice(0, i + 1).join('|')}`;
        if (share(`nan ${beginning}`) < nan) return NaN;
        return Math.floor(share(`score ${beginning}`) * levels) / Math.max(1, levels - 1);
      });
    } finally {
      this.live--;
    }
  }
}
