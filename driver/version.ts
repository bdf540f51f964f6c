/** This program's version, from package.json. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

function readVersion(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    try {
      const json: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      if (typeof json === 'object' && json !== null && 'version' in json) return String(json.version);
    } catch {
      // Not here; try the parent folder.
    }
  }
  return 'unknown';
}

export const VERSION = readVersion();
