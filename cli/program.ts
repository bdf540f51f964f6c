/** The command line as a whole: commands, help, and what every outcome prints and returns. */
import { Command, CommanderError, Help, type Option } from 'commander';
import { VERSION } from '../driver/program.js';
import { UsageError, UserError } from '../errors.js';
import { addCompare } from './compare.js';
import { addCompile } from './compile.js';
import { addCompletion } from './completion.js';
import { addDoctor } from './doctor.js';
import { addExplore } from './explore.js';
import { addGenerate } from './generate.js';
import { joinLists } from './harnessFlags.js';
import { addInspect } from './inspect.js';
import { exitStatus, type Io, styleFor, styleOf, wantsColour } from './io.js';
import { addMerge } from './merge.js';
import { addMergeAdapter } from './mergeAdapter.js';
import { addSections, choice, EXIT_STATUSES, INSTEAD, withDashes } from './options.js';
import { label, printError } from './print.js';
import { addQuantize } from './quantize.js';
import { addReport } from './report.js';
import { addReward } from './reward.js';
import { addRoute } from './route.js';
import { addRun } from './run.js';
import { addSearch } from './search.js';
import { addServe } from './serve.js';
import { addTasks } from './tasks.js';
import { addTune } from './tune.js';
import { addVerify } from './verify.js';
import { type Context, Stopped } from './work.js';

export interface Cli {
  /** Runs the arguments after the program's name; resolves to the exit status, never rejects. */
  run(argv: readonly string[]): Promise<number>;
}

export function createCli(io: Io): Cli {
  return {
    async run(argv) {
      let status = 0;
      const context: Context = {
        io,
        argv,
        fail: (found = FAILED) => {
          status = found;
        },
      };
      const program = createProgram(context);
      try {
        refuseHelpOfNothing(program, argv);
        if (argv.length === 0) program.outputHelp();
        else await program.parseAsync(joinLists(withDashes(program, argv)), { from: 'user' });
        return status;
      } catch (error) {
        return report(io, error, argv);
      }
    },
  };
}

