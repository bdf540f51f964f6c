/** What hostile input may cause: a refusal in one clear line. */
import { UserError } from '../../errors.js';

/** Rethrows the error unless it is a UserError of one line. */
export function expectRefusal(error: unknown): void {
  if (!(error instanceof UserError) || error.message.includes('\n')) throw error;
}

/** Runs `read`, which may refuse its input. */
export function refusedWell(read: () => void): void {
  try {
    read();
  } catch (error) {
    expectRefusal(error);
  }
}

/** Errors of a program that did not expect its input, whoever catches them. */
export function expectForeseen(error: unknown): void {
  for (let at: unknown = error; at instanceof Error; at = at.cause)
    if (at instanceof TypeError || /call stack|array length|string length|out of memory/i.test(at.message)) throw error;
}
