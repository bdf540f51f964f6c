/** A process for tests: streams that remember, a clock that tests set, signals that tests send. */
import { Writable } from 'node:stream';
import type { Commands } from '../../cli/commands.js';
import type { Io, Output, StopSignal } from '../../cli/io.js';
import { createCli } from '../../cli/program.js';

export class Recorder extends Writable implements Output {
  text = '';
  readonly isTTY: boolean;
  readonly columns: number;
  readonly rows = 12;

  constructor(isTTY = false, columns = 80) {
    super({ decodeStrings: false });
    this.isTTY = isTTY;
    this.columns = columns;
  }

  override _write(chunk: string | Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

export interface FakeIo extends Io {
  readonly stdout: Recorder;
  readonly stderr: Recorder;
  /** Milliseconds that now() answers. */
  time: number;
  send(signal: StopSignal): void;
  readonly died: StopSignal[];
  readonly listeners: number;
}

export function fakeIo(
  options: {
    readonly stdin?: Io['stdin'];
    readonly isTTY?: boolean;
    readonly columns?: number;
    readonly isDebug?: boolean;
    readonly colour?: Io['colour'];
  } = {},
): FakeIo {
  const listening = new Set<(signal: StopSignal) => void>();
  const died: StopSignal[] = [];
  return {
    ...(options.stdin === undefined ? {} : { stdin: options.stdin }),
    stdout: new Recorder(options.isTTY, options.columns),
    stderr: new Recorder(options.isTTY, options.columns),
    isDebug: options.isDebug ?? false,
    colour: options.colour ?? { noColour: true, forceColour: undefined, isDumb: false },
    invocation: 'tilewright',
    time: 0,
    now() {
      return this.time;
    },
    onStop(listener) {
      listening.add(listener);
      return () => listening.delete(listener);
    },
    die: (signal) => {
      died.push(signal);
    },
    send(signal) {
      for (const listener of listening) listener(signal);
    },
    died,
    get listeners() {
      return listening.size;
    },
  };
}

const unexpected = (name: string) => (): never => {
  throw new Error(`the test did not expect a call of ${name}`);
};

/** Commands, of which only those given may be called. */
export const fakeCommands = (given: Partial<Commands>): Commands => ({
  compile: unexpected('compile'),
  tune: unexpected('tune'),
  run: unexpected('run'),
  runTasks: unexpected('runTasks'),
  generate: unexpected('generate'),
  converse: unexpected('converse'),
  printPrompts: unexpected('printPrompts'),
  merge: unexpected('merge'),
  compare: unexpected('compare'),
  report: unexpected('report'),
  quantize: unexpected('quantize'),
  inspect: unexpected('inspect'),
  explore: unexpected('explore'),
  inspectError: unexpected('inspectError'),
  listTasks: unexpected('listTasks'),
  doctor: unexpected('doctor'),
  cores: () => 2,
  ...given,
});

export interface Outcome {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line on fakes. */
export async function runCli(
  argv: readonly string[],
  commands: Partial<Commands> = {},
  io: FakeIo = fakeIo(),
): Promise<Outcome> {
  const status = await createCli(fakeCommands(commands), io).run(argv);
  return { status, stdout: io.stdout.text, stderr: io.stderr.text };
}
