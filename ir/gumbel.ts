/**
 * Noise for drawing tokens. The largest of z[j] + g[j] over j, with g from Gumbel's distribution, is a draw from
 * softmax(z) (Gumbel-max; Maddison, Tarlow & Minka, arXiv:1411.0030). The noise of a token is a function of its row's
 * key and the token's number and of nothing else, so that a draw depends on no other row, batch or device. Bits are the
 * same on every device; logarithms may differ in their last bits.
 */

const MULTIPLIER = 0x9e3779b9;
const ADDEND = 0x7f4a7c15;

/** Mixes the 32 bits of x, one to one (Wellons, "lowbias32"). */
function mix(x: number): number {
  let bits = x ^ (x >>> 16);
  bits = Math.imul(bits, 0x7feb352d);
  bits ^= bits >>> 15;
  bits = Math.imul(bits, 0x846ca68b);
  return bits ^ (bits >>> 16);
}

/** 32 bits of a and b, as an i32. For a fixed b it is one to one in a. */
export const hash32 = (a: number, b: number): number => mix(a ^ (Math.imul(b, MULTIPLIER) + ADDEND)) | 0;

/** The two halves of a row's key: 64 bits. */
export interface NoiseKey {
  readonly low: number;
  readonly high: number;
}

/** What a token is drawn with: an inverse temperature of 0 takes the most likely one. */
export interface Draw extends NoiseKey {
  readonly inverseTemperature: number;
}

/** The key for the token that follows `position` under a seed of 64 bits. */
export function noiseKey(seed: bigint, position: number): NoiseKey {
  const [low, high] = [Number(BigInt.asIntN(32, seed)), Number(BigInt.asIntN(32, seed >> 32n))];
  return { low: hash32(hash32(position, low), high), high: hash32(hash32(high, position), low) };
}

/** Uniform in (0, 1) from 31 bits. */
export const uniform = ({ low, high }: NoiseKey, token: number): number =>
  ((hash32(hash32(token, low), high) >>> 1) + 0.5) * 2 ** -31;

/** Gumbel's noise −log(−log(1 − u)). Below 1/64, where 1 − u would lose bits of u, −log(1 − u) is u + u²/2 + u³/3. */
export function gumbel(key: NoiseKey, token: number): number {
  const u = uniform(key, token);
  return -Math.log(u < 1 / 64 ? u * (1 + u * (1 / 2 + u * (1 / 3))) : -Math.log(1 - u));
}

/**
 * What is compared to draw a token: z/temperature + noise. An inverse temperature of 0 stands for the limit of low
 * temperatures, the largest z.
 */
export const drawScore = (z: number, inverseTemperature: number, key: NoiseKey, token: number): number =>
  inverseTemperature === 0 ? z : z * inverseTemperature + gumbel(key, token);
