/** Child processes with a bound on how many run at once: compilers are CPU-bound, more than the cores only queue. */
import { execFile } from 'node:child_process';
import { availableParallelism } from 'node:os';

export interface ProcessResult {
  /** Exit status; −1 where the program could not be started or was killed. */
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

/** A waiting caller inherits the place. */
function release(): void {
  const next = waiting.shift();
  if (next === undefined) free++;
  else next();
}

function execute(file: string, args: readonly string[], cwd: string | undefined): Promise<ProcessResult> {
  return new Promise((resolve) => {
    const options = { maxBuffer: MAX_OUTPUT_BYTES, ...(cwd === undefined ? {} : { cwd }) };
    execFile(file, args, options, (error, stdout, stderr) => {
      if (error === null) resolve({ status: 0, stdout, stderr });
      else
        resolve({
          status: typeof error.code === 'number' ? error.code : -1,
          stdout,
          stderr: stderr === '' ? error.message : stderr,
        });
    });
  });
}

/** Runs a program to its end. Never rejects: a program that cannot be started has status −1 and says why in stderr. */
export async function runProcess(file: string, args: readonly string[], cwd?: string): Promise<ProcessResult> {
  await acquire();
  try {
    return await execute(file, args, cwd);
  } finally {
    release();
  }
}
