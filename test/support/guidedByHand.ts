/** What masking by hand gives: the likeliest, or the drawn, of the tokens that a guide allows, by scores of each. */
import type { Engine } from '../../engine/engine.js';
import { resolveSampling } from '../../engine/options.js';
import type { GenerateRequest } from '../../engine/request.js';
import { isAllowed } from '../../ir/filters.js';
import { gumbel, noiseKey } from '../../ir/gumbel.js';
import type { MadeUpGuide } from './guides.js';

/**
 * The token that comes at each place of a guided text, of its scores at that place, in float64. No filter but a
 * temperature is known, and masks allow at most 32 tokens, as many as a place may have scores of.
 */
export async function chosenByHand(
  engine: Engine,
  { prompt, sampling = {}, sample }: GenerateRequest,
  guide: MadeUpGuide,
  tokens: readonly number[],
): Promise<readonly number[]> {
  const vocab = guide.maskAfter([]).length * 32;
  const allowed = tokens.map((_, at) => {
    const mask = guide.maskAfter(tokens.slice(0, at));
    return Array.from({ length: vocab }, (_each, token) => token).filter((token) => isAllowed(mask, token));
  });
  const rows = allowed.flatMap((targets, at) =>
    targets.map((target) => ({ position: prompt.length + at - 1, target })),
  );
  const scores = await engine.submit({ kind: 'score', tokens: [...prompt, ...tokens], rows }).result();
  const { temperature, seed } = resolveSampling(sampling, sample);
  let next = 0;
  return allowed.map((targets, at) => {
    const scored = targets.map((token) => {
      const logProb = scores[next++]!.logProb!;
      if (temperature === 0) return { token, score: logProb };
      return { token, score: logProb / temperature + gumbel(noiseKey(seed, prompt.length + at - 1), token) };
    });
    return scored.reduce((best, each) => (each.score > best.score ? each : best)).token;
  });
}
