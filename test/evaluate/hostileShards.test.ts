/** Results of shards that merge reads and no run wrote: each is refused in a line that names what is wrong. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { UserError } from '../../errors.js';
import { mergeShards } from '../../evaluate/merge.js';
import { formatTable } from '../../evaluate/table.js';
import { writeShards } from '../support/shardFolders.js';
import { thorough } from '../support/thorough.js';

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
])('questions of a file: %s of %d', async (path, value) => {
  const out = join(scratch, path);
  const folder = await writeShards(out);
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

test('a merge that cannot be written speaks of merging again', async () => {
  const [out, output] = [join(scratch, 'sound'), join(scratch, 'full')];
  await writeShards(out);
  const { samplesPath } = mergeShards({ folders: [out], output });
  rmSync(samplesPath);
  mkdirSync(samplesPath);
  const error = caught(() => mergeShards({ folders: [out], output }));
  expect(error).toMatchObject({ message: expect.stringContaining('it is a folder') as string });
  expect(error).toMatchObject({ hint: 'Free some space, or give another --out, and merge again' });
});

test('a merge that is refused leaves nothing behind', async () => {
  const [out, output] = [join(scratch, 'edited'), join(scratch, 'refused')];
  const folder = await writeShards(out);
  const [samples = ''] = readdirSync(folder).filter((name) => name.startsWith('samples_'));
  const path = join(folder, samples);
  writeFileSync(path, readFileSync(path, 'utf8').replace('Why?', 'How?'));
  expect(() => mergeShards({ folders: [out], output })).toThrow('does not hold the samples that the results of');
  expect(existsSync(output)).toBe(false);
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
  const merge = () => mergeShards({ folders: [folder], output: join(scratch, 'merged') });
  expect(merge).toThrow(UserError);
  expect(merge).toThrow(message);
});

test('shards of tasks and of a file are not merged', async () => {
  const out = join(scratch, 'mixed');
  await writeShards(join(out, 'file'));
  const folder = join(out, 'tasks', 'm', 'shard-1-of-1');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'results_2026-01-01T00-00-00.000000.json'), JSON.stringify(TASKS));
  const folders = [join(out, 'file'), join(out, 'tasks')];
  expect(() => mergeShards({ folders, output: join(scratch, 'merged') })).toThrow(
    /shard-1-of-1 is of a run with --tasks, and .*shard-1-of-2 of one with --task multiple_choice$/,
  );
});

/** Groups of which each holds the next. */
const chain = (length: number): Record<string, string[]> =>
  Object.fromEntries(Array.from({ length }, (_, i) => [`group${i}`, [`group${i + 1}`]]));

test.each([
  ['a version that is an object', { versions: { one: { toString: 1 } } }, '|one  |{"toString":1}|none  |'],
  ['shots that are a list', { 'n-shot': { one: [{ toString: 1 }] } }, '|[{"toString":1}]|acc   |'],
  ['a name of two lines', { results: { one: { alias: 'o\nne', 'acc,none': 0.5 } } }, '|o·ne |'],
  ['a figure that is an object', { results: { one: { 'acc,none': { valueOf: 1 } } } }, '|{"valueOf":1}|'],
  ['groups far within groups', { group_subtasks: chain(20_000) }, '|one  |'],
  ['members that are no names', { group_subtasks: { all: [{ toString: 1 }, 'one'] } }, '| - one|'],
])('a table has a row in one line for %s', (_, content, row) => {
  const table = formatTable({ ...TASKS, results: { one: { alias: 'one', 'acc,none': 0.5 } }, ...content });
  expect(table).toContain(row);
  expect(table.split('\n')).toHaveLength(3);
});

thorough('a table has many rows, and cells of bounded length', () => {
  const many = Object.fromEntries(Array.from({ length: 130_000 }, (_, i) => [`m${i},none`, 1]));
  expect(formatTable({ ...TASKS, results: { one: many } }).split('\n')).toHaveLength(130_002);
  const alias = 'x'.repeat(1 << 20);
  expect(formatTable({ ...TASKS, results: { one: { alias, 'acc,none': 1 } } }).length).toBeLessThan(2000);
});
