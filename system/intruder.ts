/** Who can change a file besides its reader. */
import type { Stats } from 'node:fs';

/** Write permission of the group and of everybody. */
const OTHERS_WRITE = 0o022;

/** Who can change this file or folder besides the user and root; undefined where nobody can. */
export function intruder({ uid, mode }: Pick<Stats, 'uid' | 'mode'>): string | undefined {
  const user = process.getuid?.();
  if (user === undefined) return undefined;
  if (uid !== user && uid !== 0) return `it belongs to user ${uid}, not to you (${user})`;
  return (mode & OTHERS_WRITE) === 0 ? undefined : 'others may write to it';
}
