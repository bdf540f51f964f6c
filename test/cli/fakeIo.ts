/** A process for tests: streams that remember, a clock that tests set, signals that tests send. */
import { Writable } from 'node:stream';
import { vi } from 'vitest';
import type { Io, Output, StopSignal } from '../../cli/io.js';
import { createCli } from '../../cli/program.js';
import type * as Compare from '../../commands/compare.js';
import type * as Compile from '../../commands/compile.js';
import type * as Doctor from '../../commands/doctor.js';
import type * as Explore from '../../commands/explore.js';
import type * as Generate from '../../commands/generate.js';
import type * as Inspect from '../../commands/inspect.js';
import type * as InspectError from '../../commands/inspectError.js';
import type * as Quantize from '../../commands/quantize.js';
import type * as Report from '../../commands/report.js';
import type * as Reward from '../../commands/reward.js';
import type * as Run from '../../commands/run.js';
import type * as Search from '../../commands/search.js';
import type * as Serve from '../../commands/serve.js';
import type * as Tasks from '../../commands/tasks.js';
import type * as Tune from '../../commands/tune.js';
import type * as Verify from '../../commands/verify/verify.js';
import type * as Merge from '../../evaluate/merge.js';

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
    cores: () => 2,
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

/** What the verbs of the command line call, by name. */
export interface Stories {
  compile: typeof Compile.compile;
  tune: typeof Tune.tune;
  run: typeof Run.run;
  generate: typeof Generate.generate;
  reward: typeof Reward.reward;
  search: typeof Search.search;
  serve: typeof Serve.serve;
  converse: typeof Generate.converse;
  printPrompts: typeof Generate.printPrompts;
  mergeShards: typeof Merge.mergeShards;
  compare: typeof Compare.compare;
  verify: typeof Verify.verify;
  report: typeof Report.report;
  quantize: typeof Quantize.quantize;
  inspect: typeof Inspect.inspect;
  explore: typeof Explore.explore;
  inspectError: typeof InspectError.inspectError;
  listTasks: typeof Tasks.listTasks;
  doctor: typeof Doctor.doctor;
}

/** The modules that tell them. */
const MODULES: Readonly<Record<string, readonly (keyof Stories)[]>> = {
  '../../commands/compile.js': ['compile'],
  '../../commands/tune.js': ['tune'],
  '../../commands/run.js': ['run'],
  '../../commands/generate.js': ['generate', 'converse', 'printPrompts'],
  '../../commands/reward.js': ['reward'],
  '../../commands/search.js': ['search'],
  '../../commands/serve.js': ['serve'],
  '../../evaluate/merge.js': ['mergeShards'],
  '../../commands/compare.js': ['compare'],
  '../../commands/verify/verify.js': ['verify'],
  '../../commands/report.js': ['report'],
  '../../commands/quantize.js': ['quantize'],
  '../../commands/inspect.js': ['inspect'],
  '../../commands/explore.js': ['explore'],
  '../../commands/inspectError.js': ['inspectError'],
  '../../commands/tasks.js': ['listTasks'],
  '../../commands/doctor.js': ['doctor'],
};

/** Those of the command line that runs. */
let fakes: Partial<Stories> = {};

const fake = (name: keyof Stories): [string, unknown] => [
  name,
  (...given: readonly unknown[]): unknown => {
    const story = fakes[name] as ((...given: readonly unknown[]) => unknown) | undefined;
    if (story === undefined) throw new Error(`the test did not expect a call of ${name}`);
    return story(...given);
  },
];

export interface Outcome {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line on fakes, of which only those given may be called. */
export async function runCli(
  argv: readonly string[],
  given: Partial<Stories> = {},
  io: FakeIo = fakeIo(),
): Promise<Outcome> {
  fakes = given;
  for (const [path, names] of Object.entries(MODULES))
    vi.doMock(path, async () => ({
      // The views of inspect have more from there than the story.
      ...(names.includes('inspect') ? await vi.importActual(path) : {}),
      ...Object.fromEntries(names.map(fake)),
    }));
  try {
    const status = await createCli(io).run(argv);
    return { status, stdout: io.stdout.text, stderr: io.stderr.text };
  } finally {
    for (const path of Object.keys(MODULES)) vi.doUnmock(path);
  }
}
