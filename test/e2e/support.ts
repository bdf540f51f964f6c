/** End to end: small checkpoints and question sets made up here, and the real command as a process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, expect, vi } from 'vitest';
import type { Io, StopSignal } from '../../cli/io.js';
import type * as Program from '../../cli/program.js';
import type { RunProgress } from '../../driver/requests.js';
import { readSettings } from '../../settings.js';
import { quickCc, runFolder } from '../support/runFolder.js';

export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
export const MAIN = join(ROOT, 'dist', 'cli', 'main.js');
const NEEDED = [
  MAIN,
  join(ROOT, 'dist', 'codegen', 'cpu', 'templates'),
  join(ROOT, 'build', 'Release', 'tilewright.node'),
];

/** Whether the command is built. Says so loudly if it is not. */
export const isBuilt = NEEDED.every((path) => existsSync(path));
if (!isBuilt)
  process.stderr.write(
    `SKIPPED: end-to-end tests: ${NEEDED.filter((path) => !existsSync(path)).join(', ')} not ` +
      'there; npm run build makes it\n',
  );

/** One kernel cache for all end-to-end test files of one run: each small model is compiled once. */
export const CACHE = join(runFolder(), 'e2e-cache');

const cc = quickCc('-O1');
/** What every command gets, beside the variables of `more`. Whoever says what is on PATH finds compilers there. */
export const environment = (more: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> => ({
  TILEWRIGHT_CACHE: CACHE,
  ...(cc === undefined || 'PATH' in more ? {} : { TILEWRIGHT_CC: cc }),
  ...more,
});

// A test starts several processes, which a busy machine may hold up.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A new empty folder, removed after the tests of the file. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-e2e-'));
  folders.push(folder);
  return folder;
}

export interface Outcome {
  /** null if a signal ended it. */
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly process: ChildProcess;
  readonly ended: Promise<Outcome>;
  /** Where and with which environment it was started. */
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** What it has written so far. */
  stdout(): string;
  stderr(): string;
}

/**
 * Longer than any command here takes on a busy machine: a process that still runs then hangs, and its outcome says so.
 */
const PATIENCE_MS = 200_000;

/**
 * Processes of a second or two end before optimized JavaScript pays off: a quarter of their CPU time went into making
 * it.
 */
const NODE = [process.execPath, '--no-opt'] as const;

/** Starts the command (or `prefix` with the command as its arguments). */
export function start(
  args: readonly string[],
  options: { readonly prefix?: readonly string[]; readonly env?: Readonly<Record<string, string>> } = {},
): Running {
  const [program = '', ...rest] = [...(options.prefix ?? []), ...NODE, MAIN, ...args];
  const cwd = tmpdir();
  const env = { PATH: readSettings().path, ...environment(options.env ?? {}) };
  const child = spawn(program, rest, {
    cwd,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PATIENCE_MS,
    killSignal: 'SIGKILL',
  });
  let stdout = '',
    stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const ended = new Promise<Outcome>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status, signal) => {
      resolve({ status, signal, stdout, stderr });
    });
  });
  return { process: child, cwd, env, ended, stdout: () => stdout, stderr: () => stderr };
}

/** A stream that remembers, and is no terminal. */
class Recorder extends Writable {
  readonly isTTY = false;
  text = '';

