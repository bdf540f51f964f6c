/** Runs that are stopped or killed can be resumed, and end as if nothing had happened. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from 'vitest';
import { counted } from '../../system/text.js';
import { VOLATILE_FIELDS } from '../support/results.js';
import { casesHere, isThorough, thorough } from '../support/thorough.js';
import { questions, random, safetensorsFile, tensorsOf, writeCheckpoint, writeData } from './smallModel.js';
import {
  failure,
  filesOf,
  isBuilt,
  isOver,
  journalReaches,
  journalSize,
  killedAt,
  runArguments,
  type Running,
  start,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  tilewrightProcess,
} from './support.js';

describe.skipIf(!isBuilt)('a run', () => {
  const model = writeCheckpoint();
  const QUESTIONS = isThorough ? 500 : 240;
  const data = writeData(questions(QUESTIONS));
  const undisturbed = temporaryFolder();
  // One thread and small micro-batches: a run long enough to be stopped in the middle.
  const run = (out: string, ...more: string[]): string[] => [
    'run',
    model,
    '--task',
    'multiple_choice',
    '--data',
    data,
    '--threads',
    '1',
    '--batch-tokens',
    '96',
    '--out',
    out,
    ...more,
  ];
  let samples = '';
  let seconds = 0;

  /** results_*.json without the fields that differ between equal runs. */
  const steady = (text: string): Record<string, unknown> => {
    const results = JSON.parse(text) as Record<string, unknown>;
    for (const field of VOLATILE_FIELDS) {
      expect(results).toHaveProperty(field);
      delete results[field];
    }
    return results;
  };
  const isAsUndisturbed = (out: string): void => {
    expect(textOf(out, 'samples')).toBe(samples);
    expect(steady(textOf(out, 'results'))).toEqual(steady(textOf(undisturbed, 'results')));
  };
  const textsOf = (out: string, kind: 'samples' | 'results'): string[] =>
    filesOf(out, kind).map((path) => readFileSync(path, 'utf8'));
  /** Whole lines of the journal that are finished questions. */
  const finishedIn = (out: string): number =>
    readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8').split('\n').length - 2;

  beforeAll(async () => {
    success(await tilewright(run(undisturbed)));
    // Runs again, now that the kernels are compiled, to learn how long an undisturbed run takes and that it gives the
    // same.
    const again = temporaryFolder();
    const begin = performance.now();
    success(await tilewrightProcess(run(again)));
    seconds = (performance.now() - begin) / 1000;
    samples = textOf(undisturbed, 'samples');
    isAsUndisturbed(again);
  });

  test('has samples for every question, in order', () => {
    const ids = samples
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { doc_id: number }).doc_id);
    expect(ids).toEqual(Array.from({ length: QUESTIONS }, (_, i) => i));
  });

  test('keeps what is finished if stopped with Ctrl-C, says how to resume, and resumes when told so', async () => {
    let out = '';
    let running: Running;
    do {
      out = temporaryFolder();
      running = start(run(out));
      await journalReaches(running, out, 5000);
      running.process.kill('SIGINT');
      // If the machine was too busy to look before the run was over, try again.
    } while ((await running.ended).status === 0 || finishedIn(out) === QUESTIONS);
    const { status, signal, stdout, stderr } = await running.ended;
    expect({ status, signal, stdout }, stderr).toEqual({ status: 130, signal: null, stdout: '' });
    const kept = finishedIn(out);
    expect(kept).toBeGreaterThan(0);
    expect(kept).toBeLessThan(QUESTIONS);
    expect(stderr).not.toContain('error:');
    const advice = /stopped: ([\d,]+) finished questions are in the journal; go on with\n +(.*--resume)\n$/.exec(
      stderr,
    );
    expect(Number(advice?.[1]?.replaceAll(',', '')), stderr).toBe(kept);
    expect([...filesOf(out, 'samples'), ...filesOf(out, 'results')]).toEqual([]);
    // The command as printed, by a shell in the folder where the first one ran.
    const resumed = spawnSync('sh', ['-c', advice?.[2] ?? 'false'], {
      cwd: running.cwd,
      env: running.env,
      encoding: 'utf8',
    });
    expect(resumed.status, resumed.stderr).toBe(0);
    expect(resumed.stderr).toContain(`${counted(kept, 'question')} taken over`);
    isAsUndisturbed(out);
  });

  thorough('says that nothing was scored if it is stopped before it scored anything', async () => {
    let out = '';
    let running: Running;
    do {
      out = temporaryFolder();
      running = start(run(out));
      while (!running.stderr().includes('open model')) await sleep(2);
      running.process.kill('SIGINT');
    } while ((await running.ended).status === 0 || isOver(out));
    const { status, stderr } = await running.ended;
    expect(status, stderr).toBe(130);
    expect(stderr).toMatch(/stopped: (no question was scored yet|[\d,]+ finished questions)/);
    success(await tilewright(run(out, '--resume')));
    isAsUndisturbed(out);
  });

  thorough('resumes with --resume after it was killed at any moment, and ends as if undisturbed', async () => {
    let out = '';
    const next = random(2026);
    const end = journalSize(undisturbed);
    // Moments of the clock, which may come before there is a journal, and moments of the journal, which fall between
    // its writes.
    const moments: ((running: Running) => Promise<unknown>)[] = [
      () => sleep(1000 * seconds * 0.3 * next()),
      (running) => journalReaches(running, out, 1),
      (running) => journalReaches(running, out, end * (0.2 + 0.4 * next())),
      () => sleep(1000 * seconds * (0.3 + 0.3 * next())),
      (running) => journalReaches(running, out, end * 0.98),
    ];
    let killed = 0;
    // A run may end before its moment has come. If too few were killed, start from the beginning.
    while (killed < 3) {
      killed = 0;
      out = temporaryFolder();
      for (const [i, moment] of moments.entries()) {
        const before = journalSize(out);
        const running = start(run(out, ...(i === 0 ? [] : ['--resume'])));
        await moment(running);
        running.process.kill('SIGKILL');
        const { signal, status } = await running.ended;
        if (signal === null && status === 0) break;
        expect(signal).toBe('SIGKILL');
        killed++;
        expect(journalSize(out)).toBeGreaterThanOrEqual(Math.min(before, end * 0.9));
      }
    }
    success(await tilewright(run(out, '--resume')));
    // A run that was killed between its answers and its end has left its own files, which are the same.
    const [all, results] = [textsOf(out, 'samples'), textsOf(out, 'results')];
    expect(Math.min(all.length, results.length)).toBeGreaterThan(0);
    for (const text of all) expect(text).toBe(samples);
    for (const text of results) expect(steady(text)).toEqual(steady(textOf(undisturbed, 'results')));
    expect(finishedIn(out)).toBe(QUESTIONS);
  });

  thorough('loses only the last line if its journal ends in half a line', async () => {
    const out = temporaryFolder();
    await killedAt(10_000, out, run(out));
    const [journal = ''] = filesOf(out, 'journal');
    const text = readFileSync(journal, 'utf8');
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    writeFileSync(journal, whole.slice(0, -20));
    const { stderr } = success(await tilewright(run(out, '--resume')));
    expect(stderr).toContain(`${whole.split('\n').length - 3} questions taken over`);
    isAsUndisturbed(out);
  });

  test('can be resumed when it is complete: nothing is scored again, and the results are the same', async () => {
    const out = temporaryFolder();
    cpSync(undisturbed, out, { recursive: true });
    const { stdout } = success(await tilewright(run(out, '--resume', '--json')));
    expect(JSON.parse(stdout)).toMatchObject({ throughput: { questions: 0, tokensComputed: 0 } });
    expect(textsOf(out, 'samples')).toEqual([samples, samples]);
  });

  describe('is not resumed as another one', () => {
    const out = temporaryFolder();
    const otherData = writeData(questions(QUESTIONS, 8));
    const otherModel = writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) });
    beforeAll(async () => {
      await killedAt(5000, out, run(out));
    });
    const swapped = (what: string, by: string): string[] =>
      run(out, '--resume').map((argument) => (argument === what ? by : argument));

    const others: readonly [string, () => string[], RegExp][] = [
      ['sharing mode', () => run(out, '--resume', '--sharing', 'none'), /differs in .*sharing/],
      ['choice of questions', () => run(out, '--resume', '--docs', '10:'), /differs in .*docs/],
      // Small micro-batches have the fewest kernels to compile.
      ['arithmetic', () => [...swapped('96', '64'), '--isa', 'portable'], /differs in .*isa/],
    ];
    test.each(casesHere(others, 0, 1))('with another %s', async (_, args, expected) => {
      const before = readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8');
      const { error, hint } = failure(await tilewright(args()));
      expect(error).toMatch(expected);
      expect(hint).toMatch(/without --resume|another --out/);
      expect(readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8')).toBe(before);
    });

    test('with another tokenizer', async () => {
      const path = join(model, 'tokenizer.json');
      const text = readFileSync(path, 'utf8');
      const before = readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8');
      try {
        writeFileSync(path, `${text}\n`);
        expect(failure(await tilewright(run(out, '--resume'))).error).toMatch(/differs in tokenizer /);
      } finally {
        writeFileSync(path, text);
      }
      expect(readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8')).toBe(before);
    });

    test('of an older version, which is kept', async () => {
      const folder = join(temporaryFolder(), 'results');
      const old = join(folder, 'small', 'journal_multiple_choice.jsonl');
      mkdirSync(join(folder, 'small'), { recursive: true });
      writeFileSync(old, '{"journal":1,"run":{}}\n');
      const { error, hint } = failure(await tilewright(run(folder, '--resume')));
      expect(error).toMatch(/journal_multiple_choice\.jsonl was written by an older version/);
      expect(hint).toContain('Run without --resume');
      expect(readFileSync(old, 'utf8')).toBe('{"journal":1,"run":{}}\n');
    });

    test('with another data set (which has its own journal) or checkpoint (its own folder)', async () => {
      const copy = temporaryFolder();
      cpSync(out, copy, { recursive: true });
      const [journal = ''] = filesOf(copy, 'journal');
      const before = readFileSync(journal, 'utf8');
      const inCopy = (args: readonly string[]): string[] =>
        args.map((argument) => (argument === out ? copy : argument));
      success(await tilewright([...inCopy(swapped(data, otherData)), '--limit', '5']));
      expect(filesOf(copy, 'journal')).toHaveLength(2);
      const { stderr } = success(await tilewright([...inCopy(swapped(model, otherModel)), '--limit', '5']));
      expect(stderr).toMatch(
        /belongs to another checkpoint; this one's results go to .*small-[0-9a-f]{8} \(--model-name/,
      );
      const folders = readdirSync(copy).sort();
      expect(folders).toEqual(['small', expect.stringMatching(/^small-[0-9a-f]{8}$/)]);
      success(await tilewright([...inCopy(swapped(model, otherModel)), '--limit', '5', '--model-name', 'mine']));
      expect(readdirSync(copy)).toContain('mine');
      expect(readFileSync(journal, 'utf8')).toBe(before);
    });

    test('starts again without --resume, and keeps the old journal beside the new one', async () => {
      const before = readFileSync(filesOf(out, 'journal')[0] ?? '', 'utf8');
      const finished = before.split('\n').length - 2;
      const again = runArguments(model, data, '--limit', '10', '--out', out);
      const { stderr } = success(await tilewright(again));
      const kept = filesOf(out, 'journal').find((path) => path.endsWith('.1.jsonl')) ?? '';
      expect(readFileSync(kept, 'utf8')).toBe(before);
      expect(stderr).toMatch(
        new RegExp(`answers of an earlier run to ${finished} questions .* are kept in .*\\.1\\.jsonl`),
      );
      expect(stderr).toMatch(/to go on with them instead: mv .*\.1\.jsonl .*\.jsonl && .* --resume/);
      success(await tilewright(again));
      expect(filesOf(out, 'journal')).toHaveLength(3);
      expect(readFileSync(kept, 'utf8')).toBe(before);
    });
  });
});
