/** `tilewright quantize`: a checkpoint with matrices of 4 or 8 bits. */
import type { Command } from 'commander';
import { defined } from '../system/defined.js';
import type { MatrixReport, QuantizeRequest, QuantizeResult } from '../commands/quantize.js';
import { isArtifact } from '../driver/names.js';
import { UsageError } from '../errors.js';
import { quoteForShell } from '../system/process.js';
import { count, counted, duration, percent, textTable } from '../system/text.js';
import { addVerboseFlag } from './modelFlags.js';
import {
  addSections,
  choice,
  EXIT_STATUSES,
  type Flags,
  isSet,
  required,
  text,
  threads,
  wholeNumber,
} from './options.js';
import { printText } from './print.js';
import { faceOf } from './ui.js';
import { type Context, printJson, refuseHubName, sameCommand, withUi } from './work.js';

const GROUPS = ['128', '64', '32', '-1'] as const;
const METHODS = ['gptq', 'round'] as const;
/** Flags about the calibration text. */
const OF_TEXT = ['calibration', 'samples', 'length', 'seed'] as const;
const MAX_SAMPLES = 1 << 16;
const MAX_TOKENS = 1 << 16;

export function addQuantize(program: Command, context: Context): void {
  const command = program
    .command('quantize')
    .summary('checkpoint → checkpoint with weights of 4 or 8 bits, by GPTQ')
    .description(
      'Writes a copy of a checkpoint whose matrices are stored in 4 or 8 bits, with a scale for each group of ' +
        'columns. GPTQ rounds column by column and corrects the columns that follow by what was lost, as the inputs ' +
        'of the layer weigh it; a calibration text shows it these inputs. The folder is read by run, generate and ' +
        'compile, and by other tools that know GPTQ.',
    )
    .argument('<checkpoint>', 'folder of a Hugging Face checkpoint with weights of 16 or 32 bits')
    .option('-o, --output <dir>', 'folder to write; nothing may be there yet')
    .option('--calibration <file>', 'text that shows the model what it will be used for (for gptq)')
    .option('--bits <n>', 'bits of a weight: 4, 8', '4')
    .option('--group <n>', 'columns that share a scale: 128, 64, 32; -1: all of a row', '128')
    .option('--method <name>', 'gptq; round: to the nearest, without a text', 'gptq')
    .option('--sym', 'as much room below zero as above: what all tools read (the default)')
    .option('--asym', 'a zero point for each group')
    .option('--act-order', 'quantize the columns with the largest inputs first: smaller errors, slower in some tools')
    .option('--samples <n>', 'stretches of the text that go through the model (default: 128)')
    .option('--length <n>', "tokens of a sample (default: 512, or the model's context)")
    .option('--seed <n>', 'which stretches are drawn (default: 1)')
    .option('--threads <n>', 'threads to compute with (default: all processors)')
    .option('-q, --quiet', 'print results and errors only: no progress, no notes, no warnings');
  addVerboseFlag(command)
    .option('--json', 'print the result as JSON and nothing else, with the error of every matrix')
    .action(async (checkpoint: string, _options: unknown, self: Command) => {
      await quantize(context, checkpoint, self.opts<Flags>());
    });
  addSections(command, {
    'What is quantized': [
      'The matrices of all layers. What stays as it is stored: embeddings and head, routers of experts,',
      'norms and biases, and matrices whose rows or columns do not fill words of 32 bits. A line names',
      'them.',
    ],
    'The text': [
      'Any text file in UTF-8, about what the model will be used for, and not the questions that it will',
      'be judged by. Of its tokens --samples stretches of --length are drawn. More than 128 × 512 rarely',
      'helps.',
    ],
    'The table': [
      'The error of the outputs of matrices on the calibration text: root of the mean square, divided by',
      'that of the outputs. gptq: as written; nearest: what rounding to the nearest would have cost the',
      'same matrix.',
    ],
    'What it takes': [
      'A matrix of n rows and k columns takes k² / 2 multiplications for each token, k³ / 3 once and n·k²',
      'after that. Inputs of all samples are kept in memory: about 8 × k bytes for each token.',
      'docs/quantized.md has rates.',
    ],
    Examples: [
      'tilewright quantize models/demo -o demo-int4 --group 64 --calibration text.txt',
      'tilewright quantize models/demo -o demo-int8 --bits 8 --group -1 --method round',
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out a',
      'tilewright run demo-int4 --task hellaswag --data examples/everyday.jsonl --out b --compare-with a',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

function requestOf(context: Context, model: string, flags: Flags): QuantizeRequest {
  const example = `tilewright quantize ${quoteForShell(model)} -o model-int4`;
  const method = choice('--method', text(flags, 'method') ?? 'gptq', METHODS);
  const calibration =
    method === 'gptq' ? required(flags, 'calibration', '--calibration FILE', `${example} --calibration text.txt`) : '';
  const output = required(flags, 'output', '-o DIR', `${example} --calibration text.txt`);
  if (isArtifact(model))
    throw new UsageError(`${model}: is an artifact`, 'give the checkpoint that it was compiled from');
  if (isSet(flags, 'sym') && isSet(flags, 'asym'))
    throw new UsageError('--sym and --asym exclude each other', 'drop one of them');
  const ofText = OF_TEXT.find((name) => flags[name] !== undefined);
  if (method === 'round' && ofText !== undefined)
    throw new UsageError(
      `--${ofText}: rounding to the nearest reads no text`,
      `leave --${ofText} out, or use --method gptq`,
    );
  if (method === 'round' && isSet(flags, 'actOrder'))
    throw new UsageError('--act-order: rounding to the nearest has no order', 'drop it, or use --method gptq');
  const given = (name: 'samples' | 'length' | 'seed', least: number, most: number, usual: number): number =>
    wholeNumber(`--${name}`, text(flags, name) ?? String(usual), least, most, String(usual));
  return {
    model,
    output,
    method,
    bits: choice('--bits', text(flags, 'bits') ?? '4', ['4', '8']) === '4' ? 4 : 8,
    group: Number(choice('--group', text(flags, 'group') ?? '128', GROUPS)) as QuantizeRequest['group'],
    isSymmetric: !isSet(flags, 'asym'),
    byActivation: isSet(flags, 'actOrder'),
    threads: threads(flags, context.io),
    ...(method === 'round'
      ? {}
      : {
          calibration: {
            file: calibration,
            samples: given('samples', 1, MAX_SAMPLES, 128),
            seed: given('seed', 0, 2 ** 32 - 1, 1),
            ...defined({
              length: text(flags, 'length') === undefined ? undefined : given('length', 1, MAX_TOKENS, 512),
            }),
          },
        }),
  };
}

async function quantize(context: Context, model: string, flags: Flags): Promise<void> {
  await refuseHubName(model);
  const request = requestOf(context, model, flags);
  const face = faceOf(flags);
  const advice = (): string => `nothing was written; start again with\n  ${sameCommand(context)}`;
  const { value: result } = await withUi(context, { ...face, advice, resultsIn: 'quantize' }, async (ui, signal) => {
    const story = await import('../commands/quantize.js');
    return story.quantize({ ...request, signal }, ui);
  });
  if (face.isJson) printJson(context.io, result);
  else printText(context.io, describe(result));
}

/** Matrices of one kind in all layers, and of all experts. */
const kindOf = ({ tensor }: MatrixReport): string => tensor.replace(/\.weight$/, '').replace(/\.\d+(?=\.)/g, '.{i}');

function describe(result: QuantizeResult): string {
  const { output, matrices, settings, samples, tokens } = result;
  const kinds = new Map<string, MatrixReport[]>();
  for (const each of matrices) kinds.set(kindOf(each), [...(kinds.get(kindOf(each)) ?? []), each]);
  const mean = (all: readonly MatrixReport[], of: (report: MatrixReport) => number): string =>
    percent(all.reduce((sum, each) => sum + of(each), 0) / all.length, 2);
  const rows = [...kinds].map(([kind, all]) => [
    kind,
    String(all.length),
    `${all[0]!.rows} × ${all[0]!.k}`,
    ...(samples === 0
      ? []
      : [mean(all, ({ error = 0 }) => error), mean(all, ({ roundingError = 0 }) => roundingError)]),
  ]);
  const head = ['matrices', 'count', 'shape', ...(samples === 0 ? [] : ['gptq', 'nearest'])];
  const group = settings.group === -1 ? 'a scale for each row' : `groups of ${settings.group}`;
  return [
    ...textTable([head, ...rows], new Set([1, 3, 4])),
    `${output}: ${counted(matrices.length, 'matrix', 'matrices')} in ${settings.bits} bits, ${group}` +
      (samples === 0
        ? ', rounded to the nearest'
        : `, by GPTQ on ${counted(samples, 'sample')} (${count(tokens)} tokens)`),
    `took ${duration(result.seconds)}`,
    '',
  ].join('\n');
}