  override _write(chunk: string | Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

export interface Here {
  /** Variables of the environment beside those that every command gets. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Called with every progress report of a run, between two micro-batches, however fast they are. `press` is Ctrl-C.
   */
  readonly onProgress?: (progress: RunProgress, press: () => void) => void;
  /** Called with every token that generate gives, before the next step begins. */
  readonly onPiece?: (press: () => void) => void;
}

/** As built: a module of dist/, which the tests' own compiler leaves as it is. */
const built = (path: string): Promise<unknown> =>
  import(/* @vite-ignore */ pathToFileURL(join(ROOT, 'dist', path)).href);

async function runHere(args: readonly string[], { onProgress, onPiece }: Here): Promise<Outcome> {
  const { createCli } = (await built('cli/program.js')) as typeof Program;
  const [stdout, stderr] = [new Recorder(), new Recorder()];
  const listeners = new Set<(signal: StopSignal) => void>();
  let died: StopSignal | undefined;
  const press = (): void => {
    for (const listener of listeners) listener('SIGINT');
  };
  const io: Io = {
    stdout,
    stderr,
    isDebug: false,
    colour: { noColour: true, forceColour: undefined, isDumb: false },
    invocation: 'tilewright',
    cores: availableParallelism,
    observer: {
      run: (progress) => onProgress?.(progress, press),
      step: (_, detail) => {
        if (typeof detail === 'object' && detail.unit === 'tokens') onPiece?.(press);
      },
    },
    now: () => performance.now(),
    onStop: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    die: (signal) => {
      died = signal;
    },
  };
  const status = await createCli(io).run(args);
  expect(died).toBeUndefined();
  expect(listeners.size).toBe(0);
  return { status, signal: null, stdout: stdout.text, stderr: stderr.text };
}

/** Variables that influence a run and may be set where the tests run. */
const INHERITED = [
  'TILEWRIGHT_CC',
  'TILEWRIGHT_CACHE_LIMIT',
  'TILEWRIGHT_DEVICE_TIMEOUT',
  'TILEWRIGHT_DEVICE_MEMORY',
  'TILEWRIGHT_PEERS',
  'TILEWRIGHT_PLAN_CACHE',
  'TILEWRIGHT_SHARDS',
  'SLURM_ARRAY_TASK_ID',
  'SLURM_PROCID',
  'SLURM_NTASKS',
  'JOB_COMPLETION_INDEX',
];

/** With the variables that a process would be started with. */
async function withEnvironment<T>(more: Readonly<Record<string, string>>, work: () => Promise<T>): Promise<T> {
  for (const name of INHERITED) vi.stubEnv(name, undefined);
  for (const [name, value] of Object.entries(environment(more))) vi.stubEnv(name, value);
  try {
    return await work();
  } finally {
    vi.unstubAllEnvs();
  }
}

// Processes of devices are started with the flags of this one.
process.execArgv = [...process.execArgv, '--no-opt'];

let last: Promise<unknown> = Promise.resolve();

/**
 * Runs the command to its end as its main module does, in this process, where its modules are loaded already; loading
 * them takes longer than most commands here. Only one can run at a time, because the environment belongs to the
 * process. What depends on being a process (signals, limits, exit) is tested with start().
 */
export function tilewright(args: readonly string[], options: Here = {}): Promise<Outcome> {
  const outcome = last.then(() => withEnvironment(options.env ?? {}, () => runHere(args, options)));
  last = outcome.catch(() => undefined);
  return outcome;
}

/** Runs the command to its end in a separate process. */
export const tilewrightProcess = (
  args: readonly string[],
  options: Parameters<typeof start>[1] = {},
): Promise<Outcome> => start(args, options).ended;

/** Test files share these kernels: the first to run compiles them. */
export const CAPACITY = ['--batch-tokens', '96'];
/** For stand-ins of GPUs, whose kernels take no time to compile: micro-batches of several trees. */
export const GPU_CAPACITY = ['--batch-tokens', '256'];
export const runArguments = (model: string, data: string, ...more: string[]): string[] => [
  'run',
  model,
  '--task',
  'multiple_choice',
  '--data',
  data,
  '--threads',
  '2',
  ...(more.includes('--batch-tokens') ? [] : CAPACITY),
  ...more,
];

/** Compiles a model's kernels into the cache, so that tests that run side by side need not each do it. */
export async function warmCache(model: string, ...more: string[]): Promise<void> {
  success(
    await tilewright([
      'compile',
      model,
      ...(more.includes('--batch-tokens') ? [] : CAPACITY),
      ...more,
      '-o',
      join(temporaryFolder(), 'warm.tw'),
    ]),
  );
}

/**
 * Checks that the command failed as it should: status 1, or 2 for wrong use; one `error:` line (indented lists of
 * patterns may follow), one `hint:`, no stack and no claim of a bug. Returns the two texts.
 */
export function failure({ status, signal, stdout, stderr }: Outcome): {
  readonly error: string;
  readonly hint: string;
} {
  expect([1, 2], stderr).toContain(status);
  expect(signal).toBeNull();
  expect(stdout).toBe('');
  expect(stderr).not.toMatch(/^\s+at .*[:(]\d+|node:internal|this is a bug|unexpected:|Unhandled/m);
  const errors = [...stderr.matchAll(/^error: (.+(?:\n {2}.+)*)$/gm)].map(([, text = '']) => text);
  const hints = [...stderr.matchAll(/^hint: (.+(?:\n {2}.+)*)$/gm)].map(([, text = '']) => text);
  expect(errors, stderr).toHaveLength(1);
  expect(hints, stderr).toHaveLength(1);
  return { error: errors[0] ?? '', hint: hints[0] ?? '' };
}

/** The outcome of a command that must succeed. */
export function success(outcome: Outcome): Outcome {
  expect(outcome, outcome.stderr).toMatchObject({ status: 0, signal: null });
  return outcome;
}

/** Files of a run: results and samples by kind. `out/<model>/` holds one of each after one run. */
export function filesOf(out: string, kind: 'samples' | 'results' | 'journal'): string[] {
  if (!existsSync(out)) return [];
  return readdirSync(out, { recursive: true, encoding: 'utf8' })
    .filter((name) => new RegExp(`(^|/)${kind}_[^/]*$`).test(name))
    .map((name) => join(out, name))
    .sort();
}

/** The text of the one file of a kind. */
export function textOf(out: string, kind: 'samples' | 'results'): string {
  const files = filesOf(out, kind);
  expect(files, `${kind} in ${out}`).toHaveLength(1);
  return readFileSync(files[0] ?? '', 'utf8');
}

export interface Answer {
  readonly docId: number;
  readonly ll: readonly number[];
}

/** Log-likelihoods as samples_*.jsonl holds them: decimal digits that read back as the same double. */
export const answersOf = (out: string): Answer[] =>
  textOf(out, 'samples')
    .trimEnd()
    .split('\n')
    .map((line) => {
      const sample = JSON.parse(line) as {
        readonly doc_id: number;
        readonly filtered_resps: readonly (readonly [string, string])[];
      };
      return { docId: sample.doc_id, ll: sample.filtered_resps.map(([ll]) => Number(ll)) };
    });

/** Bytes of the journal of a run. */
export function journalSize(out: string): number {
  const [path] = filesOf(out, 'journal');
  return path === undefined ? 0 : (statSync(path, { throwIfNoEntry: false })?.size ?? 0);
}

/** Waits until the journal has this many bytes, or the run has ended. */
export async function journalReaches({ process: child }: Running, out: string, bytes: number): Promise<void> {
  while (child.exitCode === null && child.signalCode === null && journalSize(out) < bytes) await sleep(5);
}

/** Whether a run has written its answers: then it is complete, though a signal may have come before it exited. */
export const isOver = (out: string): boolean => filesOf(out, 'samples').length > 0;

/**
 * Starts a run with results in `out` and kills it once its journal has this many bytes. Starts another one if it ended
 * before that.
 */
export async function killedAt(bytes: number, out: string, args: readonly string[]): Promise<void> {
  for (;;) {
    const running = start(args);
    await journalReaches(running, out, bytes);
    running.process.kill('SIGKILL');
    const { signal, status, stderr } = await running.ended;
    if (signal === 'SIGKILL' && !isOver(out)) return;
    expect(signal === 'SIGKILL' || status === 0, stderr).toBe(true);
    rmSync(out, { recursive: true });
    mkdirSync(out);
  }
}
