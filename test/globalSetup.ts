/**
 * Runs once before all tests: makes the folder that they share, and says loudly what this machine lacks and which tests
 * are skipped for it. A skipped test that nobody notices is as good as none.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CHROMIUM } from './support/browser.js';
import { MEMORY, memoryFolder, runFolder } from './support/runFolder.js';
import { hasSlurm } from './support/slurm.js';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

interface Optional {
  readonly what: string;
  readonly isPresent: () => boolean;
  readonly skipped: string;
  readonly remedy: string;
}

const OPTIONAL: readonly Optional[] = [
  {
    what: 'the data folder ../shared (data sets, checkpoints, golden log-likelihoods)',
    isPresent: () => existsSync(join(ROOT, '..', 'shared', 'golden')),
    skipped: 'comparisons with golden files and with real data sets',
    remedy: 'put the folder beside the repository',
  },
  {
    what: 'a C compiler (cc, gcc or clang)',
    isPresent: () =>
      ['cc', 'gcc', 'clang'].some((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0),
    skipped: 'generated kernels, the runtime and everything end to end',
    remedy: 'install one (Debian, Ubuntu: apt-get install g++ cmake)',
  },
  {
    what: 'the native addon build/Release/tilewright.node',
    isPresent: () => existsSync(join(ROOT, 'build', 'Release', 'tilewright.node')),
    skipped: 'the runtime and everything end to end',
    remedy: 'npm run build:native',
  },
  {
    what: 'the browser Chromium',
    isPresent: () => CHROMIUM !== undefined,
    skipped: 'what pages do in a browser (test/browser)',
    remedy: 'install it (Debian, Ubuntu: apt-get install chromium), or name one in TILEWRIGHT_CHROMIUM',
  },
  {
    what: 'Slurm (slurmctld, slurmd, sbatch)',
    isPresent: () => hasSlurm,
    skipped: 'the Slurm script of docs/scaling.md',
    remedy: 'install it (Debian, Ubuntu: apt-get install slurm-wlm)',
  },
];

function reportMissing(): void {
  const missing = OPTIONAL.filter((item) => !item.isPresent());
  if (missing.length === 0) return;
  const rule = '!'.repeat(80);
  const lines = missing.flatMap((item) => [
    `!! MISSING: ${item.what}`,
    `!!   skipped: ${item.skipped}`,
    `!!   to run them: ${item.remedy}`,
  ]);
  process.stderr.write(`\n${[rule, ...lines, rule].join('\n')}\n\n`);
}

/** Folders of runs whose process was killed, in memory (vitest.config.ts). */
function removeLeft(): void {
  for (const name of readdirSync(MEMORY)) {
    const [, pid] = /^tilewright-(\d+)$/.exec(name) ?? [];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) rmSync(join(MEMORY, name), { recursive: true, force: true });
  }
}

/** Returns what runs after the last test. */
export default function setup(): () => void {
  const folder = runFolder(process.pid);
  const memory = memoryFolder(process.pid);
  const isInMemory = existsSync(memory);
  const remove = (): void => {
    rmSync(folder, { recursive: true, force: true });
  };
  // Process ids are reused: nothing of an earlier run may be found there.
  remove();
  if (isInMemory) removeLeft();
  mkdirSync(folder, { mode: 0o700 });
  reportMissing();
  return isInMemory ? () => rmSync(memory, { recursive: true, force: true }) : remove;
}
