/** The tasks by name. */
import { UsageError } from '../../errors.js';
import { arcChallenge, arcEasy } from './arc.js';
import { hellaswag } from './hellaswag.js';
import { multipleChoice } from './multipleChoice.js';
import type { Task } from './task.js';

export const TASKS: readonly Task[] = [hellaswag, arcEasy, arcChallenge, multipleChoice];

/** Throws UserError that lists the known names. */
export function taskByName(name: string): Task {
  const task = TASKS.find((candidate) => candidate.name === name);
  if (task === undefined) {
    throw new UsageError(`unknown task "${name}"`, `Tasks: ${TASKS.map((known) => known.name).join(', ')}`);
  }
  return task;
}
