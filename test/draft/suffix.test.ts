/** Drafts from former outputs: what they are, how likely, what leaves, and what they cost. */
import { describe, expect, it } from 'vitest';
import { type DraftText, usableDraft } from '../../draft/drafter.js';
import { MAX_DRAFTS } from '../../draft/limits.js';
import { LEAST_CHANCE } from '../../draft/ngram.js';
import { SuffixDrafter } from '../../draft/suffix.js';
import { type Draw, gumbel, noiseKey } from '../../ir/gumbel.js';
import { expectLinear } from '../support/growth.js';
import { randomNumbers } from '../support/pathModel.js';
import { HARD_TEXTS } from '../support/texts.js';

const greedy = (tokens: readonly number[], promptLength = 1): DraftText => ({
  tokens,
  promptLength,
  drawAt: () => undefined,
});
const PROMPT = [900];

/** The model writes this, and the text ends. */
function write(drafter: SuffixDrafter, output: readonly number[], prompt = PROMPT): void {
  const text = greedy([...prompt, ...output], prompt.length);
  drafter.begin(text).end!(text);
}

const proposed = (drafter: SuffixDrafter, text: DraftText, most = MAX_DRAFTS) =>
  drafter.begin(text).propose(text, most);

const upTo = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

describe('suffix drafts', () => {
  it('are what followed in a former output, and in the text itself', () => {
    const drafter = new SuffixDrafter({ leastChance: 0 });
    expect(proposed(drafter, greedy([1, 2, 3]))).toEqual({ tokens: [] });
    write(drafter, upTo(10, 60));
    expect(proposed(drafter, greedy([1, 30, 31, 32, 33])).tokens.slice(0, 8)).toEqual(upTo(34, 42));
    expect(proposed(drafter, greedy([1, 30, 31, 32, 33]), 3).tokens).toEqual([34, 35, 36]);
    expect(proposed(drafter, greedy([1, 30, 31, 32, 33]), 0).tokens).toEqual([]);
    // Behind the end of that output nothing is known.
    expect(proposed(drafter, greedy([57, 58])).tokens).toEqual([59]);
    expect(proposed(drafter, greedy([58, 59])).tokens).toEqual([]);
    expect(proposed(drafter, greedy([5, 6, 7, 8, 9, 5, 6, 7])).tokens.slice(0, 3)).toEqual([8, 9, 5]);
  });

  it('are there while an output is still written', () => {
    const drafter = new SuffixDrafter();
    const text = [...PROMPT];
    const state = drafter.begin(greedy(text));
    for (const token of upTo(100, 300)) {
      text.push(token);
      state.propose(greedy(text), 4);
    }
    expect(proposed(drafter, greedy([110, 111, 112])).tokens.slice(0, 3)).toEqual([113, 114, 115]);
  });

  it('are a tree where several continuations were seen', () => {
    const drafter = new SuffixDrafter();
    for (let i = 0; i < 30; i++) write(drafter, [1, 2, 3, ...(i % 3 === 0 ? [40, 41] : [50, 51]), 6, 7]);
    const draft = proposed(drafter, greedy([8, 1, 2, 3]), 9);
    expect(draft.tokens.slice(0, 4)).toEqual([50, 51, 6, 7]);
    const parents = draft.parents!;
    const other = draft.tokens.indexOf(40);
    expect([parents[other], parents[draft.tokens.indexOf(41)]]).toEqual([-1, other]);
    expect(draft.chances![0]!).toBeGreaterThan(draft.chances![other]!);
  });

  it('choose among continuations as the noise of the place will', () => {
    const drafter = new SuffixDrafter({ leastChance: 0 });
    for (let i = 0; i < 40; i++) write(drafter, [1, 2, 3, i % 2 === 0 ? 40 : 50, 6]);
    const firsts = new Map<number, number>();
    let right = 0;
    for (let seed = 0; seed < 200; seed++) {
      const draw: Draw = { inverseTemperature: 1, ...noiseKey(BigInt(seed), 3) };
      const { tokens } = proposed(drafter, { ...greedy([8, 1, 2, 3]), drawAt: () => draw }, 6);
      firsts.set(tokens[0]!, (firsts.get(tokens[0]!) ?? 0) + 1);
      if (tokens[0] === (gumbel(draw, 40) > gumbel(draw, 50) ? 40 : 50)) right++;
    }
    expect([...firsts.keys()].sort()).toEqual([40, 50]);
    expect(Math.min(...firsts.values())).toBeGreaterThan(60);
    expect(right).toBeGreaterThan(190);
  });

  it('forget the oldest outputs first', () => {
    const drafter = new SuffixDrafter({ tokens: 256 });
    for (let i = 0; i < 20; i++) write(drafter, upTo(1000 * i, 1000 * i + 50));
    const knows = (i: number): boolean =>
      proposed(drafter, greedy(upTo(1000 * i + 20, 1000 * i + 24))).tokens.length > 0;
    const known = upTo(0, 20).filter(knows);
    expect(known.length).toBeGreaterThanOrEqual(4);
    expect(known).toEqual(upTo(20 - known.length, 20));
  });

  it('are trees with chances, whatever the texts', () => {
    const random = randomNumbers(5);
    const drafter = new SuffixDrafter({ tokens: 512 });
    for (let i = 0; i < 10; i++) {
      const prompt = Array.from({ length: Math.floor(random() * 40) }, () => Math.floor(random() * 4));
      const text = [...prompt];
      const state = drafter.begin(greedy(text, prompt.length));
      const drawAt = (at: number): Draw | undefined =>
        i % 2 === 0 ? undefined : { inverseTemperature: 1, ...noiseKey(9n, at - 1) };
      for (let turn = 0; turn < 30; turn++) {
        const most = Math.floor(random() * (MAX_DRAFTS + 1));
        const draft = state.propose({ tokens: text, promptLength: prompt.length, drawAt }, most);
        expect(usableDraft(draft, most)).toEqual(draft);
        const survivals = draft.tokens.map(() => 1);
        for (const [node, chance] of (draft.chances ?? []).entries()) {
          const parent = draft.parents?.[node] ?? node - 1;
          survivals[node] = chance * (parent < 0 ? 1 : survivals[parent]!);
          expect(survivals[node]).toBeGreaterThanOrEqual(LEAST_CHANCE);
        }
        for (let count = Math.floor(random() * 5); count >= 0; count--) text.push(Math.floor(random() * 4));
      }
      state.end!(greedy(text, prompt.length));
    }
  });

  it.each(HARD_TEXTS)('take time in proportion to %s', (_name, make) => {
    expectLinear((size) => {
      const tokens = make(size);
      return () => {
        const drafter = new SuffixDrafter({ tokens: 1 << 12 });
        const so: number[] = [...PROMPT];
        const state = drafter.begin(greedy(so));
        for (const token of tokens) {
          so.push(token);
          state.propose(greedy(so), 2);
        }
        state.end!(greedy(so));
      };
    }, 2_000);
  });
});
