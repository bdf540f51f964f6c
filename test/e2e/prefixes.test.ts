/**
 * Beginnings that many questions have in common, computed once and kept: the same files as when each tree computes its
 * own, on any number of devices, also where a run or one of its devices is killed.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { midst } from './children.js';
import { questions, writeCheckpoint, writeData, type WrittenQuestion } from './smallModel.js';
import {
  CAPACITY,
  failure,
  filesOf,
  isBuilt,
  killedAt,
  runArguments,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  type Outcome,
} from './support.js';
import { isThorough, thorough } from '../support/thorough.js';

/** Questions after the beginning of one of eight others, with choices of one letter or of some words. */
function withShots(count: number): WrittenQuestion[] {
  const all = questions(count + 8);
  return all.slice(8).map(({ context, choices, label }, i) => {
    return {
      context: `${all[i % 8]!.context.slice(0, 40)}. ${context.slice(0, 20)}`,
      choices: i % 3 === 0 ? choices : choices.map((_, c) => 'ABCDE'[c]!),
      label,
    };
  });
}

interface Throughput {
  readonly tokensComputed: number;
  readonly tokensWithoutSharing: number;
  readonly tokensGrouped: number;
  readonly tokensShared: number;
}
const throughputOf = (out: string): Throughput =>
  (JSON.parse(textOf(out, 'results')) as { readonly throughput: Throughput }).throughput;

