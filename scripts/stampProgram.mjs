/** Writes the digest of the built code beside it: a process reads it instead of all code (driver/program.ts). */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hashProgram, STAMP } from '../dist/driver/program.js';

const DIST = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist');
writeFileSync(join(DIST, STAMP), `${hashProgram(DIST)}\n`);
