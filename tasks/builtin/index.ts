/** Tasks, groups and tags that are built in: those of the public harness that are asked for most, by its names. */
import { TaskLibrary } from '../definition/library.js';
import type { Entry } from '../definition/settings.js';
import { choices, mmlu, mmluPro, truthfulQa } from './choices.js';
import { Definitions, texts } from './define.js';
import { bigBenchHard, gsm8k } from './generated.js';
import { leaderboard } from './leaderboard.js';

/** Name → task, group or tag. No text is read before one is resolved. */
function builtinEntries(): ReadonlyMap<string, Entry> {
  const all = new Definitions();
  for (const add of [choices, mmlu, mmluPro, truthfulQa, texts, gsm8k, bigBenchHard, leaderboard]) add(all);
  return all.entries;
}

/**
 * What `--tasks` chooses from: built-in names and those of folders of task files, which win. Throws UserError for a
 * folder that is not there.
 */
export const openLibrary = (folders: readonly string[]): TaskLibrary => new TaskLibrary(folders, builtinEntries());
