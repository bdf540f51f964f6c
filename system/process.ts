/** Other processes, and the names of what they have not finished. */
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { codeOf } from './errno.js';

/** Whether a process of this host with this id exists. If it does, its unfinished files must be left alone. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}

const hostMark = (): string => createHash('sha256').update(hostname()).digest('hex').slice(0, 8);

/** Names this process in the names of files that it writes: hosts share folders, and their ids of processes repeat. */
export const processMark = (): string => `${process.pid}-${hostMark()}`;

/** What `processMark` makes. */
export const PROCESS_MARK = String.raw`\d{1,10}-[0-9a-f]{8}`;

/** Whether the process of a mark has ended. Of another host's that cannot be known: it counts as running. */
export function hasEnded(mark: string): boolean {
  const [pid, host] = mark.split('-');
  return host === hostMark() && !isRunning(Number(pid));
}
