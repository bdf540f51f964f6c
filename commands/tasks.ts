/** `tasks`: the names that `run --tasks` takes. */
import { openLibrary } from '../tasks/builtin/index.js';

export interface TaskNames {
  readonly tasks: readonly string[];
  readonly groups: readonly string[];
  readonly tags: readonly string[];
  /** Files that cannot be read: one message each. */
  readonly unreadable: readonly string[];
}

/** Of folders of task files, each sorted. Throws UserError for a folder that is not there. */
export function listTasks(includePaths: readonly string[]): TaskNames {
  const library = openLibrary(includePaths);
  const [tasks, groups, tags] = [library.names('task'), library.names('group'), library.names('tag')];
  return { tasks, groups, tags, unreadable: library.unreadable };
}
