/** Soft caps of attention scores and of logits. */

/** cap·tanh(x / cap): nearly x near 0, and never past ±cap. Without a cap, x. */
export const softCap = (x: number, cap: number | undefined): number =>
  cap === undefined ? x : cap * Math.tanh(x / cap);
