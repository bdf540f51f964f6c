/** Problems side by side over a made-up search, their journal, and the files that they end in. */
import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { figuresTable, gradeProblem, searchFigures } from '../../commands/searchFigures.js';
import { searchAll, type SearchingAll } from '../../commands/searchAll.js';
import { SearchJournal } from '../../commands/searchJournal.js';
import { givenProblems } from '../../commands/searchProblems.js';
import { SearchReporter } from '../../commands/searchReporter.js';
import type { SearchedProblem } from '../../commands/searchRequest.js';
import { UserError } from '../../errors.js';
import { GenerateError } from '../../engine/request.js';
import type { Problem } from '../../search/path.js';
import type { ProblemResult } from '../../search/result.js';
import { ProblemSchedule } from '../../search/schedule.js';
import { temporaryFolder } from '../models/support.js';

const resultOf = (text: string): ProblemResult => ({
  tree: [
    {
      parent: null,
      iteration: 0,
      text,
      tokens: 3,
      end: 'eos',
      scores: 1,
      last: 0.1,
      aggregate: 0.1,
      fate: 'completed',
    },
  ],
  candidates: [{ text, step: 0, isCompleted: true, scores: [0.1], aggregate: 0.1, tokens: 3 }],
  picked: 0,
  drawnSteps: 1,
  drawnTokens: 3,
  notes: [],
});

const PROBLEMS = Array.from({ length: 9 }, (_, i) => ({ problem: `P${i}`, answer: String(i % 2), id: `id${i}` }));
const problems = givenProblems(PROBLEMS);
const all = problems.problems.map(({ problem }) => problem);
const OPTIONS = { method: 'beam' } as const;

function searching(of: Partial<SearchingAll> & { readonly most?: number } = {}): SearchingAll {
  const { most = 4, ...rest } = of;
  return {
    search: ({ problem }) => Promise.resolve(resultOf(`${problem}: $\\boxed{${problem.slice(1)}}$`)),
    schedule: new ProblemSchedule({ options: OPTIONS, most }),
    writer: { write: () => Promise.reject(new Error('no step is asked for')) },
    judge: undefined,
    options: OPTIONS,
    done: new Map(),
    signal: new AbortController().signal,
    ...rest,
  };
}

async function searched(of: Parameters<typeof searching>[0] = {}): Promise<readonly SearchedProblem[]> {
  const found: SearchedProblem[] = [];
  await searchAll(all, searching(of), (each) => found.push(each));
  return found;
}

describe('problems side by side', () => {
  it.each([1, 4, 128])('are all searched, %i at a time', async (most) => {
    let [running, peak] = [0, 0];
    const found = await searched({
      most,
      search: async ({ problem }) => {
        peak = Math.max(peak, ++running);
        for (let i = 0; i < 10 - Number(problem.slice(1)); i++) await Promise.resolve();
        running--;
        return resultOf(problem);
      },
    });
    expect(peak).toBe(Math.min(most, all.length));
    expect(found.map(({ index }) => index).toSorted((a, b) => a - b)).toEqual([...all.keys()]);
    for (const { index, problem } of found) expect(problem).toBe(all[index]);
  });

  it('go on where one fails by its own fault', async () => {
    const found = await searched({
      search: ({ problem }) =>
        problem === 'P2'
          ? Promise.reject(new GenerateError('too long'))
          : problem === 'P3'
            ? Promise.reject(new UserError('no'))
            : Promise.resolve(resultOf(problem)),
    });
    expect(found.length).toBe(all.length);
    expect(found.flatMap((each) => ('error' in each ? [[each.index, each.error]] : []))).toEqual([
      [2, 'too long'],
      [3, 'no'],
    ]);
  });

  it('end where an error is nobody’s, and the others are stopped', async () => {
    const stopped: string[] = [];
    const search = ({ problem }: Problem, signal: AbortSignal | undefined): Promise<ProblemResult> =>
      problem === 'P1'
        ? Promise.resolve().then(() => Promise.reject(new Error('a bug')))
        : new Promise((_, reject) =>
            signal?.addEventListener('abort', () => {
              stopped.push(problem);
              reject(signal.reason as Error);
            }),
          );
    await expect(searched({ search: (problem, { signal }) => search(problem, signal) })).rejects.toThrow('a bug');
    expect(stopped).toEqual(['P0', 'P2', 'P3']);
  });

  it('end where what takes them fails', async () => {
    const take = (): never => {
      throw new UserError('the disk is full');
    };
    await expect(searchAll(all, searching(), take)).rejects.toThrow('the disk is full');
  });

  it('end without an error when they are stopped', async () => {
    const controller = new AbortController();
    const found: number[] = [];
    await searchAll(
      all,
      searching({
        most: 1,
        signal: controller.signal,
        search: ({ problem }, { signal }) => {
          if (problem === 'P3') controller.abort();
          signal?.throwIfAborted();
          return Promise.resolve(resultOf(problem));
        },
      }),
      ({ index }) => found.push(index),
    );
    expect(found).toEqual([0, 1, 2]);
  });

  it('leave out what is done', async () => {
    const asked: string[] = [];
    const found = await searched({
      done: new Map([[4, resultOf('kept')]]),
      search: ({ problem }) => {
        asked.push(problem);
        return Promise.resolve(resultOf(problem));
      },
    });
    expect(asked).not.toContain('P4');
    expect(found[0]).toMatchObject({ index: 4, result: { candidates: [{ text: 'kept' }] } });
    expect(found.length).toBe(all.length);
  });
});

