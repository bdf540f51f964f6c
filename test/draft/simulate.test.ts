/** Replays against what can be counted by hand. */
import { describe, expect, it } from 'vitest';
import { type Drafter, drafterOf, type Draft } from '../../draft/drafter.js';
import { type FinishedText, replay, rowsOfCall, tokensOfCall } from '../../draft/simulate.js';

const text = (length: number, first = 0): FinishedText => ({
  prompt: [1, 2, 3],
  output: Array.from({ length }, (_, i) => first + i),
});

/** Proposes what comes, as its prompt has three tokens. */
const perfect = drafterOf((tokens) => Array.from({ length: 15 }, (_, i) => tokens.length - 3 + i));

describe('a replay', () => {
  it('of perfect drafts gives all of them and one more in a call', () => {
    const counts = replay([text(61), text(7)], perfect, { tokens: 5 });
    expect(counts).toMatchObject({ texts: 2, tokens: 68, calls: 11, rounds: 11, runs: [0, 0, 0, 0, 0, 11] });
    expect([tokensOfCall(counts), rowsOfCall(counts)]).toEqual([6, 6]);
    expect([counts.drafted, counts.accepted]).toEqual([Array(5).fill(11), Array(5).fill(11)]);
  });

  it('of wrong drafts, or none, gives a token in a call', () => {
    const wrong = replay(
      [text(20)],
      drafterOf(() => [99, 98]),
    );
    expect(wrong).toMatchObject({ calls: 19, rounds: 19, drafted: [19, 19], accepted: [], runs: [19] });
    expect(
      replay(
        [text(20), text(0), text(1)],
        drafterOf(() => []),
      ),
    ).toMatchObject({
      ...{ texts: 2, tokens: 21, calls: 19, rounds: 0, runs: [19] },
    });
    expect(tokensOfCall(replay([], perfect))).toBe(1);
  });

  it('follows the branch of a tree that is right, and what was said of it', () => {
    const tree = (tokens: readonly number[]): Draft => {
      const next = tokens.length - 3;
      return {
        tokens: [next + 50, next, next + 1, next + 50],
        parents: [-1, -1, 1, 2],
        chances: [0.25, 0.75, 0.5, 0.5],
      };
    };
    const drafter: Drafter = { name: 'tree', begin: () => ({ propose: ({ tokens }) => tree(tokens) }) };
    const counts = replay([text(31)], drafter, { tokens: 4 });
    expect(counts).toMatchObject({ calls: 10, drafted: [20, 10, 10], accepted: [10, 10], runs: [0, 0, 10] });
    expect(counts.expected.map(({ drafts, right }) => [drafts, right]).filter(([drafts]) => drafts! > 0)).toEqual([
      [10, 0],
      [20, 10],
      [10, 10],
    ]);
  });

  it('writes texts side by side, tells of their beginnings and ends, and of the noise of their places', () => {
    const seen: string[] = [];
    const drafter: Drafter = {
      name: 'noting',
      begin: ({ tokens }) => {
        seen.push(`begin ${tokens.length}`);
        return {
          propose: ({ drawAt, tokens: { length } }) => {
            seen.push(`${length} ${drawAt(length)?.inverseTemperature ?? '-'}`);
            return { tokens: [] };
          },
          end: (of) => seen.push(`end ${of.tokens.length}`),
        };
      },
    };
    const drawn = { ...text(2), sampling: { temperature: 0.5, seed: 3n } };
    replay([text(3), drawn, text(1)], drafter, { beside: 2 });
    expect(seen).toEqual(['begin 3', 'begin 3', '4 2', '4 -', 'end 5', '5 -', 'begin 3', 'end 4', 'end 6']);
  });
});
