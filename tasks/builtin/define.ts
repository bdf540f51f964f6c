/** How built-in tasks and groups are written: keys and values of the public harness's task files. */
import { readFileSync } from 'node:fs';
import { Float } from '../../python/value.js';
import { addTags, type Entry, type TaskSettings } from '../definition/settings.js';
import { Hook, type Yaml } from '../definition/yaml.js';

/** A value as it is written here. Numbers are whole; `Float` is for those that Python shows with a point. */
export type Written = null | boolean | number | string | Float | Hook | readonly Written[] | WrittenMap;
export interface WrittenMap {
  readonly [key: string]: Written;
}

function toYaml(value: Written): Yaml {
  if (Array.isArray(value)) return (value as readonly Written[]).map(toYaml);
  if (value === null || typeof value !== 'object' || value instanceof Float || value instanceof Hook)
    return value as Yaml;
  return new Map(Object.entries(value).map(([key, item]) => [key, toYaml(item)]));
}

const settingsOf = (kind: 'task' | 'group', name: string, keys: WrittenMap): TaskSettings =>
  new Map(
    Object.entries(keys).map(([key, value]) => [
      key,
      { value: toYaml(value), where: `built-in ${kind} ${name}: ${key}` },
    ]),
  );

/** Collects what is built in. Settings are made when a name is asked for. */
export class Definitions {
  readonly entries = new Map<string, Entry>();

  task(name: string, keys: () => WrittenMap, tags: readonly string[] = []): void {
    const settings = (): TaskSettings =>
      settingsOf('task', name, { task: name, ...(tags.length > 0 ? { tag: tags } : {}), ...keys() });
    this.entries.set(name, { kind: 'task', tags, settings });
    addTags(this.entries, name, tags);
  }

  /** `members`: names of tasks, groups or tags, or names with keys that are passed down. */
  group(name: string, members: readonly Written[], keys: WrittenMap = {}): void {
    const settings = (): TaskSettings => settingsOf('group', name, { group: name, task: members, ...keys });
    this.entries.set(name, { kind: 'group', tags: [], settings });
  }
}

/** A metric whose mean over documents counts. */
export const mean = (metric: string, options: WrittenMap = {}): WrittenMap => ({
  metric,
  aggregation: 'mean',
  higher_is_better: true,
  ...options,
});

/** A group's score: the mean over the documents of all its tasks. */
export const overall = (metric: string, options: WrittenMap = {}): WrittenMap => ({
  metric,
  weight_by_size: true,
  ...options,
});

/** `version`: 2 is shown as 2.0; see `whole` for one that is shown as 2. */
export const version = (number: number): WrittenMap => ({ metadata: { version: new Float(number) } });
export const whole = (number: number): WrittenMap => ({ metadata: { version: number } });

/** What a contamination check would look for. It is recorded in results and has no other effect. */
export const decontaminated = (query: string): WrittenMap => ({
  should_decontaminate: true,
  doc_to_decontamination_query: query,
});

/** A Python function of the public harness, by the folder of its task file, that is written anew in tasks/hooks. */
export const hook = (folder: string, name: string): Hook => new Hook(name, `built-in/${folder}/tasks`);

/** The text files beside this module. */
export const readText = (name: string): string => readFileSync(new URL(`./texts/${name}`, import.meta.url), 'utf8');

/** The temperature of a greedy answer. */
export const ZERO = new Float(0);

// Tasks that score a text itself: LAMBADA's last word, and the pages of WikiText.

const lastWord = (): WrittenMap => ({
  output_type: 'loglikelihood',
  test_split: 'test',
  doc_to_text: "{{text.split(' ')[:-1]|join(' ')}}",
  doc_to_target: "{{' '+text.split(' ')[-1]}}",
  ...decontaminated('{{text}}'),
  metric_list: [{ metric: 'perplexity', aggregation: 'perplexity', higher_is_better: false }, mean('acc')],
  ...version(1),
});

export function texts(all: Definitions): void {
  const tags = ['lambada'];
  const openai = { dataset_path: 'EleutherAI/lambada_openai', dataset_name: 'default' };
  all.task('lambada_openai', () => ({ ...lastWord(), ...openai }), tags);
  const standard = { dataset_path: 'cimec/lambada', validation_split: 'validation' };
  all.task('lambada_standard', () => ({ ...lastWord(), ...standard }), tags);
  all.task('wikitext', () => ({
    output_type: 'loglikelihood_rolling',
    dataset_path: 'EleutherAI/wikitext_document_level',
    dataset_name: 'wikitext-2-raw-v1',
    training_split: 'train',
    validation_split: 'validation',
    test_split: 'test',
    doc_to_text: '',
    doc_to_target: hook('wikitext', 'preprocess_wikitext.wikitext_detokenizer'),
    process_results: hook('wikitext', 'preprocess_wikitext.process_results'),
    ...decontaminated('{{page}}'),
    metric_list: ['word_perplexity', 'byte_perplexity', 'bits_per_byte'].map((metric) => ({ metric })),
    ...version(2),
  }));
}
