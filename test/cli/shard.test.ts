import { describe, expect, it } from 'vitest';
import { shard } from '../../cli/shard.js';
import type { RunRequest } from '../../commands/runRequest.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { readSettings } from '../../settings.js';
import { runCli } from './fakeIo.js';

const of = (given: string | boolean, environment: Record<string, string> = {}): string => {
  const found = shard({ shard: given }, readSettings(environment));
  return found === undefined ? 'none' : `${found.index}/${found.count}`;
};
const array = (id: number, min: number, max: number, count: number, step?: number): Record<string, string> => ({
  SLURM_ARRAY_TASK_ID: `${id}`,
  SLURM_ARRAY_TASK_MIN: `${min}`,
  SLURM_ARRAY_TASK_MAX: `${max}`,
  SLURM_ARRAY_TASK_COUNT: `${count}`,
  ...(step === undefined ? {} : { SLURM_ARRAY_TASK_STEP: `${step}` }),
});

describe('--shard', () => {
  it('names a part', () => {
    expect(shard({}, readSettings(array(0, 0, 3, 4)))).toBeUndefined();
    expect(of('1/1')).toBe('1/1');
    expect(of('8/8', array(0, 0, 3, 4))).toBe('8/8');
  });

  it.each<[string, Record<string, string>, string]>([
    ['a Slurm array from 0', array(0, 0, 7, 8), '1/8'],
    ['its last task', array(7, 0, 7, 8), '8/8'],
    ['an array from 1', array(8, 1, 8, 8, 1), '8/8'],
    ['an array in steps', array(14, 10, 18, 5, 2), '3/5'],
    ['an array of one', array(3, 3, 3, 1), '1/1'],
    [
      'an array before all else',
      { ...array(2, 0, 3, 4), JOB_COMPLETION_INDEX: '0', SLURM_PROCID: '0', SLURM_NTASKS: '1' },
      '3/4',
    ],
    ['an array of the number expected', { ...array(2, 0, 3, 4), TILEWRIGHT_SHARDS: '4' }, '3/4'],
    ['a Kubernetes Indexed Job', { JOB_COMPLETION_INDEX: '0', TILEWRIGHT_SHARDS: '6' }, '1/6'],
    ['srun', { SLURM_PROCID: '5', SLURM_NTASKS: '6' }, '6/6'],
  ])('without a value is taken from %s', (_, environment, expected) => {
    expect(of(true, environment)).toBe(expected);
  });

  it.each<[string, string | true, Record<string, string>, RegExp]>([
    ['nobody', true, {}, /no scheduler says which part this is/],
    ['a part of an array', true, array(5, 3, 5, 2), /has 2 tasks from 3 to 5/],
    [
      'a part of an array that looks whole',
      true,
      { ...array(3, 3, 4, 2), TILEWRIGHT_SHARDS: '8' },
      /started 2 tasks, TILEWRIGHT_SHARDS says 8/,
    ],
    [
      'an array without a count',
      true,
      { SLURM_ARRAY_TASK_ID: '1', SLURM_ARRAY_TASK_MIN: '0', SLURM_ARRAY_TASK_MAX: '2' },
      /SLURM_ARRAY_TASK_COUNT is not set/,
    ],
    ['a pod that knows no count', true, { JOB_COMPLETION_INDEX: '2' }, /TILEWRIGHT_SHARDS, .* is not set/],
    [
      'a pod past the count',
      true,
      { JOB_COMPLETION_INDEX: '4', TILEWRIGHT_SHARDS: '4' },
      /--shard 5\/4: parts count from 1/,
    ],
    [
      'nonsense',
      true,
      { JOB_COMPLETION_INDEX: '-1', TILEWRIGHT_SHARDS: '4' },
      /JOB_COMPLETION_INDEX is "-1", not a whole number/,
    ],
    ['0/4', '0/4', {}, /parts count from 1/],
    ['5/4', '5/4', {}, /none of 1\/4 to 4\/4/],
    ['1/0', '1/0', {}, /expected 1 to 10000 parts/],
    ['1/10001', '1/10001', {}, /expected 1 to 10000 parts/],
    ['three', 'three', {}, /expected which part of how many/],
    ['1/2/3', '1/2/3', {}, /expected which part of how many/],
  ])('refuses what %s says', (_, given, environment, expected) => {
    expect(() => of(given, environment)).toThrow(expected);
  });

  it('is handed over, needs --out, and says how to merge', async () => {
    const line = ['run', 'm', '--task', 'hellaswag', '--data', 'd', '--shard', '2/3'];
    expect((await runCli(line)).stderr).toBe(
      'error: --shard needs --out: merge joins what the shards write there\nhint: add --out shards, the same for all\n',
    );
    let seen: WithTargetChoice<RunRequest> | undefined;
    const { stdout } = await runCli([...line, '--out', 'a b'], {
      run: (request) => {
        seen = request as WithTargetChoice<RunRequest>;
        return Promise.resolve({ results: {}, table: '|table|', resultsPath: undefined, samplesPath: undefined });
      },
    });
    expect(seen?.shard).toEqual({ index: 2, count: 3 });
    expect(stdout).toContain("shard 2/3; when all are done: tilewright merge 'a b' --out results");
  });
});

describe('merge', () => {
  it.each([
    ['merge', "error: missing required argument 'folders'", 'tilewright merge'],
    ['merge a', 'error: --out is missing', 'tilewright merge shards --out results'],
    ['merge a --out b --task helaswag', 'error: --task helaswag: expected', 'did you mean --task hellaswag?'],
  ])('%s', async (line, error, hint) => {
    const { status, stderr } = await runCli(line.split(' '));
    expect(status).toBe(2);
    expect(stderr).toContain(error);
    expect(stderr).toContain(hint);
  });
});
