/** How alike two texts are: BLEU as in sacrebleu with its international tokenizer, and ROUGE as in rouge_score. */
import { at as elementAt } from '../../system/at.js';
import { common, counted, grams, rightStrip, splitAtSpace } from '../../python/value.js';

/** Punctuation and symbols as tokens of their own, but within numbers. */
function bleuTokens(text: string): readonly string[] {
  const apart = rightStrip(text)
    .replace(/(\P{N})(\p{P})/gu, '$1 $2 ')
    .replace(/(\p{P})(\P{N})/gu, ' $1 $2')
    .replace(/(\p{S})/gu, ' $1 ');
  return splitAtSpace(apart).filter((token) => token !== '');
}

const MAX_GRAM = 4;

/** BLEU of one text, 0 to 100. Orders without a match are smoothed by halves; a text of fewer than 4 tokens has 0. */
export function bleu(text: string, reference: string): number {
  const [own, other] = [bleuTokens(text), bleuTokens(reference)];
  const orders = Array.from({ length: MAX_GRAM }, (_, i) => {
    const of = grams(own, i + 1);
    return { total: of.length, correct: common(counted(of), counted(grams(other, i + 1))) };
  });
  if (orders.every(({ correct }) => correct === 0) || orders.some(({ total }) => total === 0)) return 0;
  let smooth = 1;
  const logs = orders.map(({ total, correct }) => {
    if (correct === 0) smooth *= 2;
    return Math.log(correct === 0 ? 100 / (smooth * total) : (100 * correct) / total);
  });
  const brevity = own.length < other.length ? Math.exp(1 - other.length / own.length) : 1;
  return brevity * Math.exp(logs.reduce((sum, log) => sum + log, 0) / MAX_GRAM);
}

const rougeTokens = (text: string): string[] => text.toLowerCase().match(/[a-z0-9]+/g) ?? [];

function fMeasure(hits: number, own: number, other: number): number {
  const precision = hits / Math.max(own, 1),
    recall = hits / Math.max(other, 1);
  return precision + recall > 0 ? (2 * precision * recall) / (precision + recall) : 0;
}

/** ROUGE-N, 0 to 1. */
export function rougeN(text: string, reference: string, n: number): number {
  const [own, other] = [grams(rougeTokens(text), n), grams(rougeTokens(reference), n)];
  return fMeasure(common(counted(own), counted(other)), own.length, other.length);
}

/** Places in `reference` of one longest common subsequence. */
function subsequence(reference: readonly string[], text: readonly string[]): number[] {
  const width = text.length + 1;
  const table = new Uint32Array((reference.length + 1) * width);
  const at = (i: number, j: number): number => table[i * width + j]!;
  for (let i = 1; i <= reference.length; i++)
    for (let j = 1; j <= text.length; j++)
      table[i * width + j] =
        reference[i - 1] === text[j - 1] ? at(i - 1, j - 1) + 1 : Math.max(at(i - 1, j), at(i, j - 1));
  const places: number[] = [];
  for (let i = reference.length, j = text.length; i > 0 && j > 0;) {
    if (reference[i - 1] === text[j - 1]) {
      places.push(--i);
      j--;
    } else if (at(i, j - 1) > at(i - 1, j)) j--;
    else i--;
  }
  return places;
}

const sentences = (text: string): string[][] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map(rougeTokens);

/** Letters of a text in which longest subsequences are looked for; a longer one is cut. */
const MAX_LETTERS = 8_000;

/** ROUGE-Lsum, 0 to 1: lines are sentences. */
export function rougeSum(text: string, reference: string): number {
  const [own, other] = [sentences(text.slice(0, MAX_LETTERS)), sentences(reference.slice(0, MAX_LETTERS))];
  const left = counted(own.flat());
  const right = counted(other.flat());
  let hits = 0;
  for (const sentence of other) {
    const places = new Set(own.flatMap((each) => subsequence(sentence, each)));
    for (const place of [...places].sort((a, b) => a - b)) {
      const token = elementAt(sentence, place);
      if ((left.get(token) ?? 0) === 0 || (right.get(token) ?? 0) === 0) continue;
      hits++;
      left.set(token, left.get(token)! - 1);
      right.set(token, right.get(token)! - 1);
    }
  }
  return fMeasure(hits, own.flat().length, other.flat().length);
}
