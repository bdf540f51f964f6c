/** Texts in tokens that are hard on an index: those that repeat, those that hardly do, and those between. */
import { randomNumbers } from './pathModel.js';

/** Each sequence of `order` symbols of an alphabet once (Fredricksen & Maiorana's construction). */
function deBruijn(symbols: number, order: number): number[] {
  const text: number[] = [];
  const word = new Array<number>(order + 1).fill(0);
  const extend = (at: number, period: number): void => {
    if (at > order) {
      if (order % period === 0) for (let i = 1; i <= period; i++) text.push(word[i]!);
      return;
    }
    word[at] = word[at - period]!;
    extend(at + 1, period);
    for (let symbol = word[at - period]! + 1; symbol < symbols; symbol++) {
      word[at] = symbol;
      extend(at + 1, at);
    }
  };
  extend(1, 1);
  return text;
}

function fibonacci(length: number): number[] {
  let [before, text] = [[1], [0]];
  while (text.length < length) [before, text] = [text, [...text, ...before]];
  return text.slice(0, length);
}

const of = (length: number, token: (i: number) => number): number[] => Array.from({ length }, (_, i) => token(i));

/** Names of texts, and how they are made of `length` tokens. */
export const HARD_TEXTS: readonly (readonly [string, (length: number) => number[]])[] = [
  ['one token', (length) => of(length, () => 7)],
  ['a de Bruijn sequence', (length) => deBruijn(2, Math.ceil(Math.log2(length))).slice(0, length)],
  ['Fibonacci’s word', fibonacci],
  ['tokens that are all others', (length) => of(length, (i) => i)],
  [
    'few tokens at random',
    (length) => {
      const random = randomNumbers(3);
      return of(length, () => Math.floor(random() * 3));
    },
  ],
];
