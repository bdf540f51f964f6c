/** `tilewright run`: scores a data set and prints the results. */
import type { Command } from 'commander';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isArtifact, modelName } from '../driver/names.js';
import { VERSION } from '../driver/version.js';
import {
  BASELINES,
  Interrupted,
  PREFIXES,
  type RunRequest,
  type RunResult,
  type ScoreRequest,
  type TasksRequest,
} from '../driver/requests.js';
import { modelFolder } from '../eval/output.js';
import { parseDocs, parseLimit } from '../eval/selection.js';
import { shardName } from '../eval/shard.js';
import { TASKS } from '../eval/tasks/index.js';
import { OVERLONG } from '../eval/pathLengths.js';
import { SHARING_MODES } from '../eval/sharing.js';
import type { Asked } from '../driver/target.js';
import { UsageError } from '../errors.js';
import { readSettings } from '../settings.js';
import { isRecord } from '../system/json.js';
import { quoteForShell } from '../system/shell.js';
import { prepareFile } from '../system/write.js';
import { count, counted, duration, percent, si } from '../system/format.js';
import {
  addCheckpointFlag,
  addDeviceFlags,
  addMaskFlag,
  addModelFlags,
  addSections,
  addVerifyFlag,
  CHECKPOINT_HELP,
  EXIT_STATUSES,
} from './help.js';
import {
  artifactFlags,
  choice,
  deviceFlags,
  isSet,
  modelFlags,
  refuseCompileFlags,
  required,
  sharing,
  text,
  threads,
  type Flags,
} from './options.js';
import { HARNESS_HELP, harnessNotes, translated } from './harnessFlags.js';
import { comparisonText } from './compareText.js';
import { printText } from './report.js';
import { shard } from './shard.js';
import { addTaskFlags, refuseMixed, resultsFolderOf, taskRequest } from './taskFlags.js';
import { printJson, sameCommand, StoppedEarly, withUi, type Context } from './work.js';

const TASK_NAMES = TASKS.map(({ name }) => name);
const EXAMPLE = 'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl';

