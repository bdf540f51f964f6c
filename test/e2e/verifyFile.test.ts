/** Runs of the questions of a file verified, as verify.test.ts does runs of tasks. */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { CheckName } from '../../evaluate/verify/findings.js';
import { filesOf, isBuilt, ROOT, success, temporaryFolder, tilewright } from './support.js';
import {
  DEMO,
  edited,
  failureOf,
  found,
  type Json,
  oneUlp,
  otherChoice,
  PLACE,
  Results,
  verified,
  verify,
} from './tampered.js';
import { thorough } from '../support/thorough.js';

describe.skipIf(!isBuilt)('a run of the questions of a file', () => {
  const folder = temporaryFolder();
  const [out, data] = [join(folder, 'results'), join(folder, 'questions.jsonl')];
  const run = (name: string, ...more: string[]) =>
    tilewright(['run', DEMO, '--task', 'hellaswag', '--data', data, ...PLACE, '--out', join(folder, name), ...more]);
  const TASK = 'hellaswag';

  beforeAll(async () => {
    const lines = readFileSync(join(ROOT, 'examples', 'everyday.jsonl'), 'utf8')
      .split('\n')
      .slice(0, 9);
    writeFileSync(data, lines.map((line) => `${line}\n`).join(''));
    success(await run('results', '--limit', '8'));
  });

  it('agrees to the bit, in all, in a part, and in files alone', async () => {
    const all = await verified(out, '--sample', 'all');
    expect(all).toMatchObject({ status: 0, outcome: 'agrees', differences: [], sample: { documents: 8, of: 8 } });
    expect(all.answers.logLikelihoods).toMatchObject({ compared: 32, equal: 32 });
    expect(await verified(out, '--sample', '3')).toMatchObject({ status: 0, sample: { documents: 3 } });
    expect(await verified(out, '--sample', '0')).toMatchObject({ status: 0, checks: { data: { compared: 8 } } });
  });

  thorough(
    'agrees in the results of shards, of a run that was resumed, of some documents, of an older version',
    async () => {
      for (const shard of ['1/2', '2/2']) success(await run('parts', '--shard', shard));
      success(await tilewright(['merge', join(folder, 'parts'), '--out', join(folder, 'merged')]));
      expect(await verified(join(folder, 'merged'), '--sample', 'all')).toMatchObject({ status: 0, sample: { of: 9 } });
      success(await run('some', '--docs', '1:3,7', '--overlong', 'refuse', '--model-name', 'other'));
      expect(await verified(join(folder, 'some'), '--sample', 'all')).toMatchObject({ status: 0, sample: { of: 3 } });
      const older = new Results(out).results((all) => delete (all['provenance'] as Json)['record']);
      expect(await verified(older.out, '--sample', 'all')).toMatchObject({ status: 0, outcome: 'agrees' });
      for (const kind of ['results', 'samples'] as const)
        for (const path of filesOf(join(folder, 'some'), kind)) rmSync(path);
      success(await run('some', '--docs', '1:3,7', '--overlong', 'refuse', '--model-name', 'other', '--resume'));
      expect(await verified(join(folder, 'some'), '--sample', 'all')).toMatchObject({ status: 0 });
    },
  );

  it.each<[string, (of: Results) => void, CheckName, string | RegExp, ...string[]]>([
    [
      'a log-likelihood by its last bit, in the sample',
      (of) => of.line(TASK, 3, (line) => edited(line, oneUlp)),
      'answers',
      /^log-likelihood of choice A$/,
      'all',
    ],
    [
      'a log-likelihood by its last bit, outside of the sample',
      (of) => of.line(TASK, 3, (line) => edited(line, oneUlp)),
      'samples',
      'samples_sha256',
      '0',
    ],
    ['a choice', (of) => of.line(TASK, 2, otherChoice), 'metrics', /^acc/, '0'],
    [
      'whether it is greedy',
      (of) => of.line(TASK, 2, (line) => line.replace('[false', '[true')),
      'metrics',
      'is_greedy',
    ],
    [
      'a figure',
      (of) => of.results((all) => (((all['results'] as Json)[TASK] as Json)['acc_norm,none'] = 1)),
      'metrics',
      'results.hellaswag.acc_norm,none',
    ],
    ['a line that is gone', (of) => of.lines(TASK, ([, ...rest]) => rest), 'samples', 'line'],
    [
      'two lines in each other’s places',
      (of) => of.lines(TASK, ([a = '', b = '', ...rest]) => [b, a, ...rest]),
      'samples',
      /not in its place/,
    ],
    [
      'a hash',
      (of) => of.line(TASK, 0, (line) => line.replace(/"doc_hash":"./, '"doc_hash":"_')),
      'samples',
      'doc_hash',
    ],
    ['a document', (of) => of.line(TASK, 0, (line) => line.replace('"label":1', '"label":2')), 'samples', 'doc'],
    ['the limit', (of) => of.results((all) => ((all['config'] as Json)['limit'] = null)), 'settings', 'config.limit'],
    [
      'the data',
      (of) => of.results((all) => ((all['provenance'] as Json)['dataset_sha256'] = 'ab')),
      'data',
      'provenance.dataset_sha256',
    ],
  ])('in which was changed: %s', async (_, change, check, what, sample = '0') => {
    const of = new Results(out);
    change(of);
    const result = await verified(of.out, '--sample', sample);
    expect(result).toMatchObject({ status: 3, outcome: 'differs' });
    expect(found(result, check)).toContainEqual(typeof what === 'string' ? what : expect.stringMatching(what));
  });

  it.each([
    ['that was asked', 0, [0, undefined]],
    ['behind those that were asked', 8, [undefined]],
  ])('differs where the file has another question %s', async (_, at, documents) => {
    const before = readFileSync(data, 'utf8');
    const lines = before.split('\n');
    try {
      writeFileSync(
        data,
        lines.map((line, i) => (i === at ? line.replace('"label"', '"more": 1, "label"') : line)).join('\n'),
      );
      const result = await verified(out, '--sample', '0');
      expect(result).toMatchObject({ status: 3, outcome: 'differs' });
      const where = new Set(result.differences.filter(({ check }) => check === 'data').map(({ doc }) => doc));
      expect([...where]).toEqual(documents);
    } finally {
      writeFileSync(data, before);
    }
  });

  it('is found elsewhere by flags', async () => {
    const moved = join(temporaryFolder(), 'moved.jsonl');
    cpSync(data, moved);
    const of = new Results(out).results((all) => {
      const record = (all['provenance'] as Json)['record'] as Json;
      const places = [record['file'], (all['configs'] as Json)[TASK]] as readonly Json[];
      Object.assign(places[0]!, { data: '/no/such/file' });
      Object.assign(places[1]!, { dataset_path: '/no/such/file' });
    });
    expect(failureOf(await verify(of.out)).hint).toContain('--data FILE');
    const result = await verified(of.out, '--data', moved, '--sample', '1');
    expect(result).toMatchObject({ status: 0, outcome: 'agrees' });
    expect(result.opened).toContainEqual({ what: 'data', path: moved });
  });
});
