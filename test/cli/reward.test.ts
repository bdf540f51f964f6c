/** `tilewright reward` on fakes: flags in, scores out. */
import { describe, expect, it } from 'vitest';
import type { RewardRequest, RewardResult } from '../../commands/reward.js';
import { VERIFIERS } from '../../cli/reward.js';
import { LANGUAGE_VERIFIERS } from '../../models/heads/languageVerifiers.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { type Outcome, runCli } from './fakeIo.js';

const COUNTS = {
  calls: 1,
  computedTokens: 1,
  foundTokens: 32,
  preemptions: 0,
  evictions: 0,
  peakPages: 2,
  pages: 4,
};

const solution = (id: string | number, scores: readonly (number | readonly number[])[]): RewardResult => ({
  id,
  where: `in.jsonl:${id}`,
  tokens: [1, 5, 6],
  rows: scores.map((_, i) => i),
  scores,
});

/** Runs with results that come in the order of `order`. */
async function run(
  argv: readonly string[],
  results: readonly RewardResult[],
  order: readonly number[] = [...results.keys()],
): Promise<Outcome & { readonly request: WithTargetChoice<RewardRequest> | undefined }> {
  let request: WithTargetChoice<RewardRequest> | undefined;
  const outcome = await runCli(['reward', ...argv], {
    reward: (asked, ui, onResult = () => undefined) => {
      request = asked;
      ui.phase('reward');
      for (const index of order) onResult(results[index]!, index);
      return Promise.resolve({ is: 'probability of class 1', results, counts: COUNTS as never, seconds: 2 });
    },
  });
  return { ...outcome, request };
}

describe('reward', () => {
  it('hands over what is asked', async () => {
    const { request, status } = await run(
      ['m', '--input', 'in.jsonl', '--precision', 'f32', '--verifier', 'rlhflow', '--threads', '3', '--devices', '2'],
      [solution(0, [0.5])],
    );
    const { signal, ...asked } = request!;
    expect([status, signal?.aborted]).toEqual([0, false]);
    expect(asked).toEqual({
      model: 'm',
      input: 'in.jsonl',
      precision: 'f32',
      verifier: 'rlhflow',
      threads: 3,
      devices: 2,
      init: { kind: 'checkpoint' },
    });
  });

  it('names every verifier that there is', () => {
    expect(VERIFIERS).toEqual(LANGUAGE_VERIFIERS.map(({ name }) => name));
  });

  it.each([
    [['m'], 'there is nothing to score'],
    [['m', '--input', 'a', '--verifier', 'x'], "argument 'x' is invalid. Allowed choices are rlhflow, math-shepherd"],
    [['m', '--input', 'a', '--cache-tokens', '1'], '--cache-tokens 1: expected a whole number from 16'],
  ])('refuses %j before it opens anything', async (argv, message) => {
    const { status, stderr } = await runCli(['reward', ...argv]);
    expect([status, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  it('prints lines in the order of the input, whatever order scores come in', async () => {
    const beside = { name: 'redundancy', values: [0.25] };
    const all = [solution('a', [0, 1e-20]), { ...solution(7, [0.5]), beside }, solution('c', [[0.25, 0.75, 0]])];
    const { stdout, stderr, status } = await run(['m', '--input', 'a', '--json'], all, [2, 0, 1]);
    expect([status, stderr]).toEqual([0, '']);
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      { id: 'a', scores: [0, 1e-20], tokens: [1, 5, 6], rows: [0, 1] },
      { id: 7, scores: [0.5], redundancy: [0.25], tokens: [1, 5, 6], rows: [0] },
      { id: 'c', scores: [[0.25, 0.75, 0]], tokens: [1, 5, 6], rows: [0] },
    ]);
  });

  it('prints a table for people, with the least score of several steps', async () => {
    const { stdout, stderr } = await run(['m', '--input', 'a'], [solution(0, [0.9, 0.25]), solution('long', [0.5])]);
    expect(stdout.split('\n')).toEqual([
      'id    least   steps',
      '0     0.2500  0.9000 0.2500',
      'long  0.5000  0.5000',
      '',
    ]);
    expect(stderr).toContain(
      '2 solutions, 6 tokens, 32 found in pages, in 2.00 s: 1.0 solutions/s, 3 tokens/s; a score',
    );
    const { stdout: single } = await run(['m', '--input', 'a'], [solution(0, [-1.5]), solution(1, [2])]);
    expect(single).toBe('id  score\n0   -1.5000\n1   2.0000\n');
  });

  it('says what could not be computed, and fails', async () => {
    const failed: RewardResult = { id: 1, where: 'in.jsonl:2', tokens: [1], rows: [0], error: 'a value is NaN' };
    const { stdout, stderr, status } = await run(['m', '--input', 'a', '--json'], [solution(0, [0.5]), failed]);
    expect(status).toBe(1);
    expect(stdout).toContain('{"id":1,"error":"a value is NaN"}');
    expect(stderr).toContain('error: in.jsonl:2: a value is NaN');
  });
});
