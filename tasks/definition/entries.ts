/** What a name can stand for, before it is resolved. */
import type { Settings } from './settings.js';

/** One name: a task or a group with the way to its settings, or the tasks of a tag. */
export type Entry =
  | { readonly kind: 'task' | 'group'; readonly tags: readonly string[]; readonly settings: () => Settings }
  | { readonly kind: 'tag'; readonly tasks: string[] };

/** Gives a task the tags it names. */
export function addTags(entries: Map<string, Entry>, task: string, tags: readonly string[]): void {
  for (const tag of tags) {
    const known = entries.get(tag);
    if (known === undefined) entries.set(tag, { kind: 'tag', tasks: [task] });
    else if (known.kind === 'tag') known.tasks.push(task);
  }
}