export function addRun(program: Command, context: Context): void {
  const command = program
    .command('run')
    .summary('score a data set, or tasks of lm-evaluation-harness')
    .description(
      'Scores every choice of every question by its log-likelihood and prints accuracies. ' +
        'Tokens that choices have in common are computed once. ' +
        'A checkpoint is compiled first (and cached); an artifact runs as it is.',
    )
    .usage('[options] <model>')
    .argument('[model]', 'checkpoint folder or .gguf file, or artifact folder written by tilewright compile')
    .option('--task <name>', `how to read --data: ${TASK_NAMES.join(', ')}`)
    .option('--data <file>', 'questions as JSON lines, plain or .gz; - for the standard input')
    .option('--out <dir>', 'folder for results_*.json, samples_*.jsonl and the journal; without it nothing is written')
    .option('--sharing <mode>', `what is computed once: ${SHARING_MODES.join(', ')} (see below)`, 'tree')
    .option('--prefixes <how>', `beginnings that trees have in common: ${PREFIXES.join(', ')} (see below)`, 'auto')
    .option(
      '--cache-tokens <n>',
      'memory for keys and values (default: the longest question and a call; kv: two calls)',
    )
    .option('--docs <ranges>', 'only these questions, counted from 0: 0:100,500:600,777; A: and :B are open ranges')
    .option(
      '--overlong <how>',
      "a choice longer, with its context, than the model's context: truncate (on the left) or refuse",
      'truncate',
    )
    .option('--limit <n>', 'at most n questions; below 1, that share of them')
    .option('--shard [i/n]', 'only part i of n, for merge to join; without a value, as the scheduler says (see below)')
    .option(
      '--log-tokens',
      'also write tokens_*.jsonl into --out: every token of every choice with its log-probability (for report)',
    )
    .option('--resume', 'go on with the journal in --out; without it, an earlier journal is kept under a numbered name')
    .option('--model-name <name>', "the model's name in results and its folder in --out (default: the folder's name)")
    .option('--threads <n>', 'worker threads (default: all processors)');
  addTaskFlags(command);
  addDeviceFlags(command);
  addVerifyFlag(addCheckpointFlag(command)).option(
    '--trust-code',
    "where there is no compiler, run the artifact's own machine code: with your rights, unchecked (see below)",
  );
  addMaskFlag(addModelFlags(command))
    .option(
      '--trace <file>',
      'write a timeline of what every device did, and of some micro-batches kernel by kernel; ui.perfetto.dev opens it',
    )
    .option('--dump <dir>', 'write every stage of the compilation, numbered')
    .option(
      '--compare-with <dir>',
      `folder of an earlier run, or ${BASELINES.join(', ')}: the same questions in that arithmetic (see below)`,
    )
    .option('--report [file]', 'write the results as a page to look at (default: report.html beside them in --out)')
    .option('--dry-run', 'count what each way of sharing would compute, and compute nothing')
    .option('-q, --quiet', 'print results and errors only: no progress, no notes, no warnings')
    .option('--json', 'print the results as JSON and nothing else')
    .action(async (given: string | undefined, _options: unknown, self: Command) => {
      const { model, flags } = translated(given, self.opts<Flags>());
      await run(context, model, flags);
    });
  addSections(command, {
    'About the input': CHECKPOINT_HELP,
    Sharing: [
      'tree     every common beginning, also of different questions (fewest tokens)',
      'context  the context of a question once for all its choices',
      'kv       the tokens of context in two phases: contexts first, then choices on kept keys and',
      '         values, as systems with a cache score (to compare with)',
      'none     every choice by itself (to compare with)',
      'All give the same answers, to the bit.',
    ],
    Prefixes: [
      'keep    computed once, and kept in memory for keys and values while they are needed: the shots of',
      '        a task, or a context with many questions',
      'repeat  computed again for each tree of a few thousand tokens (needs no such memory)',
      'auto    what computes fewer tokens, if there is memory for it; keep, if a',
      '        question is longer than --max-tokens: then it is cut into calls; a tree must fit one',
    ],
    'Tasks of lm-evaluation-harness': [
      '--tasks takes names of its tasks, groups and tags (tilewright tasks lists them), patterns (mmlu_*)',
      'and paths of task files. The popular ones are built in; YAML files of others are in',
      '--include_path. Data sets (Parquet, JSON lines, CSV) are in --data_root, or in the',
      "hub's cache. The harness's flags work in its spelling, with underscores, or with dashes. All tasks",
      'are planned together and the model is loaded once; results are in the layout of version',
      '0.4.13.dev0. docs/tasks.md says what is supported.',
      ...HARNESS_HELP,
    ],
    'Equal answers': [
      'An answer is the same to the bit for any batch size, number of threads or devices, placement,',
      'sharing mode and choice of questions; on a GPU unless --mask tree says otherwise. Two kinds of',
      'processor, instruction set or arithmetic differ in the last bits.',
    ],
    'What it costs in answers': [
      '--compare-with DIR compares this run with the results of another one, as tilewright compare does.',
      '--compare-with f32 (bf16, f16; 16bit: the checkpoint as a run computes it by default) computes the',
      'same questions a second time in that arithmetic, f32 on the CPU, and compares the two. Prints',
      'differences of metrics with a paired test, of log-likelihoods and of choices, and writes',
      'comparison.json beside the results in --out.',
    ],
    'Shards, one run on many machines': [
      '--shard 3/8 scores the third of eight parts, of about equal work, into a folder of its own',
      "in --out, which shards may share; tilewright merge makes one run's results of all. Without",
      'a value the part is a task of a Slurm array (SLURM_ARRAY_TASK_ID), a pod of a Kubernetes',
      'Indexed Job (JOB_COMPLETION_INDEX, with TILEWRIGHT_SHARDS for n), or a task of srun',
      '(SLURM_PROCID). Complete scripts: docs/scaling.md.',
    ],
    'Trusting an artifact': [
      'Everything in an artifact is checked against its checkpoint, and kernels are compiled here, where',
      'there is a compiler. Machine code cannot be checked. Its hashes show damage, not who made it: use',
      '--trust-code only for artifacts of people whose programs you would run.',
    ],
    'Several devices': [
      'dp=4       the whole model on each of four devices, which share the questions out as they go',
      'pp=4       a pipeline: each of four devices holds a part of the layers',
      'dpxpp=2x2  two pipelines of two devices each',
      'auto       dp where the model fits each of --devices, else pipelines; by default on all GPUs',
      'All give the same answers; --resume may go on with another number of devices. A device that fails',
      'is replaced or left out, and the run goes on.',
    ],
    Examples: [
      EXAMPLE,
      `${EXAMPLE} --devices 2`,
      `${EXAMPLE} --out results`,
      `${EXAMPLE} --out results --resume`,
      `${EXAMPLE} --out parts --shard 1/2`,
      `${EXAMPLE} --limit 100 --json`,
      `${EXAMPLE} --compare-with f32`,
      'tilewright run models/demo --tasks mmlu,hellaswag --num_fewshot 5 --data_root HUB',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

/** Compiling again replaces an artifact's folder: results in it would go with it. */
function refuseArtifactFolder(output: string, name: string): void {
  const folder = [output, modelFolder(output, name)].find(isArtifact);
  if (folder !== undefined)
    throw new UsageError(
      `--out ${output}: the results would go into the artifact ${folder}, and be lost when it is compiled again`,
      'give another folder, for example: --out results',
    );
}

type Of<R extends ScoreRequest, K> = Omit<Asked<R>, 'signal'> & { readonly kind: K };
type Parsed = Of<RunRequest, 'run'> | Of<TasksRequest, 'tasks'>;

/** Everything that can be refused without looking at a file is refused before one is opened. */
function parse(context: Context, model: string, flags: Flags): Parsed {
  refuseMixed(flags);
  refuseReport(flags);
  const docs = text(flags, 'docs');
  const asked =
    flags['tasks'] === undefined
      ? {
          kind: 'run' as const,
          task: choice('--task', required(flags, 'task', '--task', EXAMPLE), TASK_NAMES),
          data: required(flags, 'data', '--data', EXAMPLE),
          ...(docs === undefined ? {} : { docs: parseDocs(docs) }),
        }
      : { kind: 'tasks' as const, ...taskRequest(flags) };
  const [name, limit, output, trace] = [
    text(flags, 'modelName'),
    text(flags, 'limit'),
    resultsFolderOf(flags),
    text(flags, 'trace'),
  ];
  if (name === '') throw new UsageError('--model-name is empty', 'for example: --model-name my-model');
  const resume = isSet(flags, 'resume');
  if (resume && output === undefined)
    throw new UsageError(
      '--resume needs --out: the journal of the interrupted run is there',
      'add --out with the folder of that run',
    );
  const part = shard(flags, readSettings());
  if (part !== undefined && output === undefined)
    throw new UsageError(
      '--shard needs --out: merge joins what the shards write there',
      'add --out shards, the same for all',
    );
  const logsTokens = isSet(flags, 'logTokens');
  if (logsTokens && (output === undefined || part !== undefined || flags['logSamples'] === 'false'))
    throw new UsageError(
      '--log-tokens writes beside samples_*.jsonl of a whole run',
      'it needs --out, and neither --shard nor --log_samples false',
    );
  const request = {
    model,
    resume,
    sharing: sharing(flags),
    prefixes: choice('--prefixes', text(flags, 'prefixes') ?? 'auto', PREFIXES),
    overlong: choice('--overlong', text(flags, 'overlong') ?? 'truncate', OVERLONG),
    ...(name === undefined ? {} : { modelName: name }),
    resumeCommand: sameCommand(context, ['--resume']),
    ...modelFlags(flags),
    ...artifactFlags(flags, model),
    ...deviceFlags(flags),
    ...(limit === undefined ? {} : { limit: parseLimit(limit) }),
    ...(output === undefined ? {} : { output }),
    ...(trace === undefined ? {} : { trace }),
    ...(logsTokens ? { logsTokens } : {}),
    ...(part === undefined ? {} : { shard: part }),
    ...comparedWith(text(flags, 'compareWith')),
    ...(isSet(flags, 'dryRun') ? { isDryRun: true } : {}),
  };
  if (isArtifact(model)) refuseCompileFlags(flags, model);
  if (output !== undefined) refuseArtifactFolder(output, name ?? modelName(model));
  return { ...asked, ...request, threads: threads(flags, () => context.commands.cores()) };
}

/** A page is made of the files of a run. */
function refuseReport(flags: Flags): void {
  if (flags['report'] === undefined) return;
  if (isSet(flags, 'dryRun')) throw new UsageError('--dry-run computes nothing to report', 'leave --report out');
  if (resultsFolderOf(flags) === undefined)
    throw new UsageError('--report needs --out: the page is made of the files there', 'add --out results');
}

/** Where the page goes, and whether that can be written is found out before the run. */
function reportPath(flags: Flags): ((result: RunResult) => string) | undefined {
  const file = text(flags, 'report');
  if (file !== undefined) prepareFile(file);
  if (file === undefined && !isSet(flags, 'report')) return undefined;
  return ({ resultsPath }) => file ?? join(dirname(resultsPath!), 'report.html');
}

/** A word for an arithmetic, or a folder; ./f32 is a folder of that name. */
function comparedWith(given: string | undefined): Pick<ScoreRequest, 'compareWith'> {
  if (given === undefined) return {};
  const precision = BASELINES.find((each) => each === given);
  if (precision !== undefined) return { compareWith: { kind: 'precision', precision } };
  if (!existsSync(given))
    throw new UsageError(
      `--compare-with ${given}: there is no such folder`,
      `give the folder of an earlier run, or one of ${BASELINES.join(', ')}`,
    );
  return { compareWith: { kind: 'results', path: given } };
}

async function run(context: Context, model: string, flags: Flags): Promise<void> {
  const { io, commands } = context;
  const parsed = parse(context, model, flags);
  const { kind: _, ...request } = parsed;
  const notes = harnessNotes(flags);
  if (!isSet(flags, 'quiet')) for (const note of notes) io.stderr.write(`${note}\n`);
  const isJson = isSet(flags, 'json');
  const pageOf = reportPath(flags);
  const advice = (error: unknown): string => {
    if (error instanceof StoppedEarly)
      return `no question was scored yet; the same command starts again:\n  ${sameCommand(context)}`;
    if (request.output === undefined)
      return (
        'nothing was kept, since there was no --out; give one to be able to go on next time:\n' +
        `  ${sameCommand(context, ['--out', 'results'])}`
      );
    const finished =
      error instanceof Interrupted ? `${count(error.questionsDone)} finished questions` : 'finished questions';
    return `${finished} are in the journal; go on with\n  ${sameCommand(context, ['--resume'])}`;
  };
  const { value: result } = await withUi(context, { isJson, isQuiet: isSet(flags, 'quiet'), advice }, (ui, signal) => {
    if (parsed.kind === 'run') {
      const { kind: _kind, ...asked } = parsed;
      return commands.run({ ...asked, signal }, ui);
    }
    const { kind: _kind, ...asked } = parsed;
    return commands.runTasks({ ...asked, signal }, ui);
  });
  const { comparison, resultsPath } = result;
  const page =
    pageOf === undefined || resultsPath === undefined
      ? undefined
      : await commands.report({
          runs: [...(comparison === undefined ? [] : [comparison.a.file]), resultsPath],
          ...(request.trace === undefined ? {} : { traces: [request.trace] }),
          ...{ output: pageOf(result), writer: `tilewright ${VERSION}`, now: new Date() },
        });
  if (isJson) printJson(io, comparison === undefined ? result.results : { ...result.results, comparison });
  else printText(io, describe(result) + (page === undefined ? '' : `report: ${page.path}\n`));
  if (!isJson && request.shard !== undefined)
    printText(
      io,
      `shard ${shardName(request.shard)}; when all are done: ` +
        `${io.invocation} merge ${quoteForShell(request.output ?? '')} --out results\n`,
    );
}

function describe(result: RunResult): string {
  const lines = [result.table, ...throughputLines(result.results['throughput'])];
  lines.push(...generationLines(result.results['generation']));
  if (result.resultsPath !== undefined) lines.push(`results: ${result.resultsPath}`);
  if (result.samplesPath !== undefined) lines.push(`samples: ${result.samplesPath}`);
  if (result.comparisonPath !== undefined) lines.push(`comparison: ${result.comparisonPath}`);
  const { comparison } = result;
  const compared = comparison === undefined ? '' : `\n${comparisonText(comparison)}`;
  return `${lines.join('\n')}\n${compared}`;
}

/** The run in a few lines, from its throughput block. */
function throughputLines(block: unknown): string[] {
  if (!isRecord(block)) return [];
  const read = (name: string): number => {
    const value = block[name];
    return typeof value === 'number' ? value : NaN;
  };
  const [questions, load, score] = ['questions', 'loadSeconds', 'scoreSeconds'].map(read) as [number, number, number];
  const rate = read('tokensPerSecond');
  const flops = score > 0 ? read('modelFlops') / score : NaN;
  if (questions === 0) return [];
  return [
    `${counted(questions, 'question')} in ${duration(score)} after ${duration(load)} of loading: ` +
      `${count(rate)} tokens/s${flops > 0 ? `, ${si(flops, 'FLOP/s')}` : ''}`,
    ...sharingLines(read),
    ...busyLine(block['devices']),
  ];
}

/** What it took to generate texts, where tasks ask for some. */
function generationLines(block: unknown): string[] {
  if (!isRecord(block)) return [];
  const [texts, seconds, computed, found] = ['texts', 'seconds', 'computedTokens', 'foundTokens'].map((name) =>
    Number(block[name]),
  ) as [number, number, number, number];
  return [
    `${counted(texts, 'text')} generated in ${duration(seconds)}: ${count(computed)} tokens computed, ` +
      `${count(found)} tokens of prompts found in the cache`,
  ];
}

/** What was computed, beside what other ways would have computed. Where nothing is shared there is nothing to say. */
function sharingLines(read: (name: string) => number): string[] {
  const [computed, alone, grouped, shared] = [
    'tokensComputed',
    'tokensWithoutSharing',
    'tokensGrouped',
    'tokensShared',
  ].map(read) as [number, number, number, number];
  if (!(alone > computed)) return [];
  const times = (tokens: number): string => `${(tokens / computed).toFixed(2)}×`;
  return [
    `${count(computed)} tokens computed instead of ${count(alone)} (${times(alone)} fewer)`,
    ...(grouped < alone
      ? [`with one sequence for choices of equal inputs: ${count(grouped)} tokens (${times(grouped)} as many)`]
      : []),
    ...(shared > 0
      ? [`with every common beginning once: ${count(shared)} tokens (this run: ${(computed / shared).toFixed(3)}×)`]
      : []),
  ];
}

/** `busy: device 0 99.2 %, device 1 98.7 %`. */
function busyLine(devices: unknown): string[] {
  if (!Array.isArray(devices) || devices.length === 0) return [];
  const shares = devices
    .filter(isRecord)
    .map(({ device, busyShare }) => `device ${Number(device)} ${percent(Number(busyShare))}`);
  return [`busy: ${shares.join(', ')}`];
}
