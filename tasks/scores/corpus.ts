/** Scores of a corpus as sacrebleu has them: BLEU, chrF and TER. */
import { codePoints, common, counted, grams, rightStrip, splitAtSpace } from '../../python/value.js';

// BLEU of a corpus, as sacrebleu has it by default: mteval-13a tokens, exponential smoothing, orders up to four.

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

// chrF of a corpus, as sacrebleu has it by default: runs of up to six characters without spaces, beta 2.

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

// Translation edit rate of a corpus (Snover et al. 2006), with the bounds of Tercom that sacrebleu has: edits are
// insertions, deletions, substitutions and shifts of words.

const MAX_SHIFTED = 10;
const MAX_DISTANCE = 50;
const BEAM = 25;
const MAX_CANDIDATES = 1000;
/** Words of one text; more are cut, so that a measure ends. */
const MAX_WORDS = 2000;

type Words = readonly string[];
const SAME = 0,
  CHANGED = 1,
  DELETED = 2,
  INSERTED = 3;

/** Edits from `own` to `other`, and which they are, first to last. Only cells near the diagonal are looked at. */
function edits(own: Words, other: Words): { readonly cost: number; readonly steps: readonly number[] } {
  const width = other.length + 1;
  const costs = new Float64Array((own.length + 1) * width).fill(Infinity);
  const steps = new Uint8Array((own.length + 1) * width);
  for (let j = 0; j < width; j++) [costs[j], steps[j]] = [j, INSERTED];
  const ratio = own.length > 0 ? other.length / own.length : 1;
  const beam = ratio / 2 > BEAM ? Math.ceil(ratio / 2 + BEAM) : BEAM;
  for (let i = 1; i <= own.length; i++) {
    const middle = Math.floor(i * ratio);
    const end = i === own.length ? width : Math.min(width, middle + beam);
    for (let j = Math.max(0, middle - beam); j < end; j++) {
      const at = i * width + j;
      const set = (cost: number, step: number): void => {
        if (cost < costs[at]!) [costs[at], steps[at]] = [cost, step];
      };
      const isSame = j > 0 && own[i - 1] === other[j - 1];
      if (j > 0) set(costs[at - width - 1]! + (isSame ? 0 : 1), isSame ? SAME : CHANGED);
      set(costs[at - width]! + 1, DELETED);
      if (j > 0) set(costs[at - 1]! + 1, INSERTED);
    }
  }
  const found: number[] = [];
  for (let i = own.length, j = other.length; i > 0 || j > 0;) {
    const step = steps[i * width + j]!;
    found.push(step);
    if (step !== INSERTED) i--;
    if (step !== DELETED) j--;
  }
  return { cost: costs.at(-1)!, steps: found.reverse() };
}

/** Where words of the reference stand in the text, and which words of both are wrong. */
function aligned(steps: readonly number[]): { places: number[]; wrongOwn: boolean[]; wrongOther: boolean[] } {
  const [places, wrongOwn, wrongOther]: [number[], boolean[], boolean[]] = [[], [], []];
  for (const step of steps) {
    if (step !== INSERTED) wrongOwn.push(step !== SAME);
    if (step === DELETED) continue;
    places.push(wrongOwn.length - 1);
    wrongOther.push(step !== SAME);
  }
  return { places, wrongOwn, wrongOther };
}

function moved(words: Words, from: number, length: number, to: number): Words {
  const part = words.slice(from, from + length);
  if (to < from) return [...words.slice(0, to), ...part, ...words.slice(to, from), ...words.slice(from + length)];
  const end = to > from + length ? to : to + length;
  return [...words.slice(0, from), ...words.slice(from + length, end), ...part, ...words.slice(end)];
}

interface Shift {
  readonly rank: readonly number[];
  readonly words: Words;
}

const isBetter = (a: readonly number[], b: readonly number[]): boolean => {
  const place = a.findIndex((value, i) => value !== b[i]);
  return place >= 0 && a[place]! > b[place]!;
};

/** The shift that saves most edits; `checked` counts those that were tried. */
function bestShift(own: Words, other: Words, checked: number): { best: Shift | undefined; checked: number } {
  const { cost, steps } = edits(own, other);
  const { places, wrongOwn, wrongOther } = aligned(steps);
  let best: Shift | undefined;
  let count = checked;
  for (let i = 0; i < own.length; i++) {
    const last = Math.min(other.length - 1, i + MAX_DISTANCE);
    for (let j = Math.max(0, i - MAX_DISTANCE); j <= last; j++) {
      for (let n = 1; n <= MAX_SHIFTED && own[i + n - 1] !== undefined && own[i + n - 1] === other[j + n - 1]; n++) {
        const isWrong = wrongOwn.slice(i, i + n).includes(true) && wrongOther.slice(j, j + n).includes(true);
        if (!isWrong || (i <= places[j]! && places[j]! < i + n)) continue;
        let before = -1;
        for (let offset = -1; offset < n && j + offset < places.length; offset++) {
          const to = j + offset === -1 ? 0 : places[j + offset]! + 1;
          if (to === before) continue;
          before = to;
          const words = moved(own, i, n, to);
          const rank = [cost - edits(words, other).cost, n, -i, -to];
          count++;
          if (best === undefined || isBetter(rank, best.rank)) best = { rank, words };
        }
        if (count >= MAX_CANDIDATES) return { best, checked: count };
      }
    }
  }
  return { best, checked: count };
}

/** Of a text: its edits, and the words of the reference. */
export function terCounts(text: string, reference: string): readonly number[] {
  const words = (of: string): Words => splitAtSpace(rightStrip(of).toLowerCase()).slice(0, MAX_WORDS);
  let own = words(text);
  const other = words(reference);
  if (other.length === 0) return [own.length, 0];
  let shifts = 0;
  for (let checked = 0; ;) {
    const found = bestShift(own, other, checked);
    checked = found.checked;
    if (checked >= MAX_CANDIDATES || found.best === undefined || found.best.rank[0]! <= 0) break;
    shifts++;
    own = found.best.words;
  }
  return [shifts + edits(own, other).cost, other.length];
}

/** Edits for 100 words; it may be more than 100. */
export function terOf([changes = 0, words = 0]: readonly number[]): number {
  return words > 0 ? (100 * changes) / words : changes > 0 ? 100 : 0;
}
