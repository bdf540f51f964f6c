/**
 * `npm run bench:start [-- --times N] [-- --model DIR]`: how long commands take that compute next to nothing, each in a
 * process of its own: medians in seconds. The cache folder is a new one, so that the first time of a command is that of
 * a machine on which it never ran.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const { readSettings } = await import(new URL('../dist/settings.js', import.meta.url).href);

const ROOT = join(import.meta.dirname, '..');
const { values } = parseArgs({
  options: { times: { type: 'string', default: '7' }, model: { type: 'string', default: 'models/demo' } },
});
const TIMES = Number(values.times);
const MAIN = join('dist', 'cli', 'main.js');
const cache = mkdtempSync(join(tmpdir(), 'tilewright-start-'));
const { path, cc } = readSettings();
const env = { PATH: path, HOME: cache, TILEWRIGHT_CACHE: cache, ...(cc === undefined ? {} : { TILEWRIGHT_CC: cc }) };

/** Seconds of one process. */
function once(args) {
  const began = performance.now();
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, env, encoding: 'utf8' });
  const seconds = (performance.now() - began) / 1000;
  if (status !== 0) throw new Error(`node ${args.join(' ')} ended with status ${status}: ${stderr}`);
  return seconds;
}

const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const print = (name, times) =>
  process.stdout.write(
    `| ${name} | ${median(times).toFixed(2)} | ${Math.min(...times).toFixed(2)} | ${Math.max(...times).toFixed(2)} |\n`,
  );
const repeated = (args) => Array.from({ length: TIMES }, () => once(args));

if (!Number.isSafeInteger(TIMES) || TIMES < 1) throw new Error('--times: expected a whole number from 1');
try {
  process.stdout.write(`Node ${process.versions.node}, ${availableParallelism()} processors; ${TIMES} times each\n\n`);
  process.stdout.write('| command | median | least | most |\n|---|---|---|---|\n');
  print('node -e 0', repeated(['-e', '0']));
  print('--version, nothing kept', repeated([MAIN, '--version']));
  print('--help, nothing kept', repeated([MAIN, '--help']));
  const generate = [MAIN, 'generate', values.model, 'Once upon', '--max-new-tokens', '16', '--quiet'];
  print('generate, first time', [once(generate)]);
  print('generate, second time', repeated(generate));
  const inCodes = [...generate, '--quantize', 'int8', '--target', 'cpu'];
  print('generate --quantize int8, first time', [once(inCodes)]);
  print('generate --quantize int8, second time', repeated(inCodes));
  print('--version', repeated([MAIN, '--version']));
  print('--help', repeated([MAIN, '--help']));
} finally {
  rmSync(cache, { recursive: true, force: true });
}
