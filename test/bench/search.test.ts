/** The parts of `bench:search`: what a verifier must compute at least, changed picks, made-up models, plots. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { linePlot, plotPage } from '../../bench/linePlot.js';
import { writeMadeUpFolder } from '../../bench/madeUpFolder.js';
import { changedPicks, COLUMNS, problemsAnHour, rowOf, type SearchFigures } from '../../bench/searchFigures.js';
import { splitsSection, wholeSection } from '../../bench/searchSections.js';
import { openTemplate } from '../../commands/templates.js';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { TokenTrie } from '../../search/models/tokenTrie.js';
import { temporaryFolder } from '../models/support.js';
import { madeSearch } from '../support/searches.js';
import { thorough } from '../support/thorough.js';

describe('the trie of tokens', () => {
  it('keeps every different beginning once', () => {
    const lists = fc.array(fc.tuple(fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 12 }), fc.nat({ max: 12 })));
    fc.assert(
      fc.property(lists, (all) => {
        const trie = new TokenTrie();
        const beginnings = new Set<string>();
        for (const [tokens, most] of all) {
          const length = Math.min(most, tokens.length);
          trie.add(tokens, length);
          for (let end = 1; end <= length; end++) beginnings.add(tokens.slice(0, end).join());
          expect(trie.size).toBe(beginnings.size);
        }
      }),
    );
  });
});

const work = { computedTokens: 400, calls: 4, foundTokens: 0, preemptions: 1, evictions: 2 };
const figures = (of: Partial<SearchFigures> = {}): SearchFigures => ({
  ...{ problems: 8, iterations: 40, tokens: 1000, seconds: 10, generator: work, verifier: work, verifierNeeded: 200 },
  ...{ cpuSeconds: 0.05, moments: [], results: [], peakProblems: 3, isCut: false },
  ...of,
});

describe('figures', () => {
  it('count a run that was cut by its iterations', () => {
    expect(problemsAnHour(figures(), 10)).toBe(2880);
    expect(problemsAnHour(figures({ isCut: true }), 10)).toBe(1440);
    const row = rowOf('own', figures(), 10);
    expect(row).toEqual(['own', '2880', '10.0', '100', '40', '2.000', '3', '1 + 1', '2 + 2', '50.0']);
    expect(row).toHaveLength(COLUMNS.length);
  });

  it('find picks that another verifier changes', () => {
    const [one, other] = [1, 2].map((seed) => madeSearch({ n: 8, width: 2, iterations: 4, seed }));
    const same = changedPicks([one, one, undefined], [one, one, one]);
    expect(same).toEqual({
      ...{ problems: 2, picks: 0, iterations: 8, equalIterations: 8, meanDistance: 0, mostDistance: 0 },
    });
    const changed = changedPicks([one], [other]);
    expect(changed).toMatchObject({ problems: 1, iterations: 4, equalIterations: 0 });
    expect(changed.mostDistance).toBeGreaterThan(changed.meanDistance);
    expect(changed.picks).toBe(one!.candidates[0]!.text === other!.candidates[0]!.text ? 0 : 1);
  });
});

describe('models that are made up', () => {
  thorough('have words that are one token of a text again, and turns of eleven tokens beside their steps', async () => {
    const folder = temporaryFolder();
    expect(writeMadeUpFolder('llama-4m', folder)).toBe(2048);
    const config: unknown = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
    expect(config).toMatchObject({ vocab_size: 2048 });
    const large = join(folder, 'large');
    expect(writeMadeUpFolder('llama-3.2-1b', large)).toBe(128_256);
    const tokenizer = openTokenizer(large);
    const words = [5000, 60_000, 128_000, 100_001];
    const text = tokenizer.detokenizer().decode(words);
    expect(text).toMatch(/^( [a-z]+q){4}$/);
    expect(await tokenizer.encodeWritten(text)).toEqual(words);
    const template = openTemplate(large)!;
    try {
      const turn = (role: string, content: string) =>
        new Map([
          ['role', role],
          ['content', content],
        ]);
      const written = async (messages: readonly ReturnType<typeof turn>[]): Promise<number> => {
        const shown = await template.render({ messages, opensAnswer: false, variables: new Map() });
        return (await tokenizer.encodeWritten(shown)).length;
      };
      const first = [turn('user', text), turn('assistant', '+')];
      const both = await written([...first, turn('user', text), turn('assistant', '+')]);
      expect(both - (await written(first))).toBe(words.length + 11);
    } finally {
      await template.close();
    }
  });
});

describe('plots', () => {
  it('show hostile names as text, and say where there is nothing', () => {
    const hostile = '</svg><script>alert(1)</script>';
    const plot = { title: hostile, x: hostile, y: hostile, lines: [{ name: hostile, points: [[1, 2]] as const }] };
    const page = plotPage(hostile, hostile, [{ title: hostile, about: hostile, plots: [plot], table: [[hostile]] }]);
    expect(page).not.toContain('<script>');
    expect(page).toContain('&lt;script&gt;');
    expect(linePlot({ ...plot, lines: [] })).toContain('There is nothing to show.');
  });

  it('put points where they belong', () => {
    const points = [
      [1, 10],
      [10, NaN],
      [100, 30],
    ] as const;
    const drawn = linePlot({ title: 't', x: 'x', y: 'y', isLogarithmic: true, lines: [{ name: 'a', points }] });
    // What is no number parts the line.
    expect(drawn.match(/<path d="M[^"]+"/g)).toHaveLength(2);
    expect(drawn.match(/<circle/g)).toHaveLength(2);
    expect(drawn).toContain('<circle cx="72.0"');
    expect(drawn).toContain('<circle cx="660.0"');
  });

  it('compare moving memory with the best split', () => {
    const run = (name: string, at: number, seconds: number) => ({ name, at, figures: figures({ seconds }) });
    const runs = [run('by itself', NaN, 10), run('10 : 90', 0.1, 20), run('30 : 70', 0.3, 8)];
    const { about, plots, table } = splitsSection(runs, 10);
    expect(about).toContain('by itself: 2880 problems/h. The best of 2 fixed splits gives the generator 0.3: 3600');
    expect(about).toContain('80.0 %');
    expect(plots[0]!.lines[0]!.points).toEqual([
      [0.1, 1440],
      [0.3, 3600],
    ]);
    expect(table).toHaveLength(4);
    const moment = { pages: 9, held: 4, running: 2, waiting: 1 };
    const moments = [0, 1, 2].map((seconds) => ({ seconds, generator: moment, verifier: moment }));
    const { plots: timelines } = wholeSection({ name: 'whole', at: 0, figures: figures({ moments }) }, 10);
    expect(timelines.map(({ lines }) => lines.length)).toEqual([4, 4]);
    expect(timelines[0]!.lines[1]).toEqual({
      name: 'generator: held',
      points: [
        [0, 4],
        [1, 4],
        [2, 4],
      ],
    });
  });
});
