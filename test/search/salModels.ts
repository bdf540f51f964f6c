/** The made-up language model and process reward model of the goldens of search-and-learn, by their README. */
import { stepsOf, type Path, type Step, type StepEnd } from '../../search/path.js';
import type { PathJudge, StepAsk, StepWriter } from '../../search/ports.js';

export interface Item {
  readonly w: number;
  readonly t: string;
  readonly m?: number;
  readonly end?: 'eos' | 'eos2';
}

export interface MadeUpLlm {
  readonly seed: number;
  readonly stages: readonly (readonly Item[])[];
}

export interface MadeUpPrm {
  readonly seed: number;
  readonly kind: 'uniform' | 'falling' | 'coarse';
  readonly steps: 'drop_empty_last' | 'keep_empty_last';
}

export function h32(text: string): number {
  let h = 2166136261;
  for (const byte of Buffer.from(text)) h = Math.imul(h ^ byte, 16777619);
  h ^= h >>> 16;
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  h ^= h >>> 16;
  return h >>> 0;
}

const STOP = '\n\n';
const bytesOf = (text: string): number => Buffer.byteLength(text);

interface Sample {
  readonly text: string;
  readonly end: StepEnd;
  readonly tokens: number;
}

export function drawSample(
  llm: MadeUpLlm,
  mode: string,
  prompt: { readonly problem: string; readonly text: string },
  maxTokens: number,
  hasStop: boolean,
): Sample {
  const { problem, text } = prompt;
  let out = '';
  for (;;) {
    const depth = (text + out).split(STOP).length - 1;
    const table = llm.stages[Math.min(depth, llm.stages.length - 1)]!;
    const total = table.reduce((sum, { w }) => sum + w, 0);
    const r = h32(`${llm.seed}|${mode}|${problem}\x1f${text}${out}`);
    let passed = 0;
    const item = table.find(({ w }) => (passed += w) > r % total)!;
    out += item.t.replaceAll('@', String(Math.floor(r / total) % (item.m ?? 1000)));
    const at = hasStop ? out.indexOf(STOP) : -1;
    if (at >= 0) {
      out = out.slice(0, at + STOP.length);
      if (bytesOf(out) <= maxTokens) return { text: out, end: 'step', tokens: bytesOf(out) };
    }
    if (bytesOf(out) >= maxTokens)
      return { text: Buffer.from(out).subarray(0, maxTokens).toString(), end: 'length', tokens: maxTokens };
    if (item.end !== undefined)
      return { text: out, end: item.end === 'eos' ? 'eos' : 'other-eos', tokens: bytesOf(out) + 1 };
  }
}

/** Counts equal prompts of a call of search-and-learn's engine: one is as long as an iteration of all its problems. */
export class Calls {
  readonly #seen = new Map<string, number>();

  next(iteration: number, prompt: string): number {
    const key = `${iteration} ${prompt}`;
    const count = this.#seen.get(key) ?? 0;
    this.#seen.set(key, count + 1);
    return count;
  }
}

export class SalWriter implements StepWriter {
  greedySamples = 0;
  readonly llm: MadeUpLlm;
  readonly maxTokens: number;
  readonly calls: Calls;

  constructor(llm: MadeUpLlm, maxTokens: number, calls: Calls) {
    this.llm = llm;
    this.maxTokens = maxTokens;
    this.calls = calls;
  }

  async write({ path, ahead, iteration, seed, toEnd }: StepAsk): Promise<Step> {
    const { problem } = path.problem;
    const isAhead = ahead.length > 0 || (path.depth > iteration && seed === undefined);
    if (isAhead) this.greedySamples++;
    const text = path.text + ahead.map((step) => step.text).join('');
    const mode = seed === undefined ? 'greedy' : `${iteration}.${this.calls.next(iteration, `${problem}\x1f${text}`)}`;
    const sample = drawSample(this.llm, mode, { problem, text }, this.maxTokens, !toEnd);
    return { text: sample.text, tokens: Array.from({ length: sample.tokens }, () => 0), end: sample.end };
  }
}

export class SalJudge implements PathJudge {
  readonly kind = 'process';

  readonly prm: MadeUpPrm;
  readonly #scores = new Map<string, number>();

  constructor(prm: MadeUpPrm) {
    this.prm = prm;
  }

  async score(path: Path, ahead: readonly Step[]): Promise<readonly number[]> {
    const text = [...stepsOf(path), ...ahead].map((step) => step.text).join('');
    const steps = text.split(STOP);
    if (this.prm.steps === 'drop_empty_last' && steps.length > 1 && steps.at(-1) === '') steps.pop();
    return steps.map((_, t) => this.#scoreOf(path.problem.problem, steps.slice(0, t + 1)));
  }

  #scoreOf(problem: string, steps: readonly string[]): number {
    const key = `${problem}\x1f${steps.join(STOP)}`;
    const score = this.#scores.get(key) ?? this.#compute(key, steps.length - 1);
    this.#scores.set(key, score);
    return score;
  }

  #compute(key: string, t: number): number {
    const u = h32(`${this.prm.seed}|prm|${key}`) % 1_000_000;
    switch (this.prm.kind) {
      case 'uniform':
        return u / 1e6;
      case 'falling':
        return (Math.floor(u / 8) + 60000 * Math.max(0, 14 - t)) / 1e6;
      case 'coarse':
        return (Math.floor(u / 200000) * 200000 + 100000) / 1e6;
      default:
        return this.prm.kind satisfies never;
    }
  }
}
