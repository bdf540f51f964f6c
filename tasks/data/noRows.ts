import { UserError } from '../../errors.js';

/** Files of a split without a row. The message names them, and not the task that asks for them. */
export class NoRows extends UserError {}
