/** `tilewright tune`: better schedules for this machine. */
import type { Command } from 'commander';
import type { TuneResult } from '../commands/tune.js';
import { isArtifact } from '../driver/names.js';
import { UsageError } from '../errors.js';
import { defined } from '../system/defined.js';
import { quoteForShell } from '../system/process.js';
import { kindAt } from '../system/read.js';
import { count, counted, duration } from '../system/text.js';
import { addVerboseFlag } from './modelFlags.js';
import { addSections, EXIT_STATUSES, type Flags, seconds, text, threads } from './options.js';
import { printText } from './print.js';
import { faceOf } from './ui.js';
import { type Context, printJson, refuseHubName, sameCommand, Stopped, withUi } from './work.js';

export function addTune(program: Command, context: Context): void {
  const command = program
    .command('tune')
    .summary('measure tiles for each kernel and batch size on this machine')
    .description(
      'Tries tile shapes for every kernel and batch size of an artifact on this machine, ' +
        'its CPU or GPU, and writes the fastest into it. On a CPU answers stay the same to the bit. ' +
        'An artifact of compile --cache-tokens is tuned for scores, then for steps of texts. ' +
        'Every trial is kept in a database, so tuning again goes on where it stopped.',
    )
    .argument('<artifact>', 'folder written by tilewright compile')
    .option('--budget <time>', 'how long to measure: 30s, 5m, 1h30m', '5m')
    .option('--threads <n>', 'threads to tune for: as many as runs will use (default: all processors)')
    .option('--database <file>', 'JSON-lines file of trials (default: in the cache folder)')
    .option('-q, --quiet', 'print results and errors only: no progress, no notes, no warnings');
  addVerboseFlag(command)
    .option(
      '--checkpoint <dir>',
      "the artifact's checkpoint, where it is no longer where it was; it is kept in the artifact",
    )
    .option('--json', 'print the result as JSON and nothing else')
    .action(async (artifact: string, _options: unknown, self: Command) => {
      await tune(context, artifact, self.opts<Flags>());
    });
  addSections(command, {
    'The table': [
      'kernel, bucket (tokens of a micro-batch / its rows; run: calls that only continue texts),',
      'trials so far, best time, and its',
      'share of the peak that this CPU reaches in a loop without memory traffic.',
      'Other programs that run meanwhile spoil the measurements.',
    ],
    'Scores and steps': [
      'with --cache-tokens, half of the budget goes to score, and what is left of it to step:',
      'to all sizes of its calls alike, from one token on. Kernels are named by their function.',
      'generate then chooses how much of a prompt a step computes beside texts by what step took.',
    ],
    'On a GPU': [
      'an artifact of compile --target cuda is tuned on the GPU it was compiled for. The',
      "table has cuBLASLt's time for the bare product beside ours, where that library is",
      'found (TILEWRIGHT_CUBLASLT=FILE names it; none leaves it out). --threads has no effect.',
      'Schedules are compared within rounding, not to the bit.',
    ],
    Examples: [
      'tilewright compile models/demo -o demo.tw && tilewright tune demo.tw --budget 1m',
      'tilewright tune demo.tw --budget 1m --threads 2 --database demo.jsonl',
      'tilewright compile models/demo -o gpu.tw --target cuda && tilewright tune gpu.tw    # on a GPU',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

async function tune(context: Context, artifact: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(artifact);
  const budgetSeconds = seconds('--budget', text(flags, 'budget') ?? '5m');
  if (kindAt(artifact) === undefined)
    throw new UsageError(
      `${artifact}: there is no such folder`,
      `make the artifact: tilewright compile CHECKPOINT -o ${quoteForShell(artifact)}`,
    );
  if (!isArtifact(artifact))
    throw new UsageError(
      `${artifact}: is not an artifact folder`,
      `make one from a checkpoint: tilewright compile ${quoteForShell(artifact)} -o model.tw`,
    );
  const database = text(flags, 'database');
  const face = faceOf(flags);
  const checkpoint = text(flags, 'checkpoint');
  const request = {
    artifact,
    ...defined({ checkpoint }),
    budgetSeconds,
    threads: threads(flags, io),
    ...defined({ database }),
  };
  const advice = (): string => `finished trials are kept; go on with\n  ${sameCommand(context)}`;
  const { value: result, stoppedBy } = await withUi(context, { ...face, advice }, async (ui, signal) => {
    const story = await import('../commands/tune.js');
    return story.tune({ ...request, signal }, ui);
  });
  if (face.isJson) printJson(io, result);
  else printText(io, describe(result));
  // What was found is in the artifact, but it is not what was asked for: a script must not go on as if it were.
  if (stoppedBy !== undefined) throw new Stopped(stoppedBy, advice(), undefined);
}

function describe(result: TuneResult): string {
  const reused = result.reused === 0 ? '' : `, ${count(result.reused)} more from the database`;
  const gains = result.functions
    .filter(({ gain }) => gain > 1.005)
    .map(
      ({ name, gain }) =>
        `${result.functions.length > 1 ? `${name}: ` : ''}what was measured of the largest batch is ` +
        `${gain.toFixed(2)}× as fast as with default schedules`,
    );
  const saved = !result.isSaved
    ? ['there was no time to compile what was found, so the artifact is as it was: tune again with a larger --budget']
    : gains.length > 0
      ? gains
      : result.trials + result.reused === 0
        ? ['there was no time for a trial: give a larger --budget, for example: --budget 5m']
        : ['no schedule beat the default ones'];
  return [
    // A heading without rows says nothing.
    ...(result.table.length > 1 ? result.table : []),
    `${result.artifact}: ${counted(result.trials, 'trial')} in ${duration(result.seconds)}${reused}`,
    ...saved,
    '',
  ].join('\n');
}
