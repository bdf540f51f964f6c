/**
 * Child processes with a limit on how many run at once: compilers are CPU-bound, and more than the cores would only
 * queue.
 */
import { setMaxListeners } from 'node:events';
import { spawn } from 'node:child_process';
import { availableParallelism, setPriority } from 'node:os';
import { Gate } from '../gate.js';

export interface ProcessResult {
  /** Exit status; −1 if the program could not be started or was killed. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface Execution {
  readonly cwd: string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly isBackground: boolean;
}

const MAX_OUTPUT_BYTES = 16 * 2 ** 20;

/** Programs that run beside others' work at a time. */
export const BACKGROUND_PROCESSES = Math.max(1, Math.floor(availableParallelism() / 2));

/** A program that somebody waits for does not queue behind one that nobody waits for. */
const WANTED = new Gate(availableParallelism());
const BACKGROUND = new Gate(BACKGROUND_PROCESSES);

/** Niceness at which a program gets a tenth of a processor that others want. */
const BACKGROUND_NICENESS = 10;

/**
 * Runs "$@" without input. This process holds the other end of the shell's input, and closes it when it ends, by
 * SIGKILL too: then everything in the shell's process group is ended.
 */
const SUPERVISED = `exec 3<&0
"$@" </dev/null 3<&- & program=$!
{ read -r _; kill -KILL 0; } <&3 >/dev/null 2>&1 & watch=$!
wait $program
status=$?
kill -KILL $watch
exit $status`;

function execute(
  file: string,
  args: readonly string[],
  { cwd, signal, isBackground }: Execution,
): Promise<ProcessResult> {
  return new Promise((resolve) => {
    const where = cwd === undefined ? {} : { cwd };
    // A compiler starts other processes. In a group of their own, all of them can be ended at once.
    const child =
      signal === undefined
        ? spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], ...where })
        : spawn('/bin/sh', ['-c', SUPERVISED, 'sh', file, ...args], {
            stdio: ['pipe', 'pipe', 'pipe'],
            detached: true,
            ...where,
          });
    if (isBackground && child.pid !== undefined) {
      try {
        setPriority(child.pid, BACKGROUND_NICENESS);
      } catch {
        // It has ended, or the system does not allow it.
      }
    }
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
 * Runs a program to its end. Never rejects: a program that cannot be started, or was ended, has a status other than 0
 * and says why in stderr. When `signal` is aborted, it ends at once together with the programs that it has started;
 * with a signal they also end when this process does, in whatever way. `isBackground`: nobody waits for it, and it
 * takes the processor time that others leave.
 */
export function runProcess(
  file: string,
  args: readonly string[],
  cwd?: string,
  signal?: AbortSignal,
  isBackground = false,
): Promise<ProcessResult> {
  return (isBackground ? BACKGROUND : WANTED).pass(async () =>
    signal?.aborted === true
      ? { status: -1, stdout: '', stderr: `${file} was not started: stopped` }
      : execute(file, args, { cwd, signal, isBackground }),
  );
}
