/**
 * Child processes with a limit on how many run at once: compilers are CPU-bound, and more than the cores would only
 * queue.
 */
import { setMaxListeners } from 'node:events';
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';

export interface ProcessResult {
  /** Exit status; −1 if the program could not be started or was killed. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

const MAX_OUTPUT_BYTES = 16 * 2 ** 20;
const waiting: (() => void)[] = [];
let free = availableParallelism();

async function acquire(): Promise<void> {
  if (free > 0) free--;
  else await new Promise<void>((resolve) => waiting.push(resolve));
}

/** Passes its place to a waiting caller, if there is one. */
function release(): void {
  const next = waiting.shift();
  if (next === undefined) free++;
  else next();
}

function execute(
  file: string,
  args: readonly string[],
  cwd: string | undefined,
  signal: AbortSignal | undefined,
): Promise<ProcessResult> {
  return new Promise((resolve) => {
    // A compiler starts other processes. In a group of their own, all of them can be ended at once.
    const child = spawn(file, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: signal !== undefined,
      ...(cwd === undefined ? {} : { cwd }),
    });
    const kill = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(signal === undefined ? child.pid : -child.pid, 'SIGKILL');
      } catch {
        // It has ended by itself.
      }
    };
    const output = { stdout: '', stderr: '' };
    let problem: string | undefined;
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].setEncoding('utf8').on('data', (text: string) => {
        output[name] += text;
        if (output[name].length <= MAX_OUTPUT_BYTES) return;
        problem = `more than ${MAX_OUTPUT_BYTES} bytes of output`;
        kill();
      });
    }
    child.on('error', (error) => (problem ??= error.message));
    // As many programs as there are processors may wait for one signal; Node warns of more than ten listeners.
    if (signal !== undefined) setMaxListeners(0, signal);
    signal?.addEventListener('abort', kill, { once: true });
    child.on('close', (code, killedBy) => {
      signal?.removeEventListener('abort', kill);
      const status = problem === undefined && code !== null ? code : -1;
      const why = problem ?? (killedBy === null ? '' : `${file} was ended by ${killedBy}`);
      resolve({ status, stdout: output.stdout, stderr: output.stderr === '' ? why : output.stderr });
    });
  });
}

/**
 * Runs a program to its end, or until `signal` is aborted. Never rejects: a program that cannot be started, or was
 * ended, has status −1 and says why in stderr.
 */
export async function runProcess(
  file: string,
  args: readonly string[],
  cwd?: string,
  signal?: AbortSignal,
): Promise<ProcessResult> {
  await acquire();
  try {
    if (signal?.aborted === true) return { status: -1, stdout: '', stderr: `${file} was not started: stopped` };
    return await execute(file, args, cwd, signal);
  } finally {
    release();
  }
}
