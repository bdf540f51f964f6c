/** Requests of all kinds, made up: prompts with common beginnings, filters, draws, rows. */
import type { SamplingOptions } from '../../engine/options.js';
import { pick, type Random } from '../fuzz/mutate.js';
import type { Asked } from './churn.js';
import { type MadeUpGuide, madeUpGuide } from './guides.js';

export interface RandomRequestsOptions {
  readonly models: readonly string[];
  readonly count: number;
  readonly vocab: number;
  /** Most tokens of a prompt and what follows it. */
  readonly longest: number;
  /** Guides of some of them are added here. */
  readonly guides?: MadeUpGuide[];
}

export function randomRequests(random: Random, options: RandomRequestsOptions): readonly Asked[] {
  const { models, count, vocab, longest, guides } = options;
  const tokens = (most: number): number[] =>
    Array.from({ length: 1 + Math.floor(random() * most) }, () => Math.floor(random() * vocab));
  const stems = Array.from({ length: 4 }, () => tokens(longest / 2));
  const sampling = (): SamplingOptions => {
    if (random() < 0.4) return {};
    const drawn: SamplingOptions = { temperature: 0.5 + random(), seed: Math.floor(random() * 5) };
    if (random() < 0.6) return drawn;
    return {
      ...drawn,
      ...(random() < 0.5 ? { topK: 5, topP: 0.9 } : {}),
      ...(random() < 0.5 ? { repetitionPenalty: 1.25, presencePenalty: 0.5 } : {}),
      ...(random() < 0.5 ? { logitBias: [[Math.floor(random() * vocab), 2]] } : {}),
      ...(random() < 0.5 ? { topLogProbs: 3 } : {}),
    };
  };
  const guide = (): MadeUpGuide => {
    const [seed, wait, end] = [Math.floor(random() * 1000), random(), random() < 0.15 ? 4 : Infinity];
    const turns = (): number => (wait < 0.3 ? 0 : Math.floor(random() * 8));
    const made = madeUpGuide({ vocab, seed, turns, fails: (tokens) => tokens.length === end });
    guides?.push(made);
    return made;
  };
  return Array.from({ length: count }, (): Asked => {
    const model = pick(random, models);
    const prompt = random() < 0.6 ? [...pick(random, stems), ...tokens(8)] : tokens(longest / 2);
    if (random() < 0.2) {
      const rows = Array.from({ length: 1 + Math.floor(random() * 4) }, () => ({
        position: Math.floor(random() * prompt.length),
        ...(random() < 0.4 ? { target: Math.floor(random() * vocab) } : {}),
        ...(random() < 0.3 ? { top: 1 + Math.floor(random() * 4) } : {}),
      }));
      return { kind: 'score', model, tokens: prompt, rows };
    }
    return {
      ...{ kind: 'generate', model, prompt },
      n: random() < 0.2 ? 1 + Math.floor(random() * 3) : 1,
      maxNewTokens: 1 + Math.floor(random() * 12),
      sampling: sampling(),
      ...(guides !== undefined && random() < 0.3 ? { guide: guide() } : {}),
      ...(random() < 0.3 ? { stopTokens: new Set(tokens(6)), minNewTokens: Math.floor(random() * 3) } : {}),
    };
  });
}
