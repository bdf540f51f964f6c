/** BLEU of a corpus, as sacrebleu has it by default: mteval-13a tokens, exponential smoothing, orders up to four. */
import { counted, common, grams } from '../../../python/counts.js';
import { rightStrip, splitAtSpace } from '../../../python/text.js';

const ORDERS = [1, 2, 3, 4];
const MARKS = /([{-~[-` -&(-+:-@/])/g;

function tokensOf(text: string): readonly string[] {
  const joined = rightStrip(text).replaceAll('<skipped>', '').replaceAll('-\n', '').replaceAll('\n', ' ');
  const plain = joined
    .replaceAll('&quot;', '"')
    .replaceAll('&amp;', '&')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>');
  return splitAtSpace(
    ` ${plain} `
      .replace(MARKS, ' $1 ')
      .replace(/([^0-9])([.,])/gu, '$1 $2 ')
      .replace(/([.,])([^0-9])/gu, ' $1 $2')
      .replace(/([0-9])(-)/g, '$1 $2 '),
  );
}

/** Of a text: its tokens, those of the reference, and for each order the grams that are right and all of them. */
export function bleuCounts(text: string, reference: string): readonly number[] {
  const [own, other] = [tokensOf(text), tokensOf(reference)];
  const orders = ORDERS.map((n) => grams(own, n));
  const right = ORDERS.map((n, i) => common(counted(orders[i]!), counted(grams(other, n))));
  return [own.length, other.length, ...right, ...orders.map((each) => each.length)];
}

/** 0 to 100. `counts`: the sums over all texts. */
export function bleuOf([own = 0, other = 0, ...counts]: readonly number[]): number {
  const [right, all] = [counts.slice(0, 4), counts.slice(4)];
  if (right.every((count) => count === 0)) return 0;
  const brevity = own >= other ? 1 : own > 0 ? Math.exp(1 - other / own) : 0;
  let smooth = 1;
  let sum = 0;
  for (const [i, total] of all.entries()) {
    // An order without grams has the logarithm that stands for zero.
    if (total === 0) return 0;
    if (right[i] === 0) smooth *= 2;
    sum += Math.log(right[i] === 0 ? 100 / (smooth * total) : (100 * right[i]!) / total);
  }
  return brevity * Math.exp(sum / ORDERS.length);
}
