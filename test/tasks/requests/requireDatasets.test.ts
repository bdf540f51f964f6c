/** Data sets of tasks that are missing, all named at once. */
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import type { TaskSettings } from '../../../tasks/definition/settings.js';
import type { Yaml } from '../../../tasks/definition/yaml.js';
import { requireDatasets } from '../../../tasks/requests/documents.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-data-'));
mkdirSync(join(root, 'owner', 'there'), { recursive: true });
writeFileSync(join(root, 'own.jsonl'), '{}\n');

const task = (dataset: string, kwargs?: Yaml): TaskSettings =>
  new Map(
    Object.entries({
      task: 't',
      test_split: 'test',
      dataset_path: dataset,
      ...(kwargs === undefined ? {} : { dataset_kwargs: kwargs }),
    }).map(([key, value]) => [key, { value, where: `t.yaml:1: ${key}` }]),
  );
const problem = (...tasks: readonly TaskSettings[]): UserError | undefined => {
  try {
    requireDatasets(tasks, { root });
    return undefined;
  } catch (error) {
    if (error instanceof UserError) return error;
    throw error;
  }
};
const files = (path: string): Yaml => new Map<string, Yaml>([['data_files', new Map([['test', path]])]]);

describe('data sets', () => {
  it('that are there are no problem', () => {
    expect(problem(task('owner/there'), task('json', files(join(root, 'own.jsonl'))), task(root))).toBeUndefined();
  });

  it('that are missing are each named once, with all commands', () => {
    const one = problem(task('owner/there'), task('owner/gone'), task('owner/gone'));
    expect(one?.message).toBe(`the data set owner/gone is not in ${root}`);
    const both = problem(task('owner/gone'), task('owner/there'), task('other/gone'), task(join(root, 'none')));
    expect(both?.message.split('\n')).toEqual([
      'data of these tasks are missing:',
      `  the data set owner/gone is not in ${root}`,
      `  the data set other/gone is not in ${root}`,
      `  t.yaml:1: dataset_path: ${join(root, 'none')}: no folder of data`,
    ]);
    const download = (name: string): string =>
      `hf download --repo-type dataset ${name} --local-dir ${join(root, name)}`;
    expect(both?.hint).toBe(`${download('owner/gone')} && ${download('other/gone')}`);
  });

  it("of one's own are named with their setting", () => {
    const own = problem(task('json', files(join(root, 'gone.jsonl'))));
    expect(own?.message).toBe(`t.yaml:1: dataset_kwargs: ${join(root, 'gone.jsonl')}: no such file`);
    expect(own?.hint).toBe('check data_files there');
  });
});
