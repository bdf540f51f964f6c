/** What the replay reads, and what it prints. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { draftsTable, readTexts, tokensOf } from '../../bench/drafts.js';
import { replay } from '../../draft/simulate.js';
import { SuffixDrafter } from '../../draft/suffix.js';
import { UserError } from '../../errors.js';

const folder = mkdtempSync(join(tmpdir(), 'drafts-'));
afterAll(() => rmSync(folder, { recursive: true }));
const FIELDS = { promptField: 'prompt', textField: 'text' };

const file = (name: string, lines: readonly unknown[]): string => {
  const path = join(folder, name);
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return path;
};

const sample = (filter: string, prompt: string, answer: string) => ({
  ...{ doc_id: 0, filter, arguments: { gen_args_0: { arg_0: prompt, arg_1: { until: ['\n'] } } }, resps: [[answer]] },
});

describe('texts to replay', () => {
  it('are read from samples, once for all filters, from generate --json, and from lines of one’s own', async () => {
    const samples = file('samples.jsonl', [
      sample('strict', 'Q', 'A'),
      sample('flexible', 'Q', 'A'),
      { arguments: [['P', {}]], resps: [['B', 'C']] },
    ]);
    const generated = file('generated.jsonl', [
      { index: 0, text: 'x', tokens: [7, 8], reason: 'eos', promptTokens: 3 },
    ]);
    const own = file('own.jsonl', [
      { prompt: 'hi', text: 'ho' },
      { prompt: [1], tokens: [2] },
    ]);
    const texts = await readTexts([samples, generated, own], FIELDS, 100);
    expect(texts).toEqual([
      { prompt: 'Q', output: 'A' },
      { prompt: 'P', output: 'B' },
      { prompt: 'P', output: 'C' },
      { prompt: [], output: [7, 8] },
      { prompt: 'hi', output: 'ho' },
      { prompt: [1], output: [2] },
    ]);
    expect(await readTexts([samples], FIELDS, 2)).toHaveLength(2);
    expect(await tokensOf(texts.slice(4), undefined)).toEqual([
      { prompt: [104, 105], output: [104, 111] },
      { prompt: [1], output: [2] },
    ]);
    const named = file('named.jsonl', [{ problem: 'p', solution: 's' }]);
    expect(await readTexts([named], { promptField: 'problem', textField: 'solution' }, 9)).toEqual([
      { prompt: 'p', output: 's' },
    ]);
  });

  it.each([
    ['no text', [{ prompt: 'a' }]],
    ['a text that is no text', [{ prompt: 'a', text: 3 }]],
    ['tokens that are none', [{ prompt: 'a', tokens: [1, -1] }]],
    ['a list', [[1]]],
    ['a sample without texts', [{ arguments: {}, resps: [[[-1.5, 'True']]] }]],
    ['nothing', []],
  ])('are refused in one line where there is %s', async (name, lines) => {
    const error: unknown = await readTexts([file(`${name}.jsonl`, lines)], FIELDS, 9).catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(UserError);
    expect((error as UserError).message).not.toContain('\n');
  });

  it('are compared in a table', async () => {
    const texts = await tokensOf(
      Array.from({ length: 20 }, () => ({ prompt: 'again: ', output: 'what was said before is said again' })),
      undefined,
    );
    const counts = replay(texts, new SuffixDrafter(), { tokens: 7 });
    const [head, line] = draftsTable([{ drafter: 'suffix', most: 7, counts, cpuSeconds: 1 }]);
    expect(head).toMatch(/^drafter +drafts +tokens a call +rows a call +accepted/);
    expect(line).toMatch(/^suffix +7 +[4-7]\.\d\d +[4-8]\.\d\d +\d+\.\d %/);
  });
});
