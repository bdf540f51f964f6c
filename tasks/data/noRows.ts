import { UserError } from '../../errors.js';

/** What to do about a file that is not as it should be. */
export const CHECK = 'Check the file; if it was downloaded, download it again';

/** Files of a split without a row. The message names them, and not the task that asks for them. */
export class NoRows extends UserError {}

/** A setting of a task's file that no data can be read by. `key` is the setting's: whoever knows the file adds it. */
export class DataSettingError extends UserError {
  readonly key: string;
  readonly problem: string;
  constructor(key: string, problem: string, hint?: string) {
    super(`${key}: ${problem}`, hint);
    this.key = key;
    this.problem = problem;
  }
}
