/** Full disks and folders that cannot be written: reported at once if possible, and nothing finished is lost. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { prepareArtifact } from '../../driver/artifact/save.js';
import { processMark } from '../../system/process.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import {
  CAPACITY,
  failure,
  filesOf,
  isBuilt,
  runArguments,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  tilewrightProcess,
} from './support.js';

const works = (command: string, ...args: string[]): boolean =>
  spawnSync(command, args, { stdio: 'ignore' }).status === 0;

const hasLimit = works('prlimit', '--version');
if (!hasLimit)
  process.stderr.write('SKIPPED: tests of files that may not grow: prlimit (package util-linux) is not there\n');

const mounted = temporaryFolder();
const isMounted = isBuilt && works('mount', '-t', 'tmpfs', '-o', 'size=128k', 'tmpfs', mounted);
if (!isMounted)
  process.stderr.write('SKIPPED: the test of a full disk: a small file system cannot be mounted here (root can)\n');
afterAll(() => {
  if (isMounted) spawnSync('umount', [mounted]);
});

describe.skipIf(!isBuilt)('the command, on a full or read-only disk', () => {
  const model = writeCheckpoint();
  const data = writeData(questions(300));
  const undisturbed = temporaryFolder();
  // Small micro-batches: many questions are finished before the journal cannot grow.
  const run = (out: string, ...more: string[]): string[] => runArguments(model, data, '--out', out, ...more);
  let samples = '';

  beforeAll(async () => {
    success(await tilewright(run(undisturbed)));
    samples = textOf(undisturbed, 'samples');
  });

  test.each<[string, () => string, RegExp]>([
    ['below a file', () => join(writeData([]), 'results'), /not a folder/],
    ['where nothing can be made', () => '/proc/results', /cannot write \/proc\/results/],
  ])('refuses an output folder %s before the model is opened', async (_, make, expected) => {
    const outcome = await tilewright(run(make()));
    const { error, hint } = failure(outcome);
    expect(error).toMatch(expected);
    expect(hint).toContain('--out');
    expect(outcome.stderr).not.toContain('open model');
  });

  test.each<[string, (file: string) => string[]]>([
    ['an artifact', (file) => ['compile', model, ...CAPACITY, '-o', join(file, 'small.tw')]],
    ['a timeline', (file) => runArguments(model, data, '--trace', join(file, 'trace.json'))],
  ])('refuses to write %s where it cannot, before the model is opened', async (_, args) => {
    const outcome = await tilewright(args(writeData([])));
    expect(failure(outcome).error).toMatch(/cannot write .*: a file of that name already exists/);
    expect(outcome.stderr).not.toContain('open model');
  });

  test('never replaces a folder that is not an artifact', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'thesis.txt'), 'years of work');
    expect(failure(await tilewright(['compile', model, ...CAPACITY, '-o', folder])).error).toMatch(
      /is there already and is not an artifact/,
    );
    expect(readdirSync(folder)).toEqual(['thesis.txt']);
  });

  test('writes no artifact where a link points to nothing', async () => {
    const link = join(temporaryFolder(), 'small.tw');
    symlinkSync('/nowhere/small.tw', link);
    const outcome = await tilewright(['compile', model, ...CAPACITY, '-o', link]);
    expect(failure(outcome).error).toMatch(/small\.tw: is a link to nothing/);
    expect(outcome.stderr).not.toContain('open model');
  });

  test('restores an artifact whose writer was killed between its two renames', async () => {
    const folder = temporaryFolder();
    const dead = processMark().replace(/^\d+/, String(2 ** 22 + 1));
    success(await tilewright(['compile', model, ...CAPACITY, '-o', join(folder, `small.tw.${dead}.old`)]));
    mkdirSync(join(folder, `small.tw.${dead}.new`));
    prepareArtifact(join(folder, 'small.tw'));
    expect(readdirSync(folder)).toEqual(['small.tw']);
    success(
      await tilewright(['run', join(folder, 'small.tw'), '--task', 'multiple_choice', '--data', data, '--limit', '1']),
    );
    // An artifact that is still being written is left alone.
    mkdirSync(join(folder, `small.tw.${processMark()}.new`));
    prepareArtifact(join(folder, 'small.tw'));
    expect(readdirSync(folder)).toEqual(['small.tw', `small.tw.${processMark()}.new`]);
  });

  const limited = (bytes: number): { prefix: string[] } => ({ prefix: ['prlimit', `--fsize=${bytes}`] });
  const journalBytes = (): number => readFileSync(filesOf(undisturbed, 'journal')[0] ?? '').length;
  /**
   * Expects no results and nothing half-written. What was finished is in the journal, and resuming gives the same
   * samples.
   */
  const goesOn = async (out: string): Promise<void> => {
    expect([...filesOf(out, 'samples'), ...filesOf(out, 'results')]).toEqual([]);
    expect(readdirSync(join(out, 'small')).filter((name) => name.startsWith('.'))).toEqual(['.checkpoint']);
    const finished =
      readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8')
        .trimEnd()
        .split('\n').length - 1;
    expect(finished).toBeGreaterThan(20);
    const { stderr } = success(await tilewright(run(out, '--resume')));
    expect(stderr).toContain(`${finished} questions taken over`);
    expect(textOf(out, 'samples')).toBe(samples);
  };

  test.skipIf(!hasLimit)('ends the run if the journal cannot grow, and resuming finishes it', async () => {
    const out = temporaryFolder();
    const { error, hint } = failure(await tilewrightProcess(run(out), limited(Math.floor(journalBytes() / 2))));
    expect(error).toMatch(/cannot write .*journal_multiple_choice_\w+\.jsonl: the file would exceed the size limit/);
    expect(hint).toContain('--resume');
    await goesOn(out);
  });

  test.skipIf(!hasLimit)('keeps the journal if samples do not fit, and resuming writes them', async () => {
    const out = temporaryFolder();
    const { error, hint } = failure(await tilewrightProcess(run(out), limited(journalBytes() + 1000)));
    expect(error).toMatch(/cannot write .*samples_.*: the file would exceed the size limit/);
    expect(hint).toContain('--resume');
    await goesOn(out);
  });

  test.skipIf(!isMounted)('says that the disk is full; with more space, resuming finishes the run', async () => {
    const out = join(mounted, 'results');
    const { error, hint } = failure(await tilewright(run(out)));
    expect(error).toMatch(/cannot write .*(journal|samples)_.*: the disk is full/);
    expect(hint).toMatch(/Free some space.*--resume/);
    expect(works('mount', '-o', 'remount,size=16m', mounted)).toBe(true);
    await goesOn(out);
  });

  test.skipIf(!hasLimit)('leaves no part of an artifact that does not fit, and keeps the one before it', async () => {
    const folder = temporaryFolder();
    const artifact = join(folder, 'small.tw');
    const compile = ['compile', model, ...CAPACITY, '-o', artifact];
    const first = failure(await tilewrightProcess(compile, limited(32_768)));
    expect(first.error).toMatch(/cannot write .*small\.tw: the file would exceed the size limit/);
    expect(first.hint).toMatch(/space/);
    expect(readdirSync(folder)).toEqual([]);
    success(await tilewright(compile));
    const before = readFileSync(join(artifact, 'manifest.json'), 'utf8');
    failure(await tilewrightProcess(compile, limited(32_768)));
    expect(readdirSync(folder)).toEqual(['small.tw']);
    expect(readFileSync(join(artifact, 'manifest.json'), 'utf8')).toBe(before);
  });

  test('ends the run if the kernel cache cannot be made, even while questions are still being tokenized', async () => {
    const many = writeData(questions(20_000));
    const file = join(temporaryFolder(), 'file');
    writeFileSync(file, '');
    const out = temporaryFolder();
    const { error, hint } = failure(
      await tilewright(runArguments(model, many, '--out', out), { env: { TILEWRIGHT_CACHE: join(file, 'cache') } }),
    );
    expect(error).toContain('cache');
    expect(hint).toContain('TILEWRIGHT_CACHE');
    expect(filesOf(out, 'results')).toEqual([]);
  });

  test('removes what a killed run left half-written, and nothing else', async () => {
    const out = temporaryFolder();
    const folder = join(out, 'small');
    mkdirSync(folder);
    // No process has this number: Linux's largest is 2^22.
    const dead = processMark().replace(/^\d+/, String(2 ** 22 + 1));
    const left = [
      `.samples_multiple_choice_2026-01-01.jsonl.${dead}.0123abcd.tmp`,
      `.results_2026-01-01.json.${dead}.0123abcd.tmp`,
      `.probe.${dead}.0123abcd.tmp`,
    ];
    const others = [`.results_2026-01-01.json.${processMark()}.0123abcd.tmp`, `.notes.${dead}.txt`, 'samples_old.txt'];
    for (const name of [...left, ...others]) writeFileSync(join(folder, name), 'x');
    success(await tilewright(run(out)));
    expect(left.filter((name) => existsSync(join(folder, name)))).toEqual([]);
    expect(others.filter((name) => !existsSync(join(folder, name)))).toEqual([]);
  });
});
