/** Tokens on a page: blocks made of tokens_*.jsonl, what files have that is odd, and the tree of a question. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { collectReport } from '../../report/collect/collectReport.js';
import { countOf, type Token, type TokenBlock, tokensOf, tokenTree } from '../../report/document/questions.js';
import type { About } from '../../report/document/sections.js';
import { DATE, writeRun } from '../support/results.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-tokens-'));
afterAll(() => rmSync(root, { recursive: true }));
let made = 0;

interface Line {
  readonly shared_tokens: number;
  readonly choices: readonly object[];
}

/** A run of questions with the choices ' yes' and ' no', and a file of tokens with these lines. */
function runWith(lines: readonly (Line | string)[]): string {
  const choices = ['yes indeed', 'no'];
  const folder = writeRun(join(root, String(made++)), { t: lines.map(() => ({ lls: [-1, -2], choices })) });
  const text = lines.map((line, doc_id) => (typeof line === 'string' ? line : JSON.stringify({ doc_id, ...line })));
  writeFileSync(join(folder, `tokens_t_${DATE}.jsonl`), `${text.join('\n')}\n`);
  return folder;
}

function collect(folder: string): { tokens: TokenBlock; notes: readonly string[] } {
  const { blocks, about } = collectReport({ runs: [folder], writer: '', now: new Date(0) });
  const found = [...blocks].find(({ name }) => name === 'questions.tokens.0.0');
  return { tokens: (found?.content ?? []) as TokenBlock, notes: (about satisfies About).notes };
}

const choice = (texts: readonly (string | null)[], logprobs: readonly number[], omitted_tokens = 0): object => ({
  ...{ omitted_tokens, tokens: texts.map((_, i) => i), texts, logprobs },
});

describe('tokens of a report', () => {
  it('are lengths where texts are those of the choice, and texts elsewhere', () => {
    const { tokens } = collect(
      runWith([
        {
          shared_tokens: 9,
          choices: [choice([' yes', ' indeed'], [-1.2345, -0.001]), choice([' so', ' n', 'o'], [-3], 4)],
        },
      ]),
    );
    expect(tokens).toEqual([
      {
        shared: 9,
        choices: [
          { omitted: 0, logProbs: [-1.23, 0], lengths: [4, 7] },
          { omitted: 4, logProbs: [-3], texts: [' so', ' n', 'o'] },
        ],
      },
    ]);
  });

  it('are left out where a line is not one of tokens', () => {
    const whole = { shared_tokens: 1, choices: [choice([' yes'], [-1])] };
    const { tokens, notes } = collect(
      runWith([
        whole,
        'not json',
        '{"doc_id":2,"shared_tokens":"1","choices":[]}',
        { shared_tokens: 1, choices: [choice([' yes'], [-1, -2])] },
        '{"doc_id":4,"shared_tokens":1,"choices":[{"omitted_tokens":0,"tokens":[1],"texts":[7],"logprobs":[]}]}',
      ]),
    );
    expect(tokens.map((each) => each !== null)).toEqual([true, false, false, false, false]);
    expect(notes.join()).toMatch(/tokens_t_.*: 1 of its lines are no tokens of a question/);
  });

  it('are not there without a file', () => {
    expect(collect(writeRun(join(root, String(made++)), { t: [{ lls: [-1, -2] }] })).tokens).toEqual([]);
  });
});

describe('the tree of a question', () => {
  const token = (text: string | null, logProb: number | null = -1): Token => ({ text, logProb });

  it('has what choices begin with once', () => {
    const choices = [
      [token('a', null), token('b'), token('c')],
      [token('a', null), token('b')],
      [token('a', null), token('d', -2)],
    ];
    const tree = tokenTree(choices);
    expect(tree.tokens).toEqual([token('a', null)]);
    expect(tree.children.map(({ tokens, ends }) => [tokens.map(({ text }) => text).join(), ends])).toEqual([
      ['b', [1]],
      ['d', [2]],
    ]);
    expect(tree.children[0]!.children[0]).toEqual({ tokens: [token('c')], ends: [0], children: [] });
    expect(countOf(tree)).toBe(4);
  });

  it('keeps equal texts of other probabilities apart, and equal choices together', () => {
    expect(tokenTree([[token('a', -1)], [token('a', -2)]]).children).toHaveLength(2);
    expect(tokenTree([[token(null)], [token(null)]])).toEqual({ tokens: [token(null)], ends: [0, 1], children: [] });
    expect(countOf(tokenTree([]))).toBe(0);
  });

  it('takes texts from the choice by their lengths', () => {
    expect(tokensOf({ omitted: 0, lengths: [4, 7], logProbs: [-1] }, ' yes indeed')).toEqual([
      token(' yes', null),
      token(' indeed', -1),
    ]);
    expect(tokensOf({ omitted: 0, texts: [null, 'x'], logProbs: [-1, -2] }, '')).toEqual([
      token(null, -1),
      token('x', -2),
    ]);
  });
});
