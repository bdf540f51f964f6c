/** Results of shards that merge reads and no run wrote: each is refused in a line that names what is wrong. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { UserError } from '../../errors.js';
import { mergeTasks } from '../../eval/harness/merge.js';
import { mergeShards } from '../../eval/merge.js';
import { writeShards } from '../support/shardFolders.js';

const scratch = mkdtempSync(join(tmpdir(), 'tilewright-shards-'));
afterAll(() => {
  rmSync(scratch, { recursive: true });
});

function caught(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}

type Value = Record<string, unknown>;

/** `value` with what stands at the end of `path` replaced. */
function replaced(value: Value, [first, ...rest]: readonly string[], by: unknown): Value {
  return { ...value, [first!]: rest.length === 0 ? by : replaced(value[first!] as Value, rest, by) };
}

test.each([
  ['start_time', 1e300],
  ['end_time', 1e13],
  ['throughput.modelFlops', 1e308],
  ['throughput.questions', 1e308],
  ['throughput.scoreSeconds', 1e-320],
])('questions of a file: %s of %d', (path, value) => {
  const out = join(scratch, path);
  const folder = writeShards(out);
  const file = join(
    folder,
    readdirSync(folder).find((name) => name.startsWith('results_'))!,
  );
  const results = JSON.parse(readFileSync(file, 'utf8')) as Value;
  writeFileSync(file, JSON.stringify(replaced(results, path.split('.'), value)));
  const merge = () => mergeShards({ folders: [out], output: join(scratch, 'merged') });
  expect(merge).toThrow(UserError);
  expect(merge).toThrow(`not what a run with --shard writes (${path}: `);
});

test('a merge that cannot be written speaks of merging again', () => {
  const [out, output] = [join(scratch, 'sound'), join(scratch, 'full')];
  writeShards(out);
  const { samplesPath } = mergeShards({ folders: [out], output });
  rmSync(samplesPath);
  mkdirSync(samplesPath);
  const error = caught(() => mergeShards({ folders: [out], output }));
  expect(error).toMatchObject({ message: expect.stringContaining('it is a folder') as string });
  expect(error).toMatchObject({ hint: 'Free some space, or give another --out, and merge again' });
});

const TASKS = {
  results: { one: { name: 'one', alias: 'one' } },
  ...{ 'n-samples': { one: { original: 1, effective: 1 } }, 'n-shot': { one: 0 }, versions: { one: 1 } },
  ...{ higher_is_better: { one: { acc: true } }, emulates: 'x', model_name: 'm', start_time: 0, end_time: 1 },
  provenance: { checkpoint: 'c0ffee', docs: '0:1' },
  throughput: {
    ...{ questions: 1, tokensComputed: 1, tokensWithoutSharing: 1, tokensGrouped: 1, tokensShared: 1 },
    ...{ loadSeconds: 1, scoreSeconds: 1, modelFlops: 1 },
  },
  generation: { calls: 1 },
  shard: { index: 1, count: 1, run: {}, tasks: { one: { filters: [], metrics: [] } }, groups: [] },
};
const GROUP = { name: 'all', tasks: ['one', 'gone'], aggregates: [] };

test.each([
  ['end_time', 1e300, '(end_time: '],
  ['generation.calls', 1e308, '(generation.calls: '],
  ['throughput.scoreSeconds', 1e-320, '(throughput.scoreSeconds: '],
  ['n-shot', null, '(n-shot: '],
  ['higher_is_better.one', null, '(higher_is_better.one: '],
  ['versions', 7, '(versions: '],
  ['n-samples.constructor', { original: 1, effective: 1 }, '(n-samples.constructor: '],
  ['shard.groups', [GROUP], 'the group "all" has "gone", of which nothing is known'],
])('tasks: %s of %j', (path, value, message) => {
  const folder = join(scratch, `tasks-${path}`, 'shard-1-of-1');
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'results_2026-01-01T00-00-00.000000.json');
  writeFileSync(file, JSON.stringify(replaced(TASKS, path.split('.'), value)));
  const merge = () => mergeTasks([folder], join(scratch, 'merged'));
  expect(merge).toThrow(UserError);
  expect(merge).toThrow(message);
});
