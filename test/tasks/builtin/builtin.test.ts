/** Built-in tasks against the task files of the public harness: keys, groups, and requests where data is there. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { openLibrary } from '../../../tasks/builtin/index.js';
import { readSplit } from '../../../tasks/data/splits.js';
import { TaskLibrary } from '../../../tasks/definition/library.js';
import { listOf, type TaskTree, tasksBelow } from '../../../tasks/definition/settings.js';
import { Hook, type Yaml } from '../../../tasks/definition/yaml.js';
import { Keys } from '../../../tasks/requests/keys.js';
import { buildRequests } from '../../../tasks/requests/task.js';

const SHARED = fileURLToPath(new URL('../../../../shared/', import.meta.url));
const isAbsent = !existsSync(join(SHARED, 'data/lm_eval_tasks'));
if (isAbsent) process.stderr.write(`SKIPPED part of test/tasks/builtin: ${SHARED} is absent\n`);
const builtin = openLibrary([]);

/** Task files of the folder that are not built in: other prompts for the same questions, and what cannot be run. */
const LEFT_OUT = new RegExp('^(arc_challenge_chat|boolq-seq2seq|super_glue-.*-t5-prompt|gsm8k_cot_llama)$');

/** A value in which functions are their names, by folder. */
function shown(value: Yaml): unknown {
  if (value instanceof Hook) return `!function ${value.file.split('/').at(-2) ?? ''}/${value.name}`;
  if (Array.isArray(value)) return (value as readonly Yaml[]).map(shown);
  if (value instanceof Map)
    return new Map([...(value as ReadonlyMap<string, Yaml>)].map(([key, item]) => [key, shown(item)]));
  return value;
}

/** What a node says; keys without a value say nothing, and a tag may stand without a list. */
function said(node: TaskTree): unknown {
  if (node.kind === 'group') return { ...node, members: node.members.map(({ name }) => name) };
  const keys = [...node.settings].filter(([, { value }]) => value !== null);
  return Object.fromEntries(keys.map(([key, { value }]) => [key, shown(key === 'tag' ? listOf(value) : value)]));
}

describe('built-in tasks', () => {
  it('are all there, and every function they name is written', () => {
    const names = builtin.names('task', 'group');
    expect(names.length).toBe(57 + 5 + 15 + 27 + 27 + 24 + 4 + 1 + 4 + 3 + 12 + 2 + 3 + 1 + 4 + 1 + 1 + 3 + 9);
    for (const { settings } of tasksBelow(names.flatMap((name) => builtin.resolve(name)))) {
      const keys = new Keys(settings);
      keys.processDocs();
      keys.port('process_results', keys.text('output_type') === 'generate_until' ? 'texts' : 'results');
      for (const key of ['doc_to_text', 'doc_to_target', 'doc_to_choice']) keys.source(key);
      keys.shots();
      keys.metrics();
    }
    expect(tasksBelow(builtin.resolve('mmlu'))).toHaveLength(57);
    expect(tasksBelow(builtin.resolve('leaderboard'))).toHaveLength(1 + 24 + 3 + 7 + 1 + 3);
    const open = tasksBelow(builtin.resolve('openllm'));
    expect(open.find(({ name }) => name === 'hellaswag')?.settings.get('num_fewshot')?.value).toBe(10);
    expect(open.find(({ name }) => name === 'hellaswag')?.settings.get('fewshot_split')?.value).toBe('train');
  });

  it.skipIf(isAbsent)('say what the task files say', () => {
    const files = new TaskLibrary([join(SHARED, 'data/lm_eval_tasks')]);
    const names = files.names('task', 'group').filter((name) => !LEFT_OUT.test(name));
    expect(names.length).toBeGreaterThan(160);
    for (const name of names) expect(builtin.resolve(name).map(said), name).toEqual(files.resolve(name).map(said));
    for (const tag of files.names('tag').filter((each) => builtin.names('tag').includes(each))) {
      const listed = files.resolve(tag).filter(({ name }) => !LEFT_OUT.test(name));
      expect(builtin.resolve(tag).map(said), tag).toEqual(listed.map(said));
    }
  });

  it
    .skipIf(isAbsent)
    .each([
      'mmlu_anatomy',
      'arc_challenge',
      'truthfulqa_mc1',
      'truthfulqa_mc2',
      'gsm8k',
      'gsm8k_cot',
      'gsm8k_cot_zeroshot',
      'leaderboard_bbh_object_counting',
      'bbh_fewshot_word_sorting',
      'bbh_cot_fewshot_dyck_languages',
    ])('ask what the file of %s asks', async (name) => {
    const files = new TaskLibrary([join(SHARED, 'data/lm_eval_tasks')]);
    const read = readSplit.bind(undefined, join(SHARED, 'data/hub'));
    const asked = async (library: TaskLibrary): Promise<unknown> =>
      buildRequests(tasksBelow(library.resolve(name))[0]!.settings, read, { shots: 3, limit: 20 });
    const made = await asked(builtin);
    expect(made).toHaveLength(20);
    expect(made).toEqual(await asked(files));
  });
});
