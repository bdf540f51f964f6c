/**
 * `npm run bench:tokenizers -- [FOLDER …]`: how long tokenizers take to open, beside what the native library alone
 * takes to read the same file. Without folders, for made-up tokenizers of the sizes of Gemma 3, gpt-oss, Llama 3.1 and
 * Llama 2. Each opening is a process of its own; the three kinds take turns, and figures are medians.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runProgram } from '../program.js';
import { SHAPES, writeTokenizer } from './make.js';

const ROUNDS = 5;
const CHILD = fileURLToPath(new URL('./open.js', import.meta.url));

const USAGE = `npm run bench:tokenizers -- [FOLDER …]

Opens the tokenizer.json of each folder, or made-up ones, ${ROUNDS} times with the native library alone, ${ROUNDS}
times for the first time (with an empty cache), and ${ROUNDS} times again. Prints medians of wall and processor time in
seconds, and processor time as a multiple of the library's.`;

interface Measured {
  readonly wall: number;
  readonly cpu: number;
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!;

function openOnce(dir: string, how: 'library' | 'ours', cache: string): Measured {
  const options = { encoding: 'utf8', env: { TILEWRIGHT_CACHE: cache } } as const;
  return JSON.parse(execFileSync(process.execPath, [CHILD, how, dir], options)) as Measured;
}

function measure(dir: string, scratch: string): void {
  const found = { library: [] as Measured[], first: [] as Measured[], again: [] as Measured[] };
  for (let round = 0; round < ROUNDS; round++) {
    const cache = mkdtempSync(join(scratch, 'cache-'));
    found.library.push(openOnce(dir, 'library', cache));
    found.first.push(openOnce(dir, 'ours', cache));
    found.again.push(openOnce(dir, 'ours', cache));
  }
  const shown = (runs: readonly Measured[]): string =>
    (['wall', 'cpu'] as const)
      .map((key) =>
        median(runs.map((run) => run[key]))
          .toFixed(2)
          .padStart(6),
      )
      .join(' ');
  const ratio = (runs: readonly Measured[]): string =>
    (median(runs.map(({ cpu }) => cpu)) / median(found.library.map(({ cpu }) => cpu))).toFixed(2).padStart(6);
  const megabytes = (statSync(join(dir, 'tokenizer.json')).size / 1e6).toFixed(1).padStart(6);
  console.log(
    `${basename(dir).padEnd(12)} ${megabytes} | ${shown(found.library)} | ${shown(found.first)} ` +
      `${ratio(found.first)} | ${shown(found.again)} ${ratio(found.again)}`,
  );
}

await runProgram(
  USAGE,
  (args) => (args.some((arg) => arg.startsWith('-')) ? undefined : args),
  async (folders) => {
    const scratch = mkdtempSync(join(tmpdir(), 'tilewright-tokenizers-'));
    try {
      console.log(`${''.padEnd(12)}     MB |    library    |      first time      |        again`);
      console.log(`${''.padEnd(12)}        |   wall   cpu |   wall   cpu  ratio |   wall   cpu  ratio`);
      for (const folder of folders) measure(resolve(folder), scratch);
      for (const shape of folders.length > 0 ? [] : SHAPES) {
        const dir = join(scratch, shape.name);
        mkdirSync(dir);
        writeTokenizer(shape, dir);
        measure(dir, scratch);
      }
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  },
);