describe('the journal of a search', () => {
  const identity = { checkpoint: 'c', n: 16 };
  const ids = all.map(({ id }) => id);
  const open = (path: string, resume: boolean, of = identity): SearchJournal =>
    new SearchJournal(path, of, resume, ids);
  const written = (): string => {
    const path = join(temporaryFolder(), 'journal_search_p_00000000.jsonl');
    const journal = open(path, false);
    for (const index of [3, 0]) journal.append([{ index, id: ids[index]!, result: resultOf(`text ${index}`) }]);
    journal.close();
    return path;
  };

  it('keeps problems to the bit', () => {
    const journal = open(written(), true);
    expect([...journal.done]).toEqual([3, 0].map((index) => [index, resultOf(`text ${index}`)]));
    journal.close();
  });

  it('loses the line that was being written, and no other', () => {
    const path = written();
    truncateSync(path, readFileSync(path).length - 7);
    const journal = open(path, true);
    expect([...journal.done.keys()]).toEqual([3]);
    journal.append([{ index: 1, id: ids[1]!, result: resultOf('next') }]);
    journal.close();
    const again = open(path, true);
    expect([...again.done.keys()]).toEqual([3, 1]);
    again.close();
  });

  it.each([
    ['an edited line', (text: string) => text.replace('text 3', 'text 4'), ':2: the line was edited or damaged'],
    ['another id', (text: string) => text.replace('"id":"id3"', '"id":"id4"'), ':2: not a finished problem'],
    ['no result', (text: string) => text.replace('"picked":0', '"picked":7'), ':2: not a finished problem'],
    ['a step before its parent', (text: string) => text.replace('"parent":null', '"parent":9'), ':2: not a finished'],
    ['another run', (text: string) => text, 'belongs to another run: it differs in n (journal 16, now 8)'],
    ['no journal', () => '{"journal":2}\n', 'is not a journal'],
  ])('refuses %s', (what, edit, message) => {
    const path = written();
    writeFileSync(path, edit(readFileSync(path, 'utf8')));
    expect(() => open(path, true, what === 'another run' ? { ...identity, n: 8 } : identity)).toThrow(message);
  });

  it('is kept where a search begins again', () => {
    const path = written();
    const journal = open(path, false);
    expect([journal.done.size, journal.kept?.questions, existsSync(path.replace('.jsonl', '.1.jsonl'))]).toEqual([
      0,
      2,
      true,
    ]);
    appendFileSync(path, 'x');
    expect(() => journal.append([{ index: 0, id: ids[0]!, result: resultOf('') }])).toThrow('another process');
    journal.close();
  });
});

