/** Other processes of this host. */
import { codeOf } from './errno.js';

/** Whether a process of this number exists: what it has half-written is its own. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}
