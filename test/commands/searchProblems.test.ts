/** What `search` reads: lines of problems, sets by name, and what is refused. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { givenProblems, readProblems } from '../../commands/searchProblems.js';
import { UserError } from '../../errors.js';
import { temporaryFolder } from '../models/support.js';

const rejected = async (run: () => unknown): Promise<string> => {
  try {
    await run();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  throw new Error('nothing was refused');
};

const linesOf = (lines: readonly unknown[]): string =>
  lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n');

const read = (lines: readonly unknown[], limit?: number) => {
  const path = join(temporaryFolder(), 'some problems.jsonl');
  writeFileSync(path, linesOf(lines));
  return readProblems({ kind: 'file', path }, limit);
};

describe('lines of problems', () => {
  it('have a text, an answer if there is one, a name, and short facts', async () => {
    const { task, total, problems } = await read([
      { problem: '2 + 2?', answer: '4' },
      { problem: 'P', answer: 7, unique_id: 'test/a.json', level: 3, subject: 'Algebra', solution: 'x'.repeat(300) },
      { id: 12, problem: 'P', answer: null, steps: ['no text'] },
    ]);
    expect([task, total]).toEqual(['some_problems', 3]);
    expect(problems).toEqual([
      { problem: { id: '0', problem: '2 + 2?', answer: '4' }, beside: {} },
      { problem: { id: 'test/a.json', problem: 'P', answer: '7' }, beside: { level: 3, subject: 'Algebra' } },
      { problem: { id: '12', problem: 'P' }, beside: {} },
    ]);
  });

  it('are limited, and hashed by what is searched', async () => {
    const lines = [{ problem: 'a' }, { problem: 'b', answer: '1' }, { problem: 'c' }];
    const [all, two, first] = [await read(lines), await read(lines, 2), await read(lines.slice(0, 2))];
    expect([two.problems.length, two.total, two.sha256]).toEqual([2, 3, first.sha256]);
    expect(all.sha256).not.toBe(two.sha256);
  });

  it('may be compressed', async () => {
    const path = join(temporaryFolder(), 'p.jsonl.gz');
    writeFileSync(path, gzipSync(linesOf([{ problem: 'a' }])));
    expect((await readProblems({ kind: 'file', path }, undefined)).task).toBe('p');
  });

  it.each([
    ['{"problem": "a"', 'not valid JSON'],
    [[1], 'expected a JSON object, got [1]'],
    [{}, 'problem: expected a text that is not empty, got null'],
    [{ problem: '\n ' }, 'problem: expected a text that is not empty'],
    [{ problem: 3 }, 'problem: expected a text that is not empty, got 3'],
    [{ problem: 'a', answer: ['4'] }, 'answer: expected a text or a number, got ["4"]'],
    [{ problem: 'a', answer: 'x'.repeat(70_000) }, 'answer: a text of more than 65536 characters'],
    [{ problem: 'a', id: '' }, 'id: expected a number, or a text of 1 to 200 characters'],
    [{ problem: 'a', id: {} }, 'id: expected a number, or a text of 1 to 200 characters'],
    [{ problem: 'a', id: 0 }, 'the id "0" is that of some problems.jsonl:1, too'],
    [`{"problem": ${'['.repeat(300)}${']'.repeat(300)}}`, 'the line is nested more than 200 deep'],
  ])('are refused: %j', async (line, message) => {
    expect(await rejected(() => read([{ problem: 'first' }, line]))).toContain(`some problems.jsonl:2: ${message}`);
  });

  it('drops keys that are no names of facts', async () => {
    const { problems } = await read(['{"problem": "a", "__proto__": {"answer": "1"}, "a b": 1, "ok": 2}']);
    expect(problems).toEqual([{ problem: { id: '0', problem: 'a' }, beside: { ok: 2 } }]);
  });

  it('must be there', async () => {
    expect(await rejected(() => read([]))).toContain('holds no problems');
    expect(await rejected(() => readProblems({ kind: 'file', path: '/nowhere/p.jsonl' }, undefined))).toBe(
      'no such file of problems: /nowhere/p.jsonl',
    );
  });
});

describe('problems of a program', () => {
  it('are texts or records', async () => {
    expect(givenProblems(['a', { problem: 'b', answer: 2, id: 'x' }]).problems.map(({ problem }) => problem)).toEqual([
      { id: '0', problem: 'a' },
      { id: 'x', problem: 'b', answer: '2' },
    ]);
    expect(await rejected(() => givenProblems(['a', { problem: 'b', id: '0' }]))).toBe(
      'problems[1]: the id "0" is that of another problem',
    );
    expect(await rejected(() => givenProblems([{ problem: '' }]))).toContain('problems[0]: problem: expected');
  });
});

describe('sets of problems', () => {
  const rows = (root: string, dataset: string, file: string, lines: readonly unknown[]): void => {
    const folder = join(root, dataset);
    mkdirSync(join(folder, file, '..'), { recursive: true });
    writeFileSync(join(folder, file), linesOf(lines));
  };

  it('are read by the name of their task', async () => {
    const dataRoot = temporaryFolder();
    rows(dataRoot, 'HuggingFaceH4/MATH-500', 'test.jsonl', [
      { problem: 'P', solution: 's', answer: '\\frac{1}{2}', level: 2, unique_id: 'test/1.json' },
    ]);
    rows(dataRoot, 'openai/gsm8k', 'main/test.jsonl', [
      { question: 'Q', answer: 'He has 1,000.\n#### 1,000' },
      { question: 'R', answer: '#### -3' },
    ]);
    const math = await readProblems({ kind: 'set', name: 'minerva_math500', dataRoot }, undefined);
    expect([math.task, math.problems]).toEqual([
      'minerva_math500',
      [
        {
          problem: { id: 'test/1.json', problem: 'P', answer: '\\frac{1}{2}' },
          beside: { level: 2, solution: 's' },
        },
      ],
    ]);
    const gsm = await readProblems({ kind: 'set', name: 'gsm8k', dataRoot }, undefined);
    expect(gsm.problems.map(({ problem }) => problem)).toEqual([
      { id: '0', problem: 'Q', answer: '1000' },
      { id: '1', problem: 'R', answer: '-3' },
    ]);
  });

  it('are refused where they are not known or not there', async () => {
    expect(await rejected(() => readProblems({ kind: 'set', name: 'gsm9k' }, undefined))).toBe(
      '--task gsm9k: expected minerva_math500 or gsm8k',
    );
    expect(await rejected(() => readProblems({ kind: 'set', name: 'constructor' }, undefined))).toContain('expected');
    const dataRoot = temporaryFolder();
    expect(await rejected(() => readProblems({ kind: 'set', name: 'gsm8k', dataRoot }, undefined))).toContain('gsm8k');
  });
});
