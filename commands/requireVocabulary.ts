/** Commands that need the probabilities of tokens, and models that give none. */
import { UsageError } from '../errors.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { classesOf } from '../models/model/model.js';
import { quoteForShell } from '../system/process.js';
import { counted } from '../system/text.js';

/** Throws UsageError where the model's head gives classes. `asked`: what was to be done. */
export function requireVocabulary({ path, config }: Pick<Checkpoint, 'path' | 'config'>, asked: string): void {
  const classes = classesOf(config);
  if (classes === undefined) return;
  const gives = `its head gives ${counted(classes, 'class', 'classes')}, no tokens`;
  throw new UsageError(
    `${asked}: ${path} is a reward model (${config.architecture}): ${gives}`,
    `score solutions with it: tilewright reward ${quoteForShell(path)} --input solutions.jsonl`,
  );
}
