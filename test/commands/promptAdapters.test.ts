import { describe, expect, it } from 'vitest';
import { planAdapters } from '../../commands/promptAdapters.js';

const [fr, de] = ['fr', 'de'].map((name) => ({ name, path: `adapters/${name}` })) as [
  { name: string; path: string },
  { name: string; path: string },
];
const prompt = (where: string, adapter?: string) => ({
  where,
  prompt: { prompt: 'Hello' },
  ...(adapter === undefined ? {} : { adapter }),
});

describe('adapters of prompts', () => {
  it('are those that lines name, each once, in their order', () => {
    const prompts = [prompt('p:1', 'de'), prompt('p:2'), prompt('p:3', 'fr'), prompt('p:4', 'de')];
    expect(planAdapters([fr, de], prompts)).toEqual({ kind: 'byPrompt', used: [de, fr] });
    // One that nobody names is not read.
    expect(planAdapters([fr, de], [prompt('p:1', 'fr')])).toEqual({ kind: 'byPrompt', used: [fr] });
  });

  it('belong to the whole model where there is one that no line names', () => {
    expect(planAdapters([fr], [prompt('p:1')])).toEqual({ kind: 'whole', adapter: fr });
    expect(planAdapters([], [prompt('p:1')])).toEqual({ kind: 'none' });
  });

  it('are refused by name, with the line and the names that there are', () => {
    expect(() => planAdapters([fr, de], [prompt('p:1'), prompt('p:2', 'es')])).toThrow(
      'p:2: there is no adapter "es"; there are: fr, de',
    );
    expect(() => planAdapters([fr], [prompt('p:1', 'es')])).toThrow('p:1: there is no adapter "es"; there is: fr');
    expect(() => planAdapters([], [prompt('p:1', 'es')])).toThrow('p:1: there is no adapter "es"; none is given');
    expect(() => planAdapters([fr, { ...de, name: 'fr' }], [])).toThrow('two adapters would be called "fr"');
    expect(() => planAdapters([fr, de], [prompt('p:1')])).toThrow('there are 2 adapters, and no prompt names one');
  });
});
