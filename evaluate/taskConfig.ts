/** The settings of a task as results_*.json records them: those of its file with the harness's defaults. */
import { type Dict, Float, isInt, Shown } from '../python/value.js';
import { Hook, type Yaml } from '../tasks/definition/yaml.js';
import { generation } from '../tasks/requests/generation.js';
import { Keys } from '../tasks/requests/keys.js';
import type { TaskFacts } from './windows.js';

/** Plain JSON. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Functions are shown by their names. */
export function jsonOf(value: Yaml | Dict | undefined): Json {
  if (value === undefined || value === null) return null;
  if (value instanceof Hook) return `!function ${value.name}`;
  // The harness writes what JSON has no type for as text.
  if (value instanceof Shown) return value.text;
  if (value instanceof Float) return Number.isFinite(value.value) ? value.value : String(value.value);
  if (Array.isArray(value)) return (value as readonly Yaml[]).map(jsonOf);
  if (value instanceof Map)
    return Object.fromEntries([...(value as ReadonlyMap<string, Yaml>)].map(([key, item]) => [key, jsonOf(item)]));
  if (isInt(value)) return Number(value);
  return value as string | boolean;
}

/** In the order of the harness's TaskConfig; what a task does not have is left out. */
const KEYS = (
  'task task_alias dataset_path dataset_name dataset_kwargs training_split validation_split test_split fewshot_split ' +
  'process_docs doc_to_text doc_to_target unsafe_code doc_to_choice process_results description target_delimiter ' +
  'fewshot_delimiter fewshot_config num_fewshot metric_list output_type generation_kwargs repeats filter_list ' +
  'should_decontaminate doc_to_decontamination_query gen_prefix metadata'
).split(' ');

const SHOT_KEYS = (
  'sampler split process_docs fewshot_indices samples doc_to_text doc_to_choice doc_to_target gen_prefix ' +
  'fewshot_delimiter target_delimiter'
).split(' ');

/** Keys that shots have from the task, unless they have their own. */
const PASSED: ReadonlySet<string> = new Set(
  'doc_to_text doc_to_choice doc_to_target gen_prefix fewshot_delimiter target_delimiter'.split(' '),
);

const DEFAULTS: Readonly<Record<string, Json>> = {
  unsafe_code: false,
  description: '',
  target_delimiter: ' ',
  fewshot_delimiter: '\n\n',
  repeats: 1,
  should_decontaminate: false,
  output_type: 'generate_until',
};

export function configOf({ name, settings, scores, shots }: TaskFacts): Readonly<Record<string, Json>> {
  const own = (key: string): Json => jsonOf(settings.get(key)?.value) ?? DEFAULTS[key] ?? null;
  const written = settings.get('fewshot_config')?.value;
  const asked: ReadonlyMap<string, Yaml> = written instanceof Map ? (written as ReadonlyMap<string, Yaml>) : new Map();
  const fewshot = Object.fromEntries(
    SHOT_KEYS.map((key): [string, Json] => {
      const given = jsonOf(asked.get(key));
      if (given !== null) return [key, given];
      if (key === 'sampler') return [key, 'default'];
      return [key, key === 'split' ? own('fewshot_split') : PASSED.has(key) ? own(key) : null];
    }),
  );
  const generates = scores.type === 'generate_until' || own('generation_kwargs') !== null;
  const computed: Readonly<Record<string, Json>> = {
    task: name,
    generation_kwargs: generates ? jsonOf(generation(new Keys(settings), String(own('fewshot_delimiter')))) : null,
    fewshot_config: fewshot,
    num_fewshot: shots,
    metric_list:
      own('metric_list') ??
      scores.metrics.map(({ name: metric, aggregation, isHigherBetter }) => ({
        metric,
        aggregation,
        higher_is_better: isHigherBetter,
      })),
  };
  return Object.fromEntries(
    KEYS.flatMap((key) => {
      const value = computed[key] ?? own(key);
      return value === null ? [] : [[key, value] as const];
    }),
  );
}

/** `metadata.version`, as the harness gives it for a task that has none. */
export function versionOf({ settings }: Pick<TaskFacts, 'settings'>): number | string {
  const metadata = settings.get('metadata')?.value;
  const version = metadata instanceof Map ? jsonOf((metadata as ReadonlyMap<string, Yaml>).get('version')) : null;
  return typeof version === 'number' || typeof version === 'string' ? version : 'Yaml';
}
