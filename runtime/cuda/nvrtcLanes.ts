/**
 * Lanes that compile with NVRTC side by side. Each is a process: NVRTC holds locks of its own within one, and a
 * compiler that crashes on a text takes nothing with it. Processes need the compiled nvrtcProcess.js beside this file;
 * where only TypeScript sources are (tests), the one lane is this process.
 */
import { fork } from 'node:child_process';
import { existsSync } from 'node:fs';
import { setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';
import { UserError } from '../../errors.js';
import type { Compilation, Nvrtc } from './nvrtc.js';

export interface LaneRequest {
  readonly name: string;
  readonly source: string;
  readonly options: readonly string[];
}

export type LaneReply = { readonly compilation: Compilation } | { readonly error: string };

/** Compiles one text at a time. */
export interface Lane {
  compile(request: LaneRequest): Promise<Compilation>;
  /** From now on it takes the processors that nobody else wants. Absent where it has no process of its own. */
  lower?(): void;
  /** Ends a compilation that is under way, too: it rejects. */
  close(): void;
}

/** Of 19: work that somebody waits for comes first, and idle processors are still used. */
const LOW_PRIORITY = 10;
/** Standard error that is kept to explain a crash. */
const MAX_STDERR = 4000;

function processLane(file: string, path: string): Lane {
  const child = fork(file, [path], {
    execArgv: [],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let settle: { resolve(compilation: Compilation): void; reject(error: Error): void; name: string } | undefined;
  let failure: string | undefined;
  let stderr = '';
  child.stderr?.on('data', (data: Buffer) => {
    stderr = (stderr + data.toString()).slice(-MAX_STDERR);
  });
  const crash = (name: string, reason: string): UserError =>
    new UserError(
      `NVRTC (${path}) ${reason} while it compiled the generated ${name}.${stderr === '' ? '' : `\n${stderr.trim()}`}`,
      'Try another compiler: TILEWRIGHT_NVRTC=/path/to/libnvrtc.so or TILEWRIGHT_NVCC=/path/to/nvcc',
    );
  const fail = (reason: string): void => {
    failure ??= reason;
    settle?.reject(crash(settle.name, failure));
    settle = undefined;
  };
  child.on('message', (reply: LaneReply) => {
    if ('error' in reply) settle?.reject(new Error(reply.error));
    else settle?.resolve(reply.compilation);
    settle = undefined;
  });
  child.on('error', (error) => fail(`could not be run (${error.message})`));
  child.on('close', (code, signal) =>
    fail(signal === null ? `ended with status ${code ?? 0}` : `was killed by ${signal}`),
  );
  return {
    compile: ({ name, source, options }) =>
      new Promise((resolve, reject) => {
        if (failure !== undefined) return reject(crash(name, failure));
        settle = { resolve, reject, name };
        child.send({ name, source, options }, (error) => {
          if (error !== null) fail(`could not be reached (${error.message})`);
        });
      }),
    lower: () => {
      try {
        if (child.pid !== undefined && failure === undefined) setPriority(child.pid, LOW_PRIORITY);
      } catch {
        // It has just ended, or the system does not allow it: then it runs as it did.
      }
    },
    close: () => {
      settle?.reject(new Error(`NVRTC was stopped while it compiled ${settle.name}`));
      settle = undefined;
      child.kill('SIGKILL');
    },
  };
}

function localLane(path: string): Lane {
  let nvrtc: Promise<Nvrtc> | undefined;
  return {
    compile: async ({ name, source, options }) => {
      nvrtc ??= import('./nvrtc.js').then(({ openNvrtc }) => openNvrtc(path));
      return (await nvrtc).compile(name, source, options);
    },
    close: () => {},
  };
}

/** A lane of the NVRTC at `path`. Close it when done. */
export function openLane(path: string): Lane {
  const file = fileURLToPath(new URL('./nvrtcProcess.js', import.meta.url));
  return existsSync(file) ? processLane(file, path) : localLane(path);
}
