/** Lines on tasks whose values may differ from the public harness's. */
import type { Settings } from '../definition/settings.js';
import { Hook } from '../definition/yaml.js';
import { noteOf } from './registry.js';

/** How many names of tasks a line has. */
const MAX_NAMES = 4;

export function notesOn(tasks: readonly Settings[]): string[] {
  const found = new Map<string, string[]>();
  for (const settings of tasks) {
    const text = (key: string): string | undefined => {
      const value = settings.get(key)?.value;
      return typeof value === 'string' ? value : undefined;
    };
    const hook = settings.get('process_results')?.value;
    if (!(hook instanceof Hook)) continue;
    const note = noteOf(hook, { dataset: text('dataset_path'), outputType: text('output_type') });
    if (note !== undefined) found.set(note, [...(found.get(note) ?? []), text('task') ?? '?']);
  }
  return [...found].map(([note, names]) => {
    const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : '';
    return `${names.slice(0, MAX_NAMES).join(', ')}${more}: ${note}`;
  });
}
