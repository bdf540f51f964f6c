/**
 * What a step of a model takes by the tokens in it, prompts and texts together: points as the tuner or a run measures
 * them, in ascending order, with straight lines between them and beyond the last.
 */
export interface CallTimes {
  readonly points: readonly { readonly tokens: number; readonly ms: number }[];
}

export function stepMs({ points }: CallTimes, tokens: number): number {
  const [first] = points;
  if (first === undefined) throw new RangeError('a table of call times needs a point');
  if (points.length === 1 || tokens <= first.tokens) return first.ms;
  let at = 1;
  while (at < points.length - 1 && points[at]!.tokens < tokens) at++;
  const [low, high] = [points[at - 1]!, points[at]!];
  return low.ms + ((high.ms - low.ms) * (tokens - low.tokens)) / (high.tokens - low.tokens);
}

/** 8B in bf16 on one H200: decode steps as `npm run bench:gpu` measures them, prompts at 38,000 tokens a second. */
export const H200_8B: CallTimes = {
  points: [
    { tokens: 1, ms: 5.2 },
    { tokens: 16, ms: 5.8 },
    { tokens: 64, ms: 7.4 },
    { tokens: 128, ms: 8.9 },
    { tokens: 512, ms: 17 },
    { tokens: 2048, ms: 55 },
    { tokens: 8192, ms: 215 },
  ],
};
