/** Everything the command line touches of its process: two streams, a clock, interruptions. Tests hand in a fake. */
import { existsSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import type { Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { readSettings } from '../settings.js';
import { reasonOf } from '../system/process.js';
import { quoteForShell } from '../system/process.js';
import { type ColourSettings, type Style, styleOf, wantsColour } from './style.js';

/** A stream that may be a terminal. */
export type Output = NodeJS.WritableStream & {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
};

/** Where prompts may be typed. */
export type Input = NodeJS.ReadableStream & {
  readonly isTTY?: boolean;
  /** Whether keys come one by one, and are not shown by the terminal. */
  setRawMode?(isRaw: boolean): unknown;
};

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;
export type StopSignal = (typeof STOP_SIGNALS)[number];

export interface Io {
  /** Absent: nobody types. */
  readonly stdin?: Input;
  /** Results. */
  readonly stdout: Output;
  /** Progress, notes and errors. */
  readonly stderr: Output;
  /** Unexpected errors show their stack. */
  readonly isDebug: boolean;
  /** What of the environment decides about colours. */
  readonly colour: ColourSettings;
  /** What the user types to start this program, for commands that we suggest. */
  readonly invocation: string;
  /** Processors to use where --threads is absent. */
  cores(): number;
  /** Told of progress as well, before the work goes on. */
  readonly observer?: Partial<Pick<Ui, 'step' | 'run'>>;
  /** Milliseconds, never going back. */
  now(): number;
  /** Calls `listener` for each request to stop; returns the function that ends it. */
  onStop(listener: (signal: StopSignal) => void): () => void;
  /** Ends the process at once. */
  die(signal: StopSignal): void;
}

/** How texts for a stream are painted. */
export const styleFor = (io: Io, stream: 'stdout' | 'stderr'): Style => styleOf(wantsColour(io[stream], io.colour));

/**
 * `script` is argv[1]: the installed command by name, a local installation through npx, otherwise node and the file.
 */
export function invocationOf(script: string | undefined, folder: string): string {
  if (script === undefined) return 'tilewright';
  if (basename(script) === 'tilewright') {
    // npx keeps what it runs in a checkout, or has downloaded, in a folder of its own.
    const isNpx = script.startsWith(`${folder}/node_modules/.bin/`) || script.includes('/_npx/');
    return isNpx ? 'npx tilewright' : 'tilewright';
  }
  // A bundle's own launcher: its Node is not on PATH.
  const launcher = join(dirname(script), '..', '..', 'tilewright');
  if (existsSync(launcher)) {
    const near = relative(folder, launcher);
    return quoteForShell(near.startsWith('..') ? launcher : `./${near}`);
  }
  const near = relative(folder, script);
  return `node ${quoteForShell(near.startsWith('..') ? script : near)}`;
}

/**
 * A reader that goes away (`| head`) is no error: what it does not want is dropped, and the work goes on. Whatever else
 * goes wrong ends the process with a line: results that cannot be printed are no results.
 */
function watch(stream: NodeJS.WriteStream, name: string): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return;
    if (stream !== process.stderr) process.stderr.write(`error: cannot write ${name}: ${reasonOf(error)}\n`);
    process.exit(1);
  });
}

/** This process. */
export function processIo(): Io {
  watch(process.stdout, 'the standard output');
  watch(process.stderr, 'the standard error');
  const settings = readSettings();
  return {
    // Opened when first read, since opening it would keep the process waiting for it.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    isDebug: settings.isDebug,
    colour: settings,
    invocation: invocationOf(process.argv[1], process.cwd()),
    cores: () => detectMachine().cpu.cores,
    now: () => performance.now(),
    onStop(listener) {
      for (const signal of STOP_SIGNALS) process.on(signal, listener);
      return () => {
        for (const signal of STOP_SIGNALS) process.removeListener(signal, listener);
      };
    },
    die(signal) {
      // Without a listener the signal ends the process, and its parent sees that it did.
      process.removeAllListeners(signal);
      process.kill(process.pid, signal);
    },
  };
}
