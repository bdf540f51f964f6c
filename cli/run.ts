/** `tilewright run`: scores a data set and prints the results. */
import { type Command, Option } from 'commander';
import { defined } from '../system/defined.js';
import { BASELINES, Interrupted, MAX_TOKENS_NOTE, PREFIXES } from '../commands/runRequest.js';
import { VERSION } from '../driver/program.js';
import { SHARING_MODES } from '../evaluate/scorer.js';
import { shardName } from '../evaluate/shardName.js';
import { quoteForShell } from '../system/process.js';
import { counted } from '../system/text.js';
import { addAdapterFlag } from './adapterFlags.js';
import { addDraftFlags } from './draftFlags.js';
import { HARNESS_HELP, harnessNotes, translated } from './harnessFlags.js';
import {
  addCheckpointFlag,
  addDeviceFlags,
  addMaskFlag,
  addModelFlags,
  addVerboseFlag,
  addVerifyFlag,
} from './modelFlags.js';
import { addSections, CHECKPOINT_HELP, EXIT_STATUSES, type Flags, isSet, withMaxTokens } from './options.js';
import { printText } from './print.js';
import { EXAMPLE, parseRun, reportPath, TASK_NAMES } from './runFlags.js';
import { addTaskFlags } from './taskFlags.js';
import { faceOf } from './ui.js';
import { type Context, printJson, refuseHubName, sameCommand, StoppedEarly, withUi } from './work.js';

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
  addDraftFlags(addTaskFlags(command));
  addDeviceFlags(command);
  addVerifyFlag(addCheckpointFlag(command)).option(
    '--trust-code',
    "take the artifact's own plan and machine code as they are: with your rights, unchecked (see below)",
  );
  addMaskFlag(addAdapterFlag(addModelFlags(command)))
    .addOption(new Option('--max-tokens <n>', 'the same as --batch-tokens').hideHelp())
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
    .option('-q, --quiet', 'print results and errors only: no progress, no notes, no warnings');
  addVerboseFlag(command)
    .option('--json', 'print the results as JSON and nothing else')
    .action(async (given: string | undefined, _options: unknown, self: Command) => {
      const { model, flags } = translated(given, withMaxTokens(self.opts<Flags>(), 'batchTokens'));
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
      '        question is longer than --batch-tokens: then it is cut into calls; a tree must fit one',
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
      'Everything in an artifact is checked against its checkpoint, and kernels are compiled here. With',
      '--trust-code nothing is planned or compiled: its plan and machine code are used as they are, if',
      'the same version of tilewright made them for such a machine. Machine code cannot be checked, and',
      'its hashes show damage, not who made it: trust only people whose programs you would run.',
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

async function run(context: Context, model: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(model);
  const parsed = parseRun(context, model, flags);
  const isMaxTokens = !('tasks' in parsed) && flags['maxTokens'] !== undefined;
  const notes = [...harnessNotes(flags), ...(isMaxTokens ? [`note: ${MAX_TOKENS_NOTE}`] : [])];
  if (!isSet(flags, 'quiet')) for (const note of notes) io.stderr.write(`${note}\n`);
  const face = faceOf(flags);
  const { isJson, isVerbose } = face;
  const pageOf = reportPath(flags);
  const advice = (error: unknown): string => {
    if (error instanceof StoppedEarly)
      return `no question was scored yet; the same command starts again:\n  ${sameCommand(context)}`;
    if (parsed.output === undefined)
      return (
        'nothing was kept, since there was no --out; give one to be able to go on next time:\n' +
        `  ${sameCommand(context, ['--out', 'results'])}`
      );
    const finished =
      error instanceof Interrupted
        ? counted(error.questionsDone, 'finished question is', 'finished questions are')
        : 'finished questions are';
    return `${finished} in the journal; go on with\n  ${sameCommand(context, ['--resume'])}`;
  };
  const { value: result } = await withUi(context, { ...face, advice }, async (ui, signal) => {
    const story = await import('../commands/run.js');
    return story.run({ ...parsed, signal }, ui);
  });
  const { comparison, resultsPath } = result;
  const page =
    pageOf === undefined || resultsPath === undefined
      ? undefined
      : (await import('../commands/report.js')).report({
          runs: [...(comparison === undefined ? [] : [comparison.a.file]), resultsPath],
          ...defined({ traces: parsed.trace === undefined ? undefined : [parsed.trace] }),
          output: pageOf(result),
          writer: `tilewright ${VERSION}`,
          now: new Date(),
        });
  if (isJson) printJson(io, comparison === undefined ? result.results : { ...result.results, comparison });
  else
    printText(
      io,
      (await import('./runSummary.js')).runSummary(result, isVerbose) +
        (page === undefined ? '' : `report: ${page.path}\n`),
    );
  if (!isJson && parsed.shard !== undefined)
    printText(
      io,
      `shard ${shardName(parsed.shard)}; when all are done: ` +
        `${io.invocation} merge ${quoteForShell(parsed.output ?? '')} --out results\n`,
    );
}
