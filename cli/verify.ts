/** `tilewright verify`: a random part of a finished run, computed again and compared to the bit. */
import { randomInt } from 'node:crypto';
import type { Command } from 'commander';
import type { VerifyRequest } from '../commands/verify/again.js';
import { TARGET_CHOICES } from '../driver/precision.js';
import { UsageError, UserError } from '../errors.js';
import { type Check, type CheckName, CHECKS, type Difference } from '../evaluate/verify/findings.js';
import { kindName, type Verification } from '../evaluate/verify/verification.js';
import { defined } from '../system/defined.js';
import { quoteForShell } from '../system/process.js';
import { count, counted, duration, textTable } from '../system/text.js';
import { addDeviceFlags, addVerboseFlag, deviceFlags } from './modelFlags.js';
import { addSections, choice, type Flags, text, threads, wholeNumber } from './options.js';
import { printableLine, printError, printText } from './print.js';
import { taskFolders } from './taskFlags.js';
import { faceOf } from './ui.js';
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
      printText(io, verificationText(value, { isQuiet: face.isQuiet, invocation: io.invocation }));
    }
    if (value.outcome !== 'agrees') context.fail(STATUS[value.outcome]);
  } catch (error) {
    if (!(error instanceof UserError) || error instanceof UsageError) throw error;
    printError(io, error, face.isJson);
    context.fail(STATUS.unchecked);
  }
}

/** What is counted in each check. */
const WHAT: Readonly<Record<CheckName, readonly [one: string, many: string]>> = {
  samples: ['line', 'lines'],
  data: ['document', 'documents'],
  metrics: ['value', 'values'],
  settings: ['field', 'fields'],
  model: ['property', 'properties'],
  answers: ['answer', 'answers'],
};

const NAMES: Readonly<Record<CheckName, string>> = {
  samples: 'samples as a run writes them, each by its own hashes',
  data: 'documents and prompts, made again from the data',
  metrics: 'metrics and figures, computed again from all samples',
  settings: 'settings, as the record and the tasks say',
  model: 'checkpoint, tokenizer, chat template',
  answers: 'answers, computed again by the model',
};

function row(name: CheckName, { compared, differing, unchecked }: Check): string[] {
  const [one, many] = WHAT[name];
  const found =
    differing > 0
      ? `${count(differing)} ${differing === 1 ? 'difference' : 'differences'}`
      : unchecked !== undefined
        ? `not in full: ${unchecked}`
        : compared === 0
          ? 'not compared'
          : 'agree';
  return [`  ${NAMES[name]}`, counted(compared, one, many), found];
}

const MAX_SHOWN = 8;
const MAX_OF_CHECK = 3;

/** A few of each check, so that many of one kind do not hide another. */
function firstOf(differences: readonly Difference[]): readonly Difference[] {
  return CHECKS.flatMap((check) => differences.filter((each) => each.check === check).slice(0, MAX_OF_CHECK)).slice(
    0,
    MAX_SHOWN,
  );
}

const placeOf = ({ task, doc }: Difference): string =>
  task === undefined ? 'the run' : doc === undefined ? task : `${task}, document ${doc}`;

function differenceLines({ differences, checks }: Verification): string[] {
  const total = CHECKS.reduce((sum, check) => sum + checks[check].differing, 0);
  if (total === 0) return [];
  const shown = firstOf(differences);
  return [
    '',
    total === shown.length ? 'What differs:' : `What differs, ${shown.length} of ${count(total)} (all: --json):`,
    ...shown.flatMap((each) => [
      `  ${placeOf(each)}: ${each.what}`,
      `    recorded ${each.recorded}`,
      `    computed ${each.computed}`,
    ]),
  ];
}

/** What to type next. */
function nextOf(of: Verification, invocation: string): string {
  const path = quoteForShell(of.results);
  const { checks, sample, answers } = of;
  if (of.outcome === 'agrees') {
    const left = sample.of - sample.documents;
    if (left === 0) return 'nothing is left to compute';
    return `${invocation} verify ${path} --sample all   (computes the other ${counted(left, 'document')}, too)`;
  }
  if (checks.model.differing > 0) return `name the model of the results: ${invocation} verify ${path} --model DIR`;
  if (checks.data.differing > 0)
    return `name the data of the results: ${invocation} verify ${path} --data-root DIR (or --data FILE)`;
  if (of.outcome === 'unchecked' && checks.answers.differing > 0)
    return `type the same command on a machine with ${of.devices.recorded.name || of.devices.recorded.isa}`;
  if (of.outcome === 'differs' && answers.documents < sample.of)
    return `see how many: ${invocation} verify ${path} --sample all --json`;
  return `see all of it: ${invocation} verify ${path} --seed ${sample.seed} --json`;
}

function devicesLine({ devices: { recorded, here } }: Verification): string {
  const made = `made on ${kindName(recorded)}`;
  return here === null ? made : `${made}; computed on ${kindName(here)}`;
}

export function verificationText(
  of: Verification,
  { isQuiet, invocation }: { readonly isQuiet: boolean; readonly invocation: string },
): string {
  if (isQuiet) return `${printableLine(of.verdict)}\n`;
  const { documents, of: all, seed } = of.sample;
  const lines = [
    of.results,
    devicesLine(of),
    `${count(documents)} of ${counted(all, 'document')} computed again, drawn by seed ${seed}, in ` +
      duration(of.seconds),
    '',
    ...textTable(
      CHECKS.map((check) => row(check, of.checks[check])),
      new Set([1]),
    ),
    ...differenceLines(of),
    ...(of.notes.length === 0 ? [] : ['', ...of.notes.map((note) => `note: ${note}`)]),
    '',
    of.verdict,
    `next: ${nextOf(of, invocation)}`,
  ];
  return `${lines.map(printableLine).join('\n')}\n`;
}
