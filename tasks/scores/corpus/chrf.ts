/** chrF of a corpus, as sacrebleu has it by default: runs of up to six characters without spaces, beta 2. */
import { common, counted } from '../../../python/counts.js';
import { codePoints, splitAtSpace } from '../../../python/text.js';

const ORDER = 6;
/** How much more recall counts than precision, squared. */
const WEIGHT = 4;

const runs = (letters: readonly string[], n: number): string[] =>
  Array.from({ length: Math.max(0, letters.length - n + 1) }, (_, i) => letters.slice(i, i + n).join(''));

/** For each length: runs of the text, of the reference, and those that match. */
export function chrfCounts(text: string, reference: string): readonly number[] {
  const [own, other] = [text, reference].map((each) => codePoints(splitAtSpace(each).join('')));
  return Array.from({ length: ORDER }, (_, i) => {
    const [left, right] = [runs(own!, i + 1), runs(other!, i + 1)];
    return [right.length > 0 ? left.length : 0, right.length, common(counted(left), counted(right))];
  }).flat();
}

/** 0 to 100. `counts`: the sums over all texts. */
export function chrfOf(counts: readonly number[]): number {
  let precision = 0,
    recall = 0,
    orders = 0;
  for (let i = 0; i < ORDER; i++) {
    const [own = 0, other = 0, both = 0] = counts.slice(3 * i, 3 * i + 3);
    if (own === 0 || other === 0) continue;
    precision += both / own;
    recall += both / other;
    orders++;
  }
  if (orders === 0 || precision + recall === 0) return 0;
  const [p, r] = [precision / orders, recall / orders];
  return (100 * (1 + WEIGHT) * p * r) / (WEIGHT * p + r);
}
