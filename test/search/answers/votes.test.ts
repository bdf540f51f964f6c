/** Votes and figures: search-and-learn's own, and rules where ours differ. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { answersOf, figureOf, passAt, sizesUpTo, valuesOf } from '../../../search/answers/figures.js';
import { type Ballot, ballotsOf, chosen, isDecided, VOTES } from '../../../search/answers/votes.js';

const FOLDER = new URL('../../../../shared/golden/search/', import.meta.url);

interface Result {
  readonly completions: readonly string[];
  readonly scores: readonly (readonly number[])[];
  readonly aggs: readonly number[];
  readonly answers: readonly string[];
  readonly at: Readonly<Record<string, Readonly<Record<'naive' | 'weighted' | 'maj', string>>>>;
  readonly pass: Readonly<Record<string, number>>;
}
interface Trace {
  readonly config: { readonly n: number };
  readonly problems: readonly { readonly answer: string }[];
  readonly runs: readonly { readonly problems: readonly number[]; readonly results?: readonly Result[] }[];
}

describe.skipIf(!existsSync(FOLDER))('votes of search-and-learn', () => {
  const names = readdirSync(FOLDER).filter((name) => name.endsWith('.json'));
  it.each(names)('%s', (name) => {
    const trace = JSON.parse(readFileSync(new URL(name, FOLDER), 'utf8')) as Trace;
    for (const { problems, results } of trace.runs)
      for (const [i, each] of (results ?? []).entries()) {
        const gold = trace.problems[problems[i]!]!.answer;
        const candidates = each.completions.map((text, at) => ({
          text,
          step: 0,
          isCompleted: true,
          scores: each.scores[at]!,
          aggregate: each.aggs[at]!,
          tokens: 0,
        }));
        const found = answersOf({ candidates }, trace.config.n, (_, answer) => answer === gold, true);
        expect(found.answers).toEqual(each.answers);
        const boxed = (at: number | null): string => `\\boxed{${found.answers[at!]}}`;
        expect(
          Object.fromEntries(
            found.votes.map(({ size, naive, weighted, majority }) => [
              size,
              { naive: boxed(naive), weighted: boxed(weighted), maj: boxed(majority) },
            ]),
          ),
        ).toEqual(each.at);
        const right = found.right!.filter(Boolean).length;
        for (const [k, pass] of Object.entries(each.pass))
          expect(passAt(each.answers.length, right, Number(k))).toBeCloseTo(pass, 12);
      }
  });
});

const ballot = (answer: string, score: number, isCompleted = true): Ballot => ({
  answer,
  group: answer.charCodeAt(0),
  score,
  isCompleted,
});
const picks = (ballots: readonly Ballot[], isCompat = false): unknown =>
  VOTES.map((vote) => chosen(vote, ballots, isCompat));

describe('votes', () => {
  it('go by score, by sums of scores and by numbers; ties go to the first', () => {
    expect(picks([ballot('a', 0.5), ballot('b', 0.9), ballot('a', 0.5), ballot('c', 0.9), ballot('a', 0.1)])).toEqual([
      1, 0, 0,
    ]);
    expect(picks([ballot('a', 0.2), ballot('b', 0.2), ballot('b', 0), ballot('a', 0)])).toEqual([0, 0, 0]);
    expect(picks([])).toEqual([null, null, null]);
  });

  it('are of completed texts, and of others only where none is', () => {
    const ballots = [ballot('a', 0.9, false), ballot('b', 0.1), ballot('a', 0.8, false)];
    expect(picks(ballots)).toEqual([1, 1, 1]);
    expect(picks(ballots.filter((each) => !each.isCompleted))).toEqual([0, 0, 0]);
  });

  it('about answers are of texts that have one, but in search-and-learn', () => {
    const ballots = [ballot('', 0.6), ballot('', 0.9), ballot('b', 0.5)];
    expect(picks(ballots)).toEqual([1, 2, 2]);
    expect(picks(ballots, true)).toEqual([1, 0, 0]);
    expect(picks(ballots.slice(0, 2))).toEqual([1, 0, 0]);
  });

  it('count the aggregate of the search, and the last score in search-and-learn', () => {
    const candidate = {
      text: 'The answer is 5.',
      step: 0,
      isCompleted: false,
      scores: [0.2, 0.9],
      aggregate: 0.2,
      tokens: 3,
    };
    expect(ballotsOf([candidate], false)).toEqual([{ answer: '5', group: 0, score: 0.2, isCompleted: false }]);
    expect(ballotsOf([candidate], true)).toEqual([{ answer: '5', group: 0, score: 0.9, isCompleted: true }]);
  });

  it('are decided exactly where no continuation changes them', () => {
    const POSSIBLE = ['', 'a', 'b', 'c'].flatMap((answer) =>
      [0, 0.5, 1].flatMap((score) => [true, false].map((isCompleted) => ballot(answer, score, isCompleted))),
    );
    let seed = 1;
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    let decided = 0;
    for (let round = 0; round < 40; round++) {
      const ballots = Array.from({ length: 1 + random(5) }, () => POSSIBLE[random(POSSIBLE.length)]!);
      for (const isCompat of [false, true])
        for (const vote of VOTES) {
          const now = chosen(vote, ballots, isCompat);
          const after = POSSIBLE.flatMap((a) => POSSIBLE.map((b) => chosen(vote, [...ballots, a, b], isCompat)));
          const stays = after.every((each) => each === now);
          const says = isDecided(vote, ballots, 2, 1, isCompat);
          expect(says ? stays : true, JSON.stringify([vote, ballots])).toBe(true);
          if (vote === 'majority') expect(says, JSON.stringify(ballots)).toBe(stays);
          if (says) decided++;
        }
    }
    expect(decided).toBeGreaterThan(10);
    expect(isDecided('weighted', [ballot('a', 9)], 1, undefined, false)).toBe(false);
    expect(isDecided('majority', [ballot('a', 9), ballot('a', 1)], 1, undefined, false)).toBe(true);
  });
});

describe('figures', () => {
  it('are of the first 1, 2, 4 … and all candidates', () => {
    expect([sizesUpTo(6, false), sizesUpTo(6, true), sizesUpTo(8, false)]).toEqual([
      [1, 2, 4, 6],
      [1, 2, 4],
      [1, 2, 4, 8],
    ]);
    const problem = (answers: readonly string[]): Parameters<typeof answersOf>[0] => ({
      candidates: answers.map((answer) => ({
        text: `\\boxed{${answer}}`,
        step: 0,
        isCompleted: true,
        scores: [0.5],
        aggregate: 0.5,
        tokens: 1,
      })),
    });
    const isRight = (_: string, answer: string): boolean => answer === '1';
    const answers = [['1', '2'], ['2', '1'], []].map((each) => answersOf(problem(each), 2, isRight, false));
    expect(answers.map((each) => valuesOf(each))).toEqual([
      [
        { size: 1, naive: 1, weighted: 1, majority: 1, pass: 0.5 },
        { size: 2, naive: 1, weighted: 1, majority: 1, pass: 1 },
      ],
      [
        { size: 1, naive: 0, weighted: 0, majority: 0, pass: 0.5 },
        { size: 2, naive: 0, weighted: 0, majority: 0, pass: 1 },
      ],
      [
        { size: 1, naive: 0, weighted: 0, majority: 0, pass: 0 },
        { size: 2, naive: 0, weighted: 0, majority: 0, pass: 0 },
      ],
    ]);
    expect(valuesOf(answersOf(problem(['1']), 2, undefined, false))).toEqual([]);
    expect(figureOf([1, 0, 0])).toEqual({ value: 1 / 3, error: expect.closeTo(1 / 3, 12) });
    expect(figureOf([1])).toEqual({ value: 1, error: null });
  });

  it('pass@k is what counting says', () => {
    for (let n = 1; n <= 6; n++)
      for (let right = 0; right <= n; right++)
        for (let k = 1; k <= n; k++) {
          let [all, some] = [0, 0];
          for (let taken = 0; taken < 2 ** n; taken++) {
            const bits = Array.from({ length: n }, (_, i) => (taken >> i) & 1);
            if (bits.reduce((sum, bit) => sum + bit, 0) !== k) continue;
            all++;
            if (bits.slice(0, right).includes(1)) some++;
          }
          expect(passAt(n, right, k)).toBeCloseTo(some / all, 12);
        }
    expect([passAt(3, 1, 5), passAt(3, 0, 5), passAt(0, 0, 1)]).toEqual([1, 0, 0]);
  });
});
