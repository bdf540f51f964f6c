/** Other processes on this host. */
import { codeOf } from './errno.js';

/** Whether a process with this id exists. If it does, its unfinished files must be left alone. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}
