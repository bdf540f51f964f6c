/** `tilewright verify`: a random part of a finished run, computed again and compared to the bit. */
import { randomInt } from 'node:crypto';
import type { Command } from 'commander';
import type { VerifyRequest } from '../commands/verify/again.js';
import { TARGET_CHOICES } from '../driver/precision.js';
import { UsageError, UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { addDeviceFlags, addSections, addVerboseFlag } from './help.js';
import { faceOf } from './makeUi.js';
import { choice, deviceFlags, type Flags, text, threads, wholeNumber } from './options.js';
import { printError, printText } from './report.js';
import { taskFolders } from './taskFlags.js';
import { type Context, printJson, withUi } from './work.js';

/** Statuses of a verification. A run that cannot be computed again here was neither confirmed nor refuted. */
const STATUS = { agrees: 0, differs: 3, unchecked: 4 } as const;

const MAX_SAMPLE = 100_000_000;
const SEEDS = 2 ** 32;

export function addVerify(program: Command, context: Context): void {
  const command = program
    .command('verify')
    .summary('compute a random part of a finished run again, and compare it to the bit')
    .description(
      'Checks results from their own record. Every document is made again from the data and compared with its ' +
        'sample, every figure is computed again from the samples, and for a random part of the documents the model ' +
        'computes the answers again: each must have the same bits.',
    )
    .argument('<results>', 'folder that a run had as --out, or one of its results_*.json')
    .option('--sample <n>', 'documents whose answers are computed again, or all; 0: only files are compared', '200')
    .option('--seed <n>', 'which ones: a number that you choose after the results are published (default: random)')
    .option('--model <dir>', 'the model, where it is not where the run had it')
    .option('--data <file>', 'the questions of run --task, where they are not where the run had them')
    .option('--data-root <dir>', 'the data sets of run --tasks, where they are not where the run had them')
    .option(
      '--include-path <dir>',
      'folder of task files, where they are not where the run had them; may repeat',
      (value: string, before: readonly string[] | undefined) => [...(before ?? []), value],
    )
    .option('--target <target>', 'cpu or cuda (default: the kind of device that made the results, if it is here)')
    .option('--threads <n>', 'worker threads (default: all processors)');
  addDeviceFlags(command).option('-q, --quiet', 'print the verdict and errors only');
  addVerboseFlag(command)
    .option('--json', 'print the verification as JSON and nothing else')
    .action(async (results: string, _options: unknown, self: Command) => {
      await verifyResults(context, results, self.opts<Flags>());
    });
  addSections(command, {
    'What is found': [
      'an answer that is not what the model computes: of a chosen document always, of another one by the',
      'figures and hashes that no longer fit; a line that is missing, comes twice or is out of its order;',
      'another checkpoint, tokenizer, chat template, data file, task file, shot or seed; figures, groups',
      'and settings that do not follow from the samples and the record. --sample all leaves nothing out.',
    ],
    'What has to be trusted': [
      'Answers to documents that were not chosen may have been changed, together with all that follows',
      'from them. If a share p of the answers is forged, n chosen documents miss it with the chance',
      '(1 - p)^n: 200 documents find 2 % of forged answers in 98 of 100 cases. Choose the seed yourself,',
      'or leave it out. docs/verify.md says more.',
    ],
    'What is opened': [
      'The model, the data and the task files that the results name, relative paths from the current',
      'folder; each is named before it is read. --model, --data, --data-root and --include-path say where',
      'they are instead. Nothing is written, and no code of results, tasks or models is run.',
    ],
    'Equal bits': [
      'Answers have the same bits on one kind of device: instruction set or GPU architecture, with its',
      'arithmetic. Batches, threads, the number of devices, shards and other documents do not matter. On',
      'another kind they differ by rounding: then the differences are shown, and the verdict is that it',
      'cannot be checked to the bit.',
    ],
    Examples: [
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out results',
      'tilewright verify results',
      'tilewright verify results --sample all',
      'tilewright verify results --model models/demo --data examples/everyday.jsonl --seed 7 --json',
    ],
    'Exit status': [
      '0    everything that was compared agrees, the answers to the bit',
      '1    failed; stderr says what and what to do',
      '2    wrong use: an unknown flag, a value that cannot be, a missing argument',
      '3    something differs: these are not the results of this model, these data and this record',
      '4    cannot be checked: something is not here, or another kind of device computes other bits',
      '130  stopped with Ctrl-C',
    ],
  });
}

function sampleOf(given: string): number {
  return given === 'all' ? Infinity : wholeNumber('--sample', given, 0, MAX_SAMPLE, '200, or all');
}

function requestOf(context: Context, results: string, flags: Flags): VerifyRequest {
  const seed = text(flags, 'seed');
  const target = text(flags, 'target');
  const wanted = target === undefined ? 'auto' : choice('--target', target, TARGET_CHOICES);
  const folders = taskFolders(flags);
  for (const [name, flag] of [
    ['model', '--model'],
    ['data', '--data'],
    ['dataRoot', '--data-root'],
  ] as const)
    if (text(flags, name) === '') throw new UsageError(`${flag} is empty`, `for example: ${flag} DIR`);
  return {
    results,
    sample: sampleOf(text(flags, 'sample') ?? '200'),
    seed: seed === undefined ? randomInt(SEEDS) : wholeNumber('--seed', seed, 0, SEEDS - 1, '7'),
    ...defined({ model: text(flags, 'model'), data: text(flags, 'data'), dataRoot: text(flags, 'dataRoot') }),
    ...(folders.length === 0 ? {} : { includePaths: folders }),
    ...(wanted === 'auto' ? {} : { target: wanted }),
    ...deviceFlags(flags),
    threads: threads(flags, context.io),
  };
}

async function verifyResults(context: Context, results: string, flags: Flags): Promise<void> {
  const { io } = context;
  const face = faceOf(flags);
  const request = requestOf(context, results, flags);
  try {
    const { value } = await withUi(
      context,
      { ...face, advice: () => 'nothing was written, and nothing is to be put right' },
      async (ui, signal) => (await import('../commands/verify/verify.js')).verify({ ...request, signal }, ui),
    );
    if (face.isJson) printJson(io, value);
    else {
      const { verificationText } = await import('./verifyText.js');
      printText(io, verificationText(value, { isQuiet: face.isQuiet, invocation: io.invocation }));
    }
    if (value.outcome !== 'agrees') context.fail(STATUS[value.outcome]);
  } catch (error) {
    if (!(error instanceof UserError) || error instanceof UsageError) throw error;
    printError(io, error, face.isJson);
    context.fail(STATUS.unchecked);
  }
}
