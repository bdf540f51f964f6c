/** What the caller of a run asks of every task, in the place of what its file says. */
import { Float, type Dict, type Value } from '../../python/value.js';
import type { Setting, Settings } from './settings.js';
import type { Yaml } from './yaml.js';

export interface Asked {
  /** Keys of generation_kwargs, for tasks that generate. */
  readonly generation?: Dict | undefined;
  /** No metrics: only the model's answers are written. */
  readonly predictsOnly?: boolean | undefined;
}

/** What a task without generation_kwargs has, besides the text that ends its answers. */
const GREEDY: ReadonlyMap<string, Yaml> = new Map<string, Yaml>([
  ['temperature', new Float(0)],
  ['do_sample', false],
  ['max_gen_toks', 256],
]);

/** The settings of a task with these in force. */
export function withAsked(settings: Settings, { generation, predictsOnly }: Asked): Settings {
  const changed = new Map<string, Setting>(settings);
  const generates = (settings.get('output_type')?.value ?? 'generate_until') === 'generate_until';
  if (generation !== undefined && generation.size > 0 && generates) {
    const own = settings.get('generation_kwargs')?.value;
    const kept: ReadonlyMap<string, Yaml> = own instanceof Map ? (own as ReadonlyMap<string, Yaml>) : GREEDY;
    const value = new Map<string, Yaml | Value>([...kept, ...generation]) as ReadonlyMap<string, Yaml>;
    changed.set('generation_kwargs', { value, where: 'generation_kwargs of the command' });
  }
  if (predictsOnly === true) {
    changed.set('metric_list', { value: [new Map([['metric', 'bypass']])], where: 'metric_list' });
    changed.delete('process_results');
  }
  return changed;
}
