/**
 * Seconds from a command to its end on a CPU, the first time, with an empty cache, and again: medians of some rounds.
 * `npm run build && node scripts/benchStarts.mjs [ROUNDS]`, on a machine that does nothing else.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url));
const rounds = Number(process.argv[2] ?? 3);
const demo = at('models/demo');
const folder = mkdtempSync(join(tmpdir(), 'tilewright-starts-'));
/** The shape with made-up weights, and a tokenizer that reads the questions. */
const shape = join(folder, 'llama-1.1b');
const large = [shape, '--init', 'random:1'];
const questions = ['--task', 'hellaswag', '--data', at('examples/everyday.jsonl'), '--limit', '1'];
const generate = ['The sky is', '--max-new-tokens', '1'];
const COMMANDS = {
  'demo, generate, auto': ['generate', demo, ...generate],
  'demo, generate, f32': ['generate', demo, ...generate, '--precision', 'f32'],
  'demo, generate, bf16 (AMX)': ['generate', demo, ...generate, '--precision', 'bf16'],
  'demo, generate, int8': ['generate', demo, ...generate, '--quantize', 'int8'],
  'demo, generate, int8, AVX2': ['generate', demo, ...generate, '--quantize', 'int8', '--isa', 'avx2'],
  'demo, run, auto': ['run', demo, ...questions],
  'demo, run, int8': ['run', demo, ...questions, '--quantize', 'int8'],
  '1.1B, run, auto': ['run', ...large, ...questions, '--batch-tokens', '256'],
  '1.1B, run, int8': ['run', ...large, ...questions, '--batch-tokens', '256', '--quantize', 'int8'],
};

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Seconds, or undefined where the command fails. */
function time(argv, cache) {
  const begin = performance.now();
  const out = argv[0] === 'run' ? ['--out', join(folder, 'out')] : [];
  const { status, stderr } = spawnSync(process.execPath, [at('dist/cli/main.js'), ...argv, '--target', 'cpu', ...out], {
    env: { ...process.env, TILEWRIGHT_CACHE: cache },
    encoding: 'utf8',
  });
  rmSync(join(folder, 'out'), { recursive: true, force: true });
  if (status === 0) return (performance.now() - begin) / 1000;
  console.log(`  ${stderr.split('\n').find((line) => line.startsWith('error:')) ?? stderr}`);
  return undefined;
}

try {
  mkdirSync(shape);
  copyFileSync(at('bench/models/llama-1.1b/config.json'), join(shape, 'config.json'));
  copyFileSync(join(demo, 'tokenizer.json'), join(shape, 'tokenizer.json'));
  console.log('seconds of'.padEnd(30), 'first', ' again', ' libraries');
  for (const [name, argv] of Object.entries(COMMANDS)) {
    const [first, again] = [[], []];
    let libraries = 0;
    for (let round = 0; round < rounds; round++) {
      const cache = join(folder, 'cache');
      rmSync(cache, { recursive: true, force: true });
      first.push(time(argv, cache));
      if (first.at(-1) === undefined) break;
      libraries = readdirSync(join(cache, 'kernels')).length;
      again.push(time(argv, cache));
    }
    if (first.at(-1) === undefined) continue;
    console.log(
      name.padEnd(30),
      median(first).toFixed(2).padStart(5),
      median(again).toFixed(2).padStart(6),
      String(libraries).padStart(7),
    );
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
