/**
 * Child processes with a limit on how many run at once: compilers are CPU-bound, and more than the cores would only
 * queue.
 */
import { spawn } from 'node:child_process';
import { setMaxListeners } from 'node:events';
import { availableParallelism, setPriority } from 'node:os';
import { UserError } from '../errors.js';
import type { Header } from '../ir/unit.js';
import { Gate } from './gate.js';

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

/** A foreground program does not queue behind a background one. */
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

// Turns a compiler's error about generated C into one error that shows the lines in question.

export interface SourceText {
  /** File name inside the library, [A-Za-z0-9_]+.c, or of a header, with its folder. */
  readonly name: string;
  /** May be printed when it is read: a library that is in the cache does not need it. */
  readonly text: string;
  /** Every header that the text includes. Absent: none. Read when the text is. */
  readonly headers?: readonly Header[];
  /** Names the text and its headers where it is known; else unitDigest does. */
  readonly digest?: string;
}

/** Errors of a compiler that are shown. */
export const MAX_SHOWN_ERRORS = 3;
const CONTEXT = 2;

/** An error of a compiler, and its line in the generated text or a header. */
export interface Diagnostic {
  readonly line: number;
  readonly message: string;
}

interface PlacedDiagnostic extends Diagnostic {
  readonly file: string;
  readonly text: string;
}

function diagnosticsOf(source: SourceText, stderr: string): PlacedDiagnostic[] {
  const texts = new Map([source, ...(source.headers ?? [])].map(({ name, text }) => [name, text]));
  const found: PlacedDiagnostic[] = [];
  for (const each of stderr.split('\n')) {
    const match = /^(?:\.\/)?([A-Za-z0-9_./]+):(\d+)(?::\d+)?: (.*)$/.exec(each);
    const text = match === null ? undefined : texts.get(match[1]!);
    if (match === null || text === undefined || /^(note|warning):/.test(match[3]!)) continue;
    found.push({ file: match[1]!, text, line: Number(match[2]), message: match[3]! });
  }
  return found;
}

/** The line (counted from 1), marked, with its neighbours. */
export function excerpt(text: string, line: number): string {
  const lines = text.split('\n');
  const from = Math.max(1, line - CONTEXT);
  return lines
    .slice(from - 1, line + CONTEXT)
    .map((content, i) => `${from + i === line ? '>' : ' '} ${String(from + i).padStart(5)} | ${content}`)
    .join('\n');
}

/** The error, with the file, the compiler's message and the generated lines. */
export function compileError(compiler: string, source: SourceText, stderr: string): UserError {
  const diagnostics = diagnosticsOf(source, stderr);
  const shown = diagnostics
    .slice(0, MAX_SHOWN_ERRORS)
    .map(({ file, text, line, message }) => `${file}:${line}: ${message}\n${excerpt(text, line)}`);
  const rest = diagnostics.length > MAX_SHOWN_ERRORS ? `\n… and ${diagnostics.length - MAX_SHOWN_ERRORS} more` : '';
  const details = shown.length > 0 ? shown.join('\n') + rest : stderr.trim().slice(0, 2000);
  return new UserError(
    `${compiler} does not compile the generated ${source.name}:\n${details}`,
    'Try another compiler with TILEWRIGHT_CC=/path/to/cc; if it fails too, this is a bug in code generation.',
  );
}
