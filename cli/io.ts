/** Everything the command line touches of its process: two streams, a clock, interruptions. Tests hand in a fake. */
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import type { Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { readSettings } from '../settings.js';
import { quoteForShell, reasonOf } from '../system/process.js';

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

export interface Stop {
  readonly signal: AbortSignal;
  /** What stopped it, if anything did. */
  received(): StopSignal | undefined;
  /** No longer listen. */
  end(): void;
}

/** As shells count: 130 for SIGINT. */
export const exitStatus = (signal: StopSignal): number => 128 + constants.signals[signal];

/** `beforeDeath` puts the terminal right before the process goes. */
export function listenForStop(io: Io, onFirst: () => void, beforeDeath: () => void): Stop {
  const controller = new AbortController();
  let received: StopSignal | undefined;
  const end = io.onStop((signal) => {
    if (received !== undefined) {
      beforeDeath();
      io.die(signal);
      return;
    }
    received = signal;
    onFirst();
    controller.abort();
  });
  return { signal: controller.signal, received: () => received, end };
}

/** What of the environment decides about colours; settings.ts reads it. */
export interface ColourSettings {
  /** NO_COLOR is set to something. */
  readonly noColour: boolean;
  /** FORCE_COLOR: asked for (true), refused (false), or not mentioned. It wins over everything else. */
  readonly forceColour: boolean | undefined;
  /** TERM is `dumb`: a terminal that understands no escape sequence. */
  readonly isDumb: boolean;
}

export const wantsColour = (
  stream: { readonly isTTY?: boolean },
  { noColour, forceColour, isDumb }: ColourSettings,
): boolean => forceColour ?? (stream.isTTY === true && !noColour && !isDumb);

/** Select Graphic Rendition codes: on, and off again. */
const CODES = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
} as const;

export type Style = Readonly<Record<keyof typeof CODES, (text: string) => string>>;

export function styleOf(isOn: boolean): Style {
  const paint = (name: keyof typeof CODES) => (text: string) =>
    isOn ? `\x1b[${CODES[name][0]}m${text}\x1b[${CODES[name][1]}m` : text;
  return {
    bold: paint('bold'),
    dim: paint('dim'),
    red: paint('red'),
    green: paint('green'),
    yellow: paint('yellow'),
    cyan: paint('cyan'),
  };
}