describe.skipIf(!isBuilt)('prefixes', () => {
  const model = writeCheckpoint();
  const QUESTIONS = isThorough ? 300 : 120;
  const data = writeData(withShots(QUESTIONS));
  // Kernels of this size are those of other tests.
  const CACHE = ['--cache-tokens', '512'];
  const run = (out: string, ...more: string[]): string[] => runArguments(model, data, ...CACHE, '--out', out, ...more);
  const score = async (...more: string[]): Promise<{ readonly out: string; readonly outcome: Outcome }> => {
    const out = temporaryFolder();
    return { out, outcome: success(await tilewright(run(out, ...more))) };
  };
  let repeated = '';
  let kept = '';

  beforeAll(async () => {
    ({ out: repeated } = await score('--prefixes', 'repeat'));
    const { out, outcome } = await score('--prefixes', 'keep', '--verbose');
    kept = out;
    expect(outcome.stderr).toMatch(/prefixes: kept, [\d,]+ tokens instead of [\d,]+ tokens in trees/);
    expect(outcome.stdout).toMatch(/with every common beginning once: [\d,]+ tokens \(this run: 1\.\d{3}×\)/);
  });

  test('are kept where that takes fewer tokens, for the same answers to the byte', () => {
    expect(textOf(kept, 'samples')).toBe(textOf(repeated, 'samples'));
    const [once, again] = [throughputOf(kept), throughputOf(repeated)];
    expect(once.tokensComputed).toBeLessThan(again.tokensComputed / 1.1);
    expect(once.tokensComputed).toBeLessThanOrEqual(1.1 * once.tokensShared);
    expect(once.tokensGrouped).toBeLessThan(once.tokensWithoutSharing);
    expect([again.tokensShared, again.tokensGrouped]).toEqual([once.tokensShared, once.tokensGrouped]);
  });

  const WAYS = [
    ['--sharing', 'none'],
    ['--prefixes', 'keep', '--devices', '2'],
    ['--prefixes', 'keep', '--parallel', 'pp=2'],
  ];
  thorough.each(WAYS.map((flags) => [flags]))('give the same with %j', async (flags) => {
    expect(textOf((await score(...flags)).out, 'samples')).toBe(textOf(kept, 'samples'));
  });

  thorough.each([[], ['--devices', '2'], ['--parallel', 'pp=2']].map((flags) => [flags]))(
    'are traced as they were computed: kernels are those of calls that continue paths, with %j',
    async (flags) => {
      const trace = join(temporaryFolder(), 'trace.json');
      const { out } = await score('--prefixes', 'keep', '--trace', trace, ...flags);
      expect(textOf(out, 'samples')).toBe(textOf(kept, 'samples'));
      const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as {
        readonly traceEvents: readonly { cat?: string; args?: { function?: string; tokens?: number } }[];
      };
      const kernels = traceEvents.filter(({ cat }) => cat === 'kernel');
      expect(kernels.length).toBeGreaterThan(10);
      expect(new Set(kernels.map(({ args }) => args?.function))).toEqual(new Set(['step']));
      expect(Math.max(...kernels.map(({ args }) => args?.tokens ?? 0))).toBe(96);
    },
  );

  test('are counted by a dry run, which writes nothing', async () => {
    const out = temporaryFolder();
    const { stdout } = success(await tilewright(run(out, '--dry-run', '--json', '--prefixes', 'keep')));
    const plan = JSON.parse(stdout) as Record<string, unknown>;
    const { tokensComputed, tokensGrouped, tokensShared } = throughputOf(kept);
    expect(plan).toMatchObject({ questions: QUESTIONS, prefixes: 'keep', tokensGrouped, tokensShared });
    expect(plan['tokensKept']).toBe(tokensComputed);
    expect(plan['tokensRepeated']).toBe(throughputOf(repeated).tokensComputed);
    expect(filesOf(out, 'samples')).toEqual([]);
    const { stdout: text } = success(await tilewright(run(out, '--dry-run', '--parallel', 'dp=2')));
    expect(text).toMatch(
      /^--prefixes keep +[\d,]+ +\d\.\d{3}× +\d+ calls of up to 96 tokens; by device [\d,]+, [\d,]+$/m,
    );
  });

  thorough('survive the end of a run, which goes on either way', async () => {
    const out = temporaryFolder();
    await killedAt(4000, out, run(out, '--prefixes', 'keep'));
    const { stderr } = success(await tilewright(run(out, '--resume', '--prefixes', 'repeat')));
    expect(stderr).toMatch(/\d+ questions taken over/);
    expect(textOf(out, 'samples')).toBe(textOf(kept, 'samples'));
  });

  thorough('are computed again where the process of a device ends', async () => {
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright(run(out, '--prefixes', 'keep', '--devices', '2'), {
        onProgress: midst(2, (pids) => process.kill(pids[1]!, 'SIGKILL')),
      }),
    );
    expect(stderr).toMatch(/device 1: the device process ended \(SIGKILL\): another one takes over/);
    expect(textOf(out, 'samples')).toBe(textOf(kept, 'samples'));
  });

  thorough('are repeated by an artifact without memory for them, unless they must be kept', async () => {
    const artifact = join(temporaryFolder(), 'small.tw');
    success(await tilewright(['compile', model, ...CAPACITY, '-o', artifact]));
    const out = temporaryFolder();
    const command = ['run', artifact, '--task', 'multiple_choice', '--data', data, '--threads', '2', '--out', out];
    const { error } = failure(await tilewright([...command, '--prefixes', 'keep']));
    expect(error).toMatch(/--prefixes keep: no room for the keys and values of [\d,]+ tokens/);
    const { stderr } = success(await tilewright([...command, '--verbose']));
    expect(stderr).toMatch(
      /prefixes: [\d,]+ tokens in trees that each compute their own; kept, they would take [\d,]+/,
    );
    expect(textOf(out, 'samples')).toBe(textOf(kept, 'samples'));
  });

  test('are refused with less memory than a question needs, which is named', async () => {
    const flags = ['--prefixes', 'keep', '--cache-tokens', '32'];
    const { error, hint } = failure(await tilewright(runArguments(model, data, '--out', temporaryFolder(), ...flags)));
    expect(error).toMatch(/--cache-tokens 32: --prefixes keep needs room for the keys and values of [\d,]+ tokens/);
    expect(hint).toMatch(/use --cache-tokens \d+, or leave it out/);
  });

  test('are refused where nothing is shared', async () => {
    for (const more of [[], ['--dry-run']]) {
      const flags = ['--prefixes', 'keep', '--sharing', 'none', ...more];
      const { error } = failure(await tilewright(run(temporaryFolder(), ...flags)));
      expect(error).toContain('trees have no beginning in common');
    }
  });
});
