/**
 * `npm run bench:start`: how long commands take that compute next to nothing, each in a process of its own. The cache
 * folder is a new one, so that the first time of a command is that of a machine on which it never ran.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { median } from '../autotune/records.js';
import { readSettings } from '../settings.js';
import { defined } from '../system/defined.js';
import { benchCommand, runProgram, whole } from './command.js';
import { packageRoot } from './inputs.js';

interface StartOptions {
  readonly times: number;
  readonly model: string;
}

const startCommand = (): Command =>
  benchCommand('bench:start', 'Seconds of commands that compute next to nothing: median, minimum and maximum.')
    .option('--times <n>', 'processes for each figure', whole(1, 1000), 7)
    .option('--model <path>', 'the model that texts are generated with', 'models/demo');

const MAIN = join('dist', 'cli', 'main.js');

function main({ times, model }: StartOptions): void {
  const cache = mkdtempSync(join(tmpdir(), 'tilewright-start-'));
  const { path, cc } = readSettings();
  const env = { PATH: path, HOME: cache, TILEWRIGHT_CACHE: cache, ...defined({ TILEWRIGHT_CC: cc }) };
  const seconds = (args: readonly string[]): number => {
    const began = performance.now();
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: packageRoot(), env, encoding: 'utf8' });
    if (status !== 0) throw new Error(`node ${args.join(' ')} ended with status ${status}: ${stderr}`);
    return (performance.now() - began) / 1000;
  };
  const print = (name: string, args: readonly string[], count = times): void => {
    const found = Array.from({ length: count }, () => seconds(args));
    const figures = [median(found), Math.min(...found), Math.max(...found)].map((figure) => figure.toFixed(2));
    console.log(`| ${[name, ...figures].join(' | ')} |`);
  };
  try {
    console.log(`Node ${process.versions.node}, ${availableParallelism()} processors; ${times} times each\n`);
    console.log('| command | median | minimum | maximum |\n|---|---|---|---|');
    print('node -e 0', ['-e', '0']);
    print('--version, nothing kept', [MAIN, '--version']);
    print('--help, nothing kept', [MAIN, '--help']);
    const generate = [MAIN, 'generate', model, 'Once upon', '--max-new-tokens', '16', '--quiet'];
    print('generate, first time', generate, 1);
    print('generate, second time', generate);
    const int8 = [...generate, '--quantize', 'int8', '--target', 'cpu'];
    print('generate --quantize int8, first time', int8, 1);
    print('generate --quantize int8, second time', int8);
    print('--version', [MAIN, '--version']);
    print('--help', [MAIN, '--help']);
  } finally {
    rmSync(cache, { recursive: true, force: true });
  }
}

await runProgram(import.meta.url, startCommand, main);
