/**
 * What a step is drawn with. Its seed depends on the search's seed, the text of the problem, the iteration and the
 * candidate alone, so that neither other problems, nor their number, nor the order of work changes a draw.
 *
 * The candidate's number is (place of the parent in the list of the iteration before) × n + (which child of it). The
 * first iteration has one parent, at place 0. It is known before the parent's score is. Where several steps are drawn
 * between two scores, the path keeps the number of the first of them.
 */
import { createHash } from 'node:crypto';

export const candidateOf = (parentPlace: number, child: number, n: number): number => parentPlace * n + child;

/** 53 bits: a whole number that is exact as a double. */
export function drawSeed(seed: number, problem: string, iteration: number, candidate: number): number {
  const digest = createHash('sha256').update(`${seed}\n${iteration}\n${candidate}\n${problem}`).digest();
  return digest.readUIntBE(0, 6) * 32 + (digest[6]! >> 3);
}