function createProgram(context: Context): Command {
  const { io } = context;
  // Commander strips colours where the stream wants none.
  const title = styleOf(true);
  const program = new Command('tilewright')
    .description(
      'Compiles checkpoints of language models to fused, tuned kernels for this machine and scores multiple-choice ' +
        'benchmarks with them. Tokens that the choices of a question have in common are computed once.',
    )
    .version(VERSION, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help; every command has its own')
    .helpCommand('help [command]', 'print help of a command')
    .configureHelp({ styleTitle: title.bold, optionDescription })
    .exitOverride()
    .configureOutput({
      getOutHasColors: () => wantsColour(io.stdout, io.colour),
      getErrHasColors: () => wantsColour(io.stderr, io.colour),
      writeOut: (text) => {
        io.stdout.write(text);
      },
      writeErr: (text) => {
        io.stderr.write(text);
      },
      outputError: () => undefined, // report() prints it
      getOutHelpWidth: () => Math.min(io.stdout.columns ?? 100, 120),
      getErrHelpWidth: () => Math.min(io.stderr.columns ?? 100, 120),
    });
  addRun(program, context);
  addGenerate(program, context);
  addReward(program, context);
  addSearch(program, context);
  addServe(program, context);
  addRoute(program, context);
  addCompile(program, context);
  addTune(program, context);
  addMerge(program, context);
  addCompare(program, context);
  addVerify(program, context);
  addReport(program, context);
  addQuantize(program, context);
  addMergeAdapter(program, context);
  addInspect(program, context);
  addExplore(program, context);
  addTasks(program, context);
  addDoctor(program, context);
  addCompletion(program, context);
  for (const command of program.commands) command.helpOption('-h, --help', 'print this help');
  return addSections(program, {
    'From nothing to results': [
      'tilewright doctor                              # is everything here?',
      'tilewright compile models/demo -o demo.tw      # model → artifact',
      'tilewright tune demo.tw --budget 5m            # tiles for this machine',
      'tilewright run demo.tw --task hellaswag --data examples/everyday.jsonl',
      'tilewright generate models/demo "Once upon a time"',
      'tilewright serve models/demo                   # a server as OpenAI has it, and a page to chat',
      '',
      'run takes a checkpoint as well, and compiles it by itself.',
      'A GPU that is here and can hold the model is used, else the CPU: --target says which.',
    ],
    'Completion of commands and flags': ['source <(tilewright completion bash)    # in ~/.bashrc; also zsh and fish'],
    Environment: [
      'TILEWRIGHT_CACHE=DIR         compiled kernels and tuning trials (default: ~/.cache/tilewright)',
      'TILEWRIGHT_CACHE_LIMIT=2GiB  limit of the kernels there, unused longest goes first; or none',
      'TILEWRIGHT_CC=FILE           C compiler of the CPU target (default: cc, gcc or clang)',
      'TILEWRIGHT_NVRTC=FILE|DIR    compiler of the CUDA target; TILEWRIGHT_NVCC=FILE: nvcc instead',
      'TILEWRIGHT_CUBLASLT=FILE     what tune compares with on a GPU; none: nothing',
      'TILEWRIGHT_CUDA_DRIVER=FILE  libcuda.so.1 where it is in an unusual place',
      'TILEWRIGHT_DEVICE_TIMEOUT=SECONDS  a device without an answer is hung (default: GPU 180, CPU 1800)',
      'TILEWRIGHT_DEVICE_MEMORY=40GiB  what run may take of each of several devices (default: all)',
      'TILEWRIGHT_STEP_TOKENS=512      most tokens of a step of generate for which texts wait',
      'TILEWRIGHT_ROPE_ROUNDING=bf16   rotary frequencies as in a model whose buffers were cast',
      'TILEWRIGHT_WINDOW=8192          most documents of tasks that are held and planned at a time',
      'TILEWRIGHT_PLAN_CACHE=none   models are planned anew whenever they are opened',
      'TILEWRIGHT_PEERS=none        GPUs copy nothing to each other: everything goes through the host',
      'TILEWRIGHT_API_KEY=KEY       a key that clients of serve must show',
      'TILEWRIGHT_SHARDS=N          number of shards for run --shard where the scheduler does not say',
      'NO_COLOR=1, FORCE_COLOR=1    no colours, and colours also where output is no terminal',
      'TILEWRIGHT_VERIFY=1          verifies what every pass leaves, not only what the last one does',
      'TILEWRIGHT_DEBUG=1           prints the stack of an unexpected error',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

/** Commander's words, with defaults as they are typed: one in quotes is not. */
const optionDescription = (option: Option): string =>
  new Help().optionDescription(option).replace(/ \(default: "([^"]*)"\)$/, ' (default: $1)');

/** `help` of a command that is not there would print the general help and fail silently. */
function refuseHelpOfNothing(program: Command, argv: readonly string[]): void {
  const [first, wanted] = argv;
  if (first !== 'help' || wanted === undefined || wanted.startsWith('-')) return;
  const names = program.commands.map((command) => command.name());
  if (!names.includes(wanted)) choice('help', wanted, names);
}

/** Prints what an error has to say; returns the exit status. */
function report(io: Io, error: unknown, argv: readonly string[]): number {
  // Whoever asked for JSON reads stderr with a program, too.
  const isPlain = argv.includes('--json');
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return 0;
    printError(io, usageError(error, argv), isPlain);
    return WRONG_USE;
  }
  if (error instanceof Stopped) {
    // A disk that refused while stopping, say: the advice alone would promise too much.
    if (error.cause instanceof UserError && error.cause.cause !== undefined) printError(io, error.cause, isPlain);
    io.stderr.write(`${label('stopped', isPlain ? styleOf(false) : styleFor(io, 'stderr'))} ${error.advice}\n`);
    return exitStatus(error.signal);
  }
  printError(io, error, isPlain);
  return error instanceof UsageError ? WRONG_USE : FAILED;
}

/** Exit statuses, as shells and POSIX tools use them. */
const FAILED = 1;
const WRONG_USE = 2;

/** The shortest complete use of each command that needs an argument. */
const EXAMPLES: Readonly<Record<string, string>> = {
  run: 'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl',
  generate: 'tilewright generate models/demo "Once upon a time"',
  search: 'tilewright search my-model --verifier my-prm --problems problems.jsonl',
  serve: 'tilewright serve models/demo',
  compile: 'tilewright compile models/demo -o demo.tw',
  compare: 'tilewright compare results-16bit results-fp8',
  merge: 'tilewright merge shards --out results',
  verify: 'tilewright verify results',
  report: 'tilewright report results -o report.html',
  tune: 'tilewright tune demo.tw --budget 5m',
  inspect: 'tilewright inspect models/demo',
  explore: 'tilewright explore models/demo -o explore.html',
  quantize: 'tilewright quantize models/demo -o demo-int4 --group 64 --calibration text.txt',
  route: 'tilewright route --config examples/route.json',
  'merge-adapter': 'tilewright merge-adapter model adapter --out merged',
  completion: 'source <(tilewright completion bash)',
};

/** Commander's words in this program's form: what is wrong, then what to type. */
function usageError(error: CommanderError, argv: readonly string[]): UsageError {
  const [first = '', ...rest] = error.message.replace(/^error: /, '').split('\n');
  const meant = /\(Did you mean (.*)\?\)/.exec(rest.join(' '))?.[1];
  const command = argv.find((argument) => !argument.startsWith('-'));
  const help =
    error.code === 'commander.unknownCommand' || command === undefined
      ? 'tilewright --help'
      : `tilewright ${command} --help`;
  const example = error.code === 'commander.missingArgument' ? EXAMPLES[command ?? ''] : undefined;
  if (example !== undefined) return new UsageError(first, `for example: ${example}\nsee ${help}`);
  const unknown = /^unknown option '(--[^'=]*)/.exec(first)?.[1]?.replaceAll('_', '-') ?? '';
  if (Object.hasOwn(INSTEAD, unknown)) return new UsageError(first, `${INSTEAD[unknown]!}; see ${help}`);
  return new UsageError(first, meant === undefined ? `see ${help}` : `did you mean ${meant}? Otherwise see ${help}`);
}
