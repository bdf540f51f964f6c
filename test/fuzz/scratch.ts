import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

let made: string | undefined;
/** A folder of this process, removed when it ends. */
export function scratch(): string {
  if (made === undefined) {
    const dir = mkdtempSync(join(tmpdir(), 'tilewright-fuzz-'));
    process.once('exit', () => rmSync(dir, { recursive: true, force: true }));
    made = dir;
  }
  return made;
}
