/** Pages of prompts that continue others have the names that they have anywhere. */
import { describe, expect, it } from 'vitest';
import { contentOf, PAGE_TOKENS } from '../../engine/pages.js';
import { beginningOf, continuePrompt, namesOf } from '../../engine/promptNames.js';
import { Sequence } from '../../engine/sequence.js';
import { randomNumbers } from '../support/pathModel.js';
import { range } from './counting.js';

const namesAnywhere = (tokens: readonly number[]): readonly string[] => {
  const names: string[] = [];
  for (let i = 0; (i + 1) * PAGE_TOKENS <= tokens.length; i++)
    names.push(contentOf(names[i - 1], tokens.slice(i * PAGE_TOKENS, (i + 1) * PAGE_TOKENS)));
  return names;
};

const namesIn = (sequence: Sequence): readonly (string | undefined)[] =>
  range(0, Math.floor(sequence.tokens.length / PAGE_TOKENS)).map((i) => sequence.content(i));

describe('names of prompts that cannot change', () => {
  it('are those of the tokens, whoever asked first, whatever is continued and generated', () => {
    const random = randomNumbers(7);
    const upTo = (count: number): number => Math.floor(count * random());
    const prompts: (readonly number[])[] = [[]];
    for (let i = 0; i < 400; i++) {
      const from = prompts[upTo(prompts.length)]!;
      const to =
        upTo(4) === 0
          ? beginningOf(from, upTo(from.length + 1))
          : continuePrompt(
              from,
              Array.from({ length: upTo(40) }, () => upTo(3)),
            );
      prompts.push(to);
      if (to.length === 0 || upTo(2) === 0) continue;
      const sequence = new Sequence({ prompt: to });
      if (upTo(2) === 0) namesIn(sequence);
      for (let more = upTo(40); more > 0; more--) sequence.tokens.push(upTo(3));
      expect(namesIn(sequence)).toEqual(namesAnywhere(sequence.tokens));
    }
  });

  it('are made once for prompts that begin alike, whoever is asked first', () => {
    const first = continuePrompt(range(0, 30), range(30, 30));
    const second = continuePrompt(first, range(7, 10));
    const names = namesIn(new Sequence({ prompt: second }));
    expect(names).toEqual(namesAnywhere(second));
    expect(names.slice(0, 3)).toEqual([0, 1, 2].map((i) => namesOf(first)!.at(i)));
    expect(namesOf(beginningOf(second, 65))).toBe(namesOf(second));
    expect(namesOf(range(0, 40))).toBeUndefined();
  });

  it('are never those of a list that can change', () => {
    const prompt = range(0, 40);
    namesIn(new Sequence({ prompt }));
    prompt[0] = 9;
    expect(namesIn(new Sequence({ prompt }))).toEqual(namesAnywhere(prompt));
    expect(() => (continuePrompt(prompt, [1]) as number[]).push(1)).toThrow(TypeError);
    expect(() => ((beginningOf(continuePrompt(prompt, [1]), 3) as number[])[0] = 1)).toThrow(TypeError);
  });
});
