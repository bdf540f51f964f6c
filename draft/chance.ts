/**
 * How likely a draft is the token that will be drawn. The token of a place is the one with the largest log p + g, with
 * g the noise of (seed, place, token): noise is known before anything is computed, so a hash says which drafts are
 * worth their rows. Sources: Gumbel-max (Maddison, Tarlow & Minka, arXiv:1411.0030); shared noise (Daliri, Musco &
 * Suresh, arXiv:2408.07978).
 */
import { type Draw, gumbel } from '../ir/gumbel.js';

const isNoisy = (draw: Draw | undefined): draw is Draw => draw !== undefined && draw.inverseTemperature > 0;

/**
 * The probability that `token` is drawn, where it has probability `p` before its noise is looked at: the best of the
 * others is Gumbel's with location log(1 − p). It is `p` in the mean over keys, and `p` where the most likely token is
 * taken (no `draw`, or an inverse temperature of 0).
 */
export function chanceOf(p: number, token: number, draw: Draw | undefined): number {
  if (!(p > 0)) return 0;
  if (p >= 1 || !isNoisy(draw)) return Math.min(p, 1);
  return Math.exp(-((1 - p) / p) * Math.exp(-gumbel(draw, token)));
}

/** A token that may come next, and how likely it is with its noise looked at. */
export interface Candidate {
  readonly token: number;
  readonly chance: number;
}

/**
 * Candidates for one place, best first: by log p + g, or by p where nothing is drawn. One that is before another beats
 * it, so only tokens that are no candidates are left to beat the first. Probabilities are estimates, and the first may
 * lose: the next is then treated alike, and has what those before it leave. Chances add up to 1 at most where `p` do.
 */
export function rankCandidates(
  tokens: readonly number[],
  p: readonly number[],
  draw: Draw | undefined,
): readonly Candidate[] {
  const ranked = tokens.map((token, i) => {
    const own = Math.min(1, Math.max(0, p[i] ?? 0)) || 0;
    const noise = isNoisy(draw) ? gumbel(draw, token) : 0;
    return { token, own, noise, score: Math.log(own) + noise };
  });
  ranked.sort((a, b) => (a.score === b.score ? a.token - b.token : b.score - a.score));
  if (!isNoisy(draw)) return ranked.map(({ token, own }) => ({ token, chance: own }));
  const others = Math.max(0, 1 - ranked.reduce((sum, { own }) => sum + own, 0));
  let left = 1;
  return ranked.map(({ token, own, noise }) => {
    const chance = own === 0 ? 0 : left * Math.exp(-(others / own) * Math.exp(-noise));
    left -= chance;
    return { token, chance };
  });
}

/**
 * How often one draft is accepted that is drawn from `q` with the noise of the target, whose distribution is `p`:
 * Σᵢ 1/Σⱼ max(pⱼ/pᵢ, qⱼ/qᵢ). It lies between (1 − TV)/(1 + TV) and 1 − TV, their total variation. Takes V log V.
 */
export function sharedNoiseAcceptance(p: ArrayLike<number>, q: ArrayLike<number>): number {
  const both = Array.from({ length: p.length }, (_, i) => ({ p: p[i]!, q: q[i]! })).filter((i) => i.p > 0 || i.q > 0);
  // The maximum is that of p where qⱼ/pⱼ ≤ qᵢ/pᵢ, and that of q behind.
  both.sort((a, b) => a.q * b.p - b.q * a.p);
  let below = 0;
  let above = both.reduce((sum, each) => sum + each.q, 0);
  let accepted = 0;
  for (const each of both) {
    below += each.p;
    above = Math.max(0, above - each.q);
    if (each.p > 0 && each.q > 0) accepted += 1 / (below / each.p + above / each.q);
  }
  return accepted;
}