describe('figures of a search', () => {
  const graded = (...texts: readonly (string | undefined)[]) =>
    texts.map((text, index) => {
      const problem = { id: String(index), problem: 'P', answer: '7' };
      const found = text === undefined ? { error: 'too long' } : { result: resultOf(`So $\\boxed{${text}}$.`) };
      return gradeProblem({ index, problem, ...found }, 2, false);
    });

  it('are means with the errors of samples; a problem that failed is wrong', () => {
    const found = searchFigures(graded('7', '8', undefined, '7.0'));
    expect([...found.keys()].map((key) => key.replace(',none', '')).toSorted()).toEqual(
      ['exact_match', ...['maj', 'naive', 'pass', 'weighted'].flatMap((name) => [`${name}@1`, `${name}@2`])].toSorted(),
    );
    const half = { value: 0.5, error: Math.sqrt(1 / 3 / 4) };
    for (const figure of found.values()) expect(figure).toEqual(half);
    expect(figuresTable(found).split('\n')).toEqual([
      'right answers: 0.5000 ± 0.2887',
      'N  naive            weighted         maj              pass',
      '1  0.5000 ± 0.2887  0.5000 ± 0.2887  0.5000 ± 0.2887  0.5000 ± 0.2887',
      '2  0.5000 ± 0.2887  0.5000 ± 0.2887  0.5000 ± 0.2887  0.5000 ± 0.2887',
    ]);
    expect(figuresTable(searchFigures(graded('7'))).split('\n')[0]).toBe('right answers: 1.0000');
  });

  it('are none where nothing says what is right', () => {
    const problem = { id: '0', problem: 'P' };
    const found = searchFigures([gradeProblem({ index: 0, problem, result: resultOf('x') }, 2, false)]);
    expect([found.size, figuresTable(found)]).toEqual([0, '']);
  });
});

describe('samples of a search', () => {
  const linesFor = (order: readonly number[]) => {
    const output = temporaryFolder();
    mkdirSync(join(output, 'm'));
    const reporter = new SearchReporter({ output, modelName: 'm' }, problems, { n: 4, compat: null });
    try {
      for (const index of order) {
        const problem = all[index]!;
        const found = { index, problem };
        reporter.add(
          index === 5 ? { ...found, error: 'too long' } : { ...found, result: resultOf(`So $\\boxed{${index}}$.`) },
        );
      }
      const [name] = readdirSync(join(output, 'm'));
      return {
        text: readFileSync(join(output, 'm', name!), 'utf8'),
        folder: join(output, 'm'),
        close: () => reporter.close(),
      };
    } finally {
      reporter.close();
    }
  };

  it('are in the order of the problems, whatever order they end in', () => {
    const [a, b] = [linesFor([...all.keys()]), linesFor([8, 3, 0, 5, 1, 2, 7, 6, 4])];
    expect(b.text).toBe(a.text);
    expect(readdirSync(a.folder)).toEqual([]);
    const lines = a.text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.map((line) => line['doc_id'])).toEqual([...all.keys()]);
    expect(lines[1]).toMatchObject({
      doc: { id: 'id1', problem: 'P1', answer: '1' },
      target: '1',
      resps: [['So $\\boxed{1}$.']],
      filtered_resps: ['So $\\boxed{1}$.'],
      filter: 'none',
      metrics: expect.arrayContaining(['exact_match', 'naive@1', 'weighted@4', 'maj@4', 'pass@4']) as unknown,
      exact_match: 1,
      'pass@4': 1,
      search: resultOf('So $\\boxed{1}$.'),
      answers: { answers: ['1'], right: [true] },
      doc_hash: createHash('sha256').update('{"id":"id1","problem":"P1","answer":"1"}').digest('hex'),
    });
    expect(lines[2]).toMatchObject({ exact_match: 0, 'naive@1': 0 });
    expect(lines[5]).toMatchObject({ error: 'too long', exact_match: 0, resps: [[]], filtered_resps: [''] });
    expect(lines[5]).not.toHaveProperty('search');
  });
});
