/** The flags of drafts, alike in all commands that generate, and what summaries say of them. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { depthLines, draftLines, draftSummary } from '../../cli/draftText.js';
import { runSummary } from '../../cli/runSummary.js';
import { draftSums } from '../../commands/draftFigures.js';
import { draftModelOf } from '../../commands/draftOptions.js';
import { modelDrafts } from '../../commands/drafts.js';
import { runFolder } from '../support/runFolder.js';
import { runCli, type Stories } from './fakeIo.js';

const COMMANDS: readonly (readonly [string, readonly string[]])[] = [
  ['generate', ['generate', 'm', 'a']],
  ['serve', ['serve', 'm']],
  ['search', ['search', 'm', '--method', 'majority', '--problems', 'p.jsonl']],
  ['run', ['run', 'm', '--tasks', 'gsm8k']],
];

/** What a command was asked for, and what it said. */
async function asked(argv: readonly string[]) {
  let request: Record<string, unknown> | undefined;
  const seen = (given: object): never => {
    request = { ...given };
    throw new Error('seen');
  };
  const commands: Partial<Stories> = Object.fromEntries(COMMANDS.map(([name]) => [name, seen]));
  const { status, stderr } = await runCli(argv, commands);
  return { request, status, stderr };
}

describe.each(COMMANDS)('%s', (_, argv) => {
  const folder = join(runFolder(), 'draft');

  it('hands over who drafts, and how much', async () => {
    mkdirSync(folder, { recursive: true });
    for (const draft of ['suffix', 'ngram', 'mtp', 'off', folder])
      expect((await asked([...argv, '--draft', draft])).request).toMatchObject({ draft });
    const { request } = await asked([...argv, '--draft', 'ngram', '--draft-tokens', '15']);
    expect(request).toMatchObject({ draft: 'ngram', draftTokens: 15 });
    expect((await asked([...argv, '--draft=suffix', '--draft_tokens=auto'])).request).toMatchObject({
      draft: 'suffix',
      draftTokens: 'auto',
    });
    expect((await asked(argv)).request).not.toHaveProperty('draft');
  });

  it.each([
    [
      ['--draft', 'sufix'],
      '--draft sufix: expected suffix, ngram, mtp, off or the folder of',
      'did you mean --draft suffix',
    ],
    [['--draft', 'no/such/folder'], '--draft no/such/folder: expected', 'for example: --draft suffix'],
    [['--draft', 'ngram', '--draft-tokens', '16'], 'expected a whole number from 1 to 15', '--draft-tokens 4'],
    [['--draft', 'ngram', '--draft-tokens', '0'], 'expected a whole number from 1 to 15', '--draft-tokens 4'],
    [['--draft', 'off', '--draft-tokens', '4'], '--draft-tokens: nothing is drafted', '--draft suffix'],
  ])('refuses %j in one line', async (flags, message, hint) => {
    const { request, status, stderr } = await asked([...argv, ...flags]);
    expect([request, status]).toEqual([undefined, 2]);
    expect(stderr).toMatch(/^error: .*\nhint: .*\n$/);
    expect(stderr).toContain(message);
    expect(stderr).toContain(hint);
  });
});

describe('drafts', () => {
  it('are refused where nothing has a use for them', async () => {
    const beams = await asked(['generate', 'm', 'a', '--draft', 'suffix', '--beams', '4']);
    expect([beams.status, beams.stderr]).toEqual([2, expect.stringContaining('--beams has no use for drafts')]);
    expect((await asked(['generate', 'm', 'a', '--draft', 'off', '--beams', '4'])).request).toBeDefined();
    const scored = await asked(['run', 'm', '--task', 'hellaswag', '--data', 'd', '--draft', 'suffix']);
    expect([scored.status, scored.stderr]).toEqual([2, expect.stringContaining('--draft is for --tasks')]);
  });

  it('are of the host, of the device, or of nobody', () => {
    expect(modelDrafts({ draft: 'off' })).toBeUndefined();
    expect(modelDrafts({ draft: 'suffix', draftTokens: 3 })).toMatchObject({ drafter: { name: 'suffix' }, tokens: 3 });
    expect(modelDrafts({ draft: 'ngram' })?.drafter?.name).toBe('ngram');
    expect(modelDrafts({ draft: './ngram', draftTokens: 'auto' })).toEqual({ tokens: 'auto' });
    expect(['suffix', 'ngram', 'off', undefined].map((draft) => draftModelOf(draft ? { draft } : {}))).toEqual(
      Array(4).fill({}),
    );
    for (const draft of ['mtp', './ngram']) expect(draftModelOf({ draft })).toEqual({ draftModel: draft });
    expect(modelDrafts({})?.drafter?.name).toBe('suffix');
  });
});

describe('a summary', () => {
  const FIGURES = {
    ...{ writtenTokens: 6300, writtenParts: 3000 },
    drafts: [
      { drafter: 'ngram', rounds: 10, drafted: [10, 4], accepted: [7] },
      { drafter: 'suffix', rounds: 2996, drafted: [2996], accepted: [1197] },
    ],
  };

  it('says how many drafts were accepted, and what a step gave a text', () => {
    expect(draftLines(draftSums(FIGURES))).toEqual(['drafts: 1,204 of 3,010 accepted, 2.1 tokens a step']);
    expect(draftSummary({ writtenTokens: 5, writtenParts: 5, drafts: [] }, true)).toEqual([]);
    expect(depthLines(FIGURES)).toEqual([
      'ngram drafts in 10 steps of texts, accepted by depth 1: 7 of 10, 2: 0 of 4',
      'suffix drafts in 2,996 steps of texts, accepted by depth 1: 1,197 of 2,996',
    ]);
    expect(draftSummary(FIGURES, false)).toHaveLength(1);
    expect(draftSummary(FIGURES, true)).toHaveLength(3);
  });

  it('of a run has them beside its texts', () => {
    const generation = { texts: 3, seconds: 2, computedTokens: 9, foundTokens: 0, ...draftSums(FIGURES) };
    const files = { resultsPath: undefined, samplesPath: undefined };
    expect(runSummary({ results: { generation }, table: '', ...files })).toContain(
      '3 texts generated in 2.00 s\ndrafts: 1,204 of 3,010 accepted, 2.1 tokens a step\n',
    );
    const before = { texts: 3, seconds: 2, computedTokens: 9, foundTokens: 0 };
    expect(runSummary({ results: { generation: before }, table: '', ...files })).not.toContain('drafts');
  });
});
