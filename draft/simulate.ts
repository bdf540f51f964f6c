/**
 * Replays finished texts. A draft is accepted where it is what came, so tokens a call, rows and acceptance of a drafter
 * are those of an engine that had written these texts, and no model is needed to compare drafters.
 */
import { type Draw, noiseKey } from '../ir/gumbel.js';
import { type Drafter, type DraftState, type DraftText, usableDraft } from './drafter.js';
import { MAX_DRAFTS } from './limits.js';

export interface FinishedText {
  readonly prompt: readonly number[];
  readonly output: readonly number[];
  /** What it was drawn with. Default: most likely tokens were taken. */
  readonly sampling?: { readonly temperature: number; readonly seed: bigint };
}

export interface ReplayOptions {
  /** Most drafts of a step. */
  readonly tokens?: number;
  /** Texts that are written side by side, a step of each in turn; another begins where one ends. */
  readonly beside?: number;
}

export interface Replay {
  readonly texts: number;
  /** Tokens of outputs; the first of each comes with its prompt. */
  readonly tokens: number;
  /** Calls that continue a text. */
  readonly calls: number;
  /** Calls that had drafts. */
  readonly rounds: number;
  /** By depth, from 1: drafts, and how many of them were what came. */
  readonly drafted: readonly number[];
  readonly accepted: readonly number[];
  /** Calls by the number of their drafts that were accepted, from 0. */
  readonly runs: readonly number[];
  /** By tenths of the probability that a drafter gave a draft whose parent was right: drafts, those that were right. */
  readonly expected: readonly { readonly drafts: number; readonly right: number; readonly chance: number }[];
}

/** Tokens that a text gets from a call, in the mean. */
export const tokensOfCall = ({ tokens, texts, calls }: Replay): number => (calls === 0 ? 1 : (tokens - texts) / calls);

/** Rows that a call computes of a text: its last token and its drafts. */
export const rowsOfCall = ({ drafted, calls }: Replay): number =>
  calls === 0 ? 1 : 1 + drafted.reduce((sum, count) => sum + count, 0) / calls;

const TENTHS = 10;

class Counts {
  texts = 0;
  tokens = 0;
  calls = 0;
  rounds = 0;
  readonly drafted: number[] = [];
  readonly accepted: number[] = [];
  readonly runs: number[] = [];
  readonly expected = Array.from({ length: TENTHS }, () => ({ drafts: 0, right: 0, chance: 0 }));
}

const more = (counts: number[], at: number): void => {
  while (counts.length <= at) counts.push(0);
  counts[at]!++;
};

/** A text on its way. */
class Writing {
  private readonly finished: FinishedText;
  private readonly most: number;
  private readonly counts: Counts;
  private readonly text: DraftText & { readonly tokens: number[] };
  private readonly state: DraftState;
  private done = 0;

  constructor(finished: FinishedText, drafter: Drafter, most: number, counts: Counts) {
    const { prompt, output, sampling } = finished;
    this.finished = finished;
    this.most = most;
    this.counts = counts;
    const drawAt = (at: number): Draw | undefined =>
      sampling === undefined || sampling.temperature === 0
        ? undefined
        : { inverseTemperature: 1 / sampling.temperature, ...noiseKey(sampling.seed, at - 1) };
    this.text = { tokens: [...prompt], promptLength: prompt.length, drawAt };
    this.state = drafter.begin(this.text);
    counts.texts++;
    counts.tokens += output.length;
    this.take(1);
  }

  /** Returns whether the text goes on. */
  step(): boolean {
    const { counts } = this;
    const { output } = this.finished;
    if (this.done === output.length) {
      this.state.end?.(this.text);
      return false;
    }
    const proposed = this.state.propose(this.text, this.most);
    const { tokens, parents, chances } = usableDraft(proposed, this.most);
    counts.calls++;
    if (tokens.length > 0) counts.rounds++;
    const depths: number[] = [];
    const isRight: boolean[] = [];
    let accepted = 0;
    for (const [node, token] of tokens.entries()) {
      const parent = parents?.[node] ?? node - 1;
      const depth = parent < 0 ? 0 : depths[parent]! + 1;
      const isReached = parent < 0 || isRight[parent]!;
      depths.push(depth);
      isRight.push(isReached && token === output[this.done + depth]);
      more(counts.drafted, depth);
      const chance = chances?.[node];
      if (isReached && chance !== undefined) {
        const tenth = counts.expected[Math.min(TENTHS - 1, Math.floor(chance * TENTHS))]!;
        tenth.drafts++;
        tenth.chance += chance;
        tenth.right += isRight[node]! ? 1 : 0;
      }
      // Two children with the same token are the same path: it is counted once.
      if (!isRight[node]! || depth < accepted) continue;
      accepted = depth + 1;
      more(counts.accepted, depth);
    }
    more(counts.runs, accepted);
    this.take(accepted + 1);
    return true;
  }

  private take(count: number): void {
    const { output } = this.finished;
    const until = Math.min(output.length, this.done + count);
    for (; this.done < until; this.done++) this.text.tokens.push(output[this.done]!);
  }
}

/** Replays texts in their order. Equal inputs give equal counts. */
export function replay(texts: readonly FinishedText[], drafter: Drafter, options: ReplayOptions = {}): Replay {
  const { tokens: most = MAX_DRAFTS, beside = 1 } = options;
  const counts = new Counts();
  const waiting = texts.filter(({ output }) => output.length > 0).values();
  const running: Writing[] = [];
  for (;;) {
    while (running.length < beside) {
      const { value, done } = waiting.next();
      if (done === true) break;
      running.push(new Writing(value, drafter, most, counts));
    }
    if (running.length === 0) return counts;
    for (let i = running.length - 1; i >= 0; i--) if (!running[i]!.step()) running.splice(i, 1);
  }
}
