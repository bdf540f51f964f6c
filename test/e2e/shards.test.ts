/** Parts of a run, scored by separate processes and merged, equal the whole run on the demonstration model. */
import { copyFileSync, cpSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { VOLATILE_FIELDS } from '../support/results.js';
import { thorough } from '../support/thorough.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import {
  answersOf,
  failure,
  filesOf,
  isBuilt,
  killedAt,
  type Outcome,
  ROOT,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  tilewrightProcess,
} from './support.js';

const MODEL = join(ROOT, 'models', 'demo');
const DATA = join(ROOT, 'examples', 'everyday.jsonl');

describe.skipIf(!isBuilt)('shards', () => {
  const run = (out: string, ...more: string[]): string[] => [
    'run',
    MODEL,
    '--task',
    'hellaswag',
    '--data',
    DATA,
    '--threads',
    '1',
    '--out',
    out,
    ...more,
  ];
  // A small model for tests that need many runs; it shares its kernels with other tests of interrupted runs.
  const small = writeCheckpoint();
  const smallData = writeData(questions(400));
  const runSmall = (out: string, ...more: string[]): string[] => [
    'run',
    small,
    '--task',
    'multiple_choice',
    '--data',
    smallData,
    '--threads',
    '1',
    '--batch-tokens',
    '96',
    '--out',
    out,
    ...more,
  ];
  const folderOf = (out: string, shard: string, model = 'demo'): string =>
    join(out, model, `shard-${shard.replace('/', '-of-')}`);
  const merge = (...args: string[]): Promise<Outcome> => tilewright(['merge', ...args]);

  /** The text of results_*.json without the fields and counts that differ between equal runs. */
  const steady = (out: string): { readonly text: string; readonly counts: unknown } => {
    const results = JSON.parse(textOf(out, 'results')) as Record<string, Record<string, unknown>>;
    const { questions, tokensComputed, tokensWithoutSharing, modelFlops } = results['throughput'] ?? {};
    for (const field of VOLATILE_FIELDS) {
      expect(results).toHaveProperty(field);
      delete results[field];
    }
    return { text: JSON.stringify(results), counts: { questions, tokensComputed, tokensWithoutSharing, modelFlops } };
  };
  const isWhole = (merged: string, whole: string): void => {
    expect(textOf(merged, 'samples')).toBe(textOf(whole, 'samples'));
    expect(steady(merged)).toEqual(steady(whole));
  };

  const whole = temporaryFolder();
  /** Three shards in one folder. Tests that change them work on copies. */
  const parts = temporaryFolder();
  beforeAll(async () => {
    success(await tilewright(run(whole)));
    await Promise.all(
      ['1/3', '2/3', '3/3'].map(async (shard) => success(await tilewrightProcess(run(parts, '--shard', shard)))),
    );
  });
  const copyOfParts = (): string => {
    const copy = temporaryFolder();
    cpSync(parts, copy, { recursive: true });
    return copy;
  };

  test('merge to what one run writes, if three of them run side by side', async () => {
    const merged = temporaryFolder();
    const { stdout } = success(await merge(parts, '--out', merged));
    expect(stdout).toContain('136 questions of 3 shards');
    isWhole(merged, whole);
    for (const shard of ['1/3', '2/3', '3/3']) expect(answersOf(folderOf(parts, shard)).length).toBeGreaterThan(40);
    // Again, from separate folders, into the folder of the shards itself.
    const again = copyOfParts();
    success(await merge(...['3/3', '1/3', '2/3'].map((shard) => folderOf(again, shard)), '--out', again));
    const own = filesOf(again, 'samples').filter((path) => !path.includes('shard-'));
    expect(own.map((path) => readFileSync(path, 'utf8'))).toEqual([textOf(whole, 'samples')]);
  });

  test('can cover some of the questions, and can be more than there is work for', async () => {
    const [one, five, merged] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
    const flags = ['--sharing', 'none', '--docs', '7:11'];
    success(await tilewright(runSmall(one, ...flags)));
    await Promise.all(
      [5, 1, 4, 2, 3].map(async (index) =>
        success(await tilewright(runSmall(five, ...flags, '--shard', `${index}/5`))),
      ),
    );
    success(await merge(five, '--out', merged));
    isWhole(merged, one);
    const counts = [1, 2, 3, 4, 5].map(
      (index) => textOf(folderOf(five, `${index}/5`, 'small'), 'samples').split('\n').length - 1,
    );
    expect(counts.sort()).toEqual([0, 1, 1, 1, 1]);
  });

  thorough('take their number from a Slurm array, a Kubernetes Indexed Job or srun', async () => {
    const out = temporaryFolder();
    const environments = [
      {
        SLURM_ARRAY_TASK_ID: '5',
        SLURM_ARRAY_TASK_COUNT: '3',
        SLURM_ARRAY_TASK_MIN: '5',
        SLURM_ARRAY_TASK_MAX: '7',
        SLURM_PROCID: '0',
        SLURM_NTASKS: '1',
      },
      { JOB_COMPLETION_INDEX: '1', TILEWRIGHT_SHARDS: '3' },
      { SLURM_PROCID: '2', SLURM_NTASKS: '3' },
    ];
    await Promise.all(environments.map(async (env) => success(await tilewright(run(out, '--shard'), { env }))));
    const merged = temporaryFolder();
    success(await merge(out, '--out', merged));
    isWhole(merged, whole);
  });

  test('merge to the same after they were killed and resumed; none resumes with the journal of another', async () => {
    const [undisturbed, out, merged] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
    success(await tilewright(runSmall(undisturbed)));
    await killedAt(5000, out, runSmall(out, '--shard', '2/2'));
    const [journal = ''] = filesOf(folderOf(out, '2/2', 'small'), 'journal');
    expect(filesOf(out, 'results')).toEqual([]);
    expect(readFileSync(journal, 'utf8')).toMatch(/^\{"journal":2,"run":\{.*"shard":"2\/2"/);
    expect(failure(await merge(out, '--out', merged)).error).toContain('no shard has results yet');

    const asOther = folderOf(out, '1/2', 'small');
    mkdirSync(asOther);
    copyFileSync(journal, join(asOther, basename(journal)));
    expect(failure(await tilewright(runSmall(out, '--shard', '1/2', '--resume'))).error).toContain(
      'it differs in shard (journal "2/2", now "1/2")',
    );
    rmSync(asOther, { recursive: true });
    const ofThree = failure(await tilewright(runSmall(out, '--shard', '1/3', '--resume')));
    expect(ofThree.error).toContain('holds journals of shards of 2, but this is shard 1/3');
    expect(ofThree.hint).toContain('--shard 2/2');
    expect(failure(await tilewright(runSmall(out, '--resume'))).error).toContain(
      'holds journals of shards of 2, but this is the whole run',
    );
    expect(failure(await tilewright(runSmall(undisturbed, '--shard', '1/2', '--resume'))).error).toContain(
      'is the journal of the whole run, but this is shard 1/2',
    );

    const { stderr } = success(await tilewright(runSmall(out, '--shard', '2/2', '--resume')));
    expect(stderr).toMatch(/[1-9]\d* questions taken over from/);
    success(await tilewright(runSmall(out, '--shard', '1/2', '--resume')));
    success(await merge(out, '--out', merged));
    expect(textOf(merged, 'samples')).toBe(textOf(undisturbed, 'samples'));
    expect(steady(merged).text).toBe(steady(undisturbed).text);
  });

  describe('are refused', () => {
    const refused = async (...folders: string[]): Promise<{ readonly error: string; readonly hint: string }> => {
      const out = temporaryFolder();
      const said = failure(await merge(...folders, '--out', out));
      expect(filesOf(out, 'results')).toEqual([]);
      expect(filesOf(out, 'samples')).toEqual([]);
      return said;
    };
    const edit = (path: string, change: (text: string) => string): void =>
      writeFileSync(path, change(readFileSync(path, 'utf8')));

    test('if one is missing', async () => {
      const out = copyOfParts();
      rmSync(folderOf(out, '2/3'), { recursive: true });
      const { error, hint } = await refused(out);
      expect(error).toBe('shard 2/3 has no results yet');
      expect(hint).toContain(
        `tilewright run ${MODEL} --task hellaswag --data ${DATA} --out ${out} --shard 2/3 --resume`,
      );
    });

    test('if two are missing, one of which was stopped', async () => {
      const out = copyOfParts();
      rmSync(folderOf(out, '1/3'), { recursive: true });
      for (const path of [...filesOf(folderOf(out, '3/3'), 'results'), ...filesOf(folderOf(out, '3/3'), 'samples')])
        rmSync(path);
      expect((await refused(out)).error).toBe(
        'shards 1/3, 3/3 have no results yet (some have a journal: they run, or were stopped)',
      );
    });

    test('if one occurs twice', async () => {
      const { error, hint } = await refused(parts, copyOfParts());
      expect(error).toMatch(/^shard 1\/3 is given twice: .* and /);
      expect(hint).toContain('tilewright merge ');
    });

    test('if one has another sharing mode', async () => {
      const out = copyOfParts();
      rmSync(folderOf(out, '3/3'), { recursive: true });
      success(await tilewright(run(out, '--shard', '3/3', '--sharing', 'none')));
      expect((await refused(out)).error).toMatch(/not parts of one run: they differ in sharing \(tree and none\)$/);
    });

    test.each([
      'artifact',
      'arithmetic',
      'isa',
      'dataset',
      'questions',
      'taskVersion',
      'docs',
      'tokenizer',
      'checkpoint',
    ])('if one differs in %s', async (name) => {
      const out = copyOfParts();
      edit(filesOf(folderOf(out, '2/3'), 'results')[0] ?? '', (text) => {
        const results = JSON.parse(text) as { shard: { run: Record<string, unknown> } };
        expect(results.shard.run).toHaveProperty(name);
        results.shard.run[name] = 'another';
        return JSON.stringify(results);
      });
      expect((await refused(out)).error).toMatch(
        new RegExp(`not parts of one run: they differ in ${name} \\(.* and another\\)$`),
      );
    });

    test('if one belongs to another number of shards', async () => {
      const out = copyOfParts();
      edit(filesOf(folderOf(out, '2/3'), 'results')[0] ?? '', (text) => text.replace(/"count": 3/, '"count": 2'));
      expect((await refused(out)).error).toContain('not parts of one run: they differ in shards (3 and 2)');
    });

    test('if a question occurs twice, though each shard is sound', async () => {
      // Shard 2 gets the samples and results of shard 1.
      const out = copyOfParts();
      rmSync(folderOf(out, '2/3'), { recursive: true });
      cpSync(folderOf(out, '1/3'), folderOf(out, '2/3'), { recursive: true });
      edit(filesOf(folderOf(out, '2/3'), 'results')[0] ?? '', (text) => text.replace(/"index": 1/, '"index": 2'));
      expect((await refused(out)).error).toMatch(/^question \d+ is in shard 1\/3 and in shard 2\/3/);
    });

    test.each<[string, (samples: string) => string, RegExp]>([
      ['a line short', (text) => text.slice(text.indexOf('\n') + 1), /does not hold the samples/],
      ['of another document', (text) => text.replace(/"doc_hash":"../, '"doc_hash":"00'), /does not hold the samples/],
      [
        'with another answer',
        (text) => text.replace(/\["-\d/, '["-9'),
        /does not hold the samples|were edited|was edited/,
      ],
      [
        'with another accuracy',
        (text) => text.replace(/"acc":[01]/, (acc) => (acc.endsWith('0') ? '"acc":1' : '"acc":0')),
        /:1: acc and acc_norm do not match the log-likelihoods/,
      ],
      ['with a field more', (text) => text.replace('{"doc_id"', '{"more":1,"doc_id"'), /does not hold the samples/],
      ['cut', (text) => text.slice(0, -100), /:\d+: not a sample/],
      ['something else', () => '[]\n', /:1: not a sample/],
    ])('if samples are %s', async (_, change, expected) => {
      const out = copyOfParts();
      edit(filesOf(folderOf(out, '2/3'), 'samples')[0] ?? '', change);
      const { error, hint } = await refused(out);
      expect(error).toMatch(expected);
      expect(hint).toContain('shard 2/3 again');
    });

    test('if samples or shards are missing, or results are something else', async () => {
      const out = copyOfParts();
      const [samples = ''] = filesOf(folderOf(out, '1/3'), 'samples');
      renameSync(samples, `${samples}.gone`);
      expect((await refused(out)).error).toContain('is missing beside its results');
      expect((await refused(whole)).error).toContain('contains no results of shards');
      expect((await refused(join(out, 'nowhere'))).error).toContain('no such folder');
      edit(filesOf(folderOf(out, '3/3'), 'results')[0] ?? '', (text) => text.replace(/"shard": \{[^]*$/, '"x": 0}'));
      expect((await refused(out)).error).toMatch(/is not what a run with --shard writes \(shard: /);
    });
  });
});
