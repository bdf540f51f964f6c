/** What is said of a device process that ended, and of the call that ended it. */
import { UserError } from '../../errors.js';
import type { CallArrays } from '../../runtime/call.js';

/** The process ended before it answered, or before it was asked. */
export class ProcessEnded extends Error {
  readonly how: string;
  /** Whether it may have been computing the call when it ended. */
  readonly wasAsked: boolean;

  constructor(how: string, wasAsked = true) {
    super(`the device process ended: ${how}`);
    this.name = 'ProcessEnded';
    this.how = how;
    this.wasAsked = wasAsked;
  }
}

/** The size of a call, for messages: its longest input. */
export const entriesOf = (inputs: CallArrays): number =>
  Math.max(0, ...Object.values(inputs).map(({ length }) => length));

/** A call, as far as messages name it. */
interface Asked {
  readonly name: string;
  readonly inputs: CallArrays;
}

/** The error for a call that ended its process every time it was tried. */
export const fatalCall = ({ name, inputs }: Asked, times: number, how: string): UserError =>
  new UserError(
    `a call of ${name} with ${entriesOf(inputs)} tokens ended the device process ${times} times: ${how}`,
    'a smaller --batch-tokens, or --target cpu, may get past it; a run with --out goes on with --resume',
  );

/** The error for a process that ended before it had loaded its model. */
export const endedWhileLoading = (how: string): UserError =>
  new UserError(
    `the device process ended while it loaded the model: ${how}`,
    'see whether nvidia-smi works on this machine, then start again',
  );

/** The error for processes that ended so often that no other is started. */
export const endedTooOften = (times: number, how: string): UserError =>
  new UserError(
    `the device process ended ${times} times, last: ${how}`,
    'what is finished is kept; see what nvidia-smi says of the device',
  );
