/** `tilewright inspect --error`: what rounding costs, kernel by kernel and layer by layer. */
import { type ErrorReport, type ErrorRequest, inspectError, type KernelError } from '../commands/inspectError.js';
import { UsageError, UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { isRecord } from '../system/json.js';
import { FileLines } from '../system/lines.js';
import { count, counted, textTable } from '../system/text.js';
import { choice, type Flags, isSet, text, wholeNumber } from './options.js';
import { modelFlags } from './modelFlags.js';
import { printText } from './print.js';
import { type Context, printJson } from './work.js';

const MAX_LINE_BYTES = 1 << 20;
const PROMPTS = 4;
const TOKENS = 32;
const MAX_PROMPTS = 1000;
const AGAINST = ['f32', 'bf16', 'f16'] as const;
/** Of records as data sets have them, the first that is there. */
const FIELDS = ['prompt', 'text', 'context', 'question', 'query', 'ctx'] as const;

/** Prompts of nobody's benchmark. */
const BUILT_IN = [
  'The baker opens the oven, takes out the bread and puts it on the table to cool.',
  'Question: Which of these animals lays eggs? Answer: the hen, the frog and the tortoise.',
  'In 1869 a railway joined both coasts; the journey, which had taken months, took a week.',
  'def total(values):\n    return sum(value for value in values if value > 0)\n',
] as const;

function promptOf(line: string): string {
  if (!line.startsWith('{')) return line;
  let record: unknown;
  try {
    record = JSON.parse(line);
  } catch {
    return line;
  }
  const texts = isRecord(record) ? FIELDS.map((field) => record[field]) : [];
  return texts.find((each): each is string => typeof each === 'string') ?? line;
}

/** The first lines of a file. Throws UserError. */
function readPrompts(path: string, limit: number): readonly string[] {
  const lines = new FileLines(path, { maxLineBytes: MAX_LINE_BYTES, hint: 'Give a text file, a prompt on each line' });
  const found: string[] = [];
  try {
    for (let line = lines.next(); line !== undefined && found.length < limit; line = lines.next()) {
      const prompt = promptOf(line.bytes.toString('utf8').trim());
      if (prompt !== '') found.push(prompt);
    }
  } finally {
    lines.close();
  }
  if (found.length === 0) throw new UserError(`${path} holds no prompts`, 'Give a text file, a prompt on each line');
  return found;
}

export async function showError(context: Context, model: string, flags: Flags): Promise<void> {
  const { init, precision, target, isa, kvCache } = modelFlags(flags);
  if (target === 'auto' || target === 'cuda')
    throw new UsageError(
      `--target ${target}: name what is to be looked at, which need not be here`,
      'for example: --target cuda:sm_90a; without --target it is the CPU',
    );
  const [data, limit, tokens] = [text(flags, 'data'), text(flags, 'limit'), text(flags, 'tokens')];
  const most = limit === undefined ? PROMPTS : wholeNumber('--limit', limit, 1, MAX_PROMPTS, '8');
  const against = text(flags, 'against');
  const request: ErrorRequest = {
    model,
    init,
    precision,
    ...defined({ target, isa, kvCache }),
    ...defined({ against: against === undefined ? undefined : choice('--against', against, AGAINST) }),
    prompts: data === undefined ? BUILT_IN.slice(0, most) : readPrompts(data, most),
    tokens: tokens === undefined ? TOKENS : wholeNumber('--tokens', tokens, 2, 4096, '64'),
  };
  const report = await inspectError(request);
  if (isSet(flags, 'json')) printJson(context.io, report);
  else printText(context.io, errorText(report));
}

/** Three digits: errors of 16 bits are thousandths. */
const shown = (error: number): string =>
  error === 0 ? '0' : error < 1e-5 ? error.toExponential(1).replace('-', '−') : error.toPrecision(3);

const worstOf = ({ outputs }: KernelError): number => Math.max(...outputs.map(({ error }) => error));

/** A row for each layer, a column for each of its kernels; then what lies outside of layers. */
function errorText({ kernels, layers, logProbability, ...of }: ErrorReport): string {
  const inLayers = kernels.filter(({ layer }) => layer !== undefined);
  const nameOf = ({ path }: KernelError): string => path.replace(/^layers\.\d+\./, '');
  const columns = [...new Set(inLayers.map(nameOf))];
  const streams = new Map(layers.map(({ layer, error }) => [layer, error]));
  const rows = [...new Set(inLayers.map(({ layer }) => layer!))].map((layer) => {
    const own = new Map(inLayers.filter((each) => each.layer === layer).map((each) => [nameOf(each), each]));
    const errors = columns.map((column) => own.get(column)).map((each) => each && worstOf(each));
    return [
      String(layer),
      ...[streams.get(layer), ...errors].map((error) => (error === undefined ? '' : shown(error))),
    ];
  });
  const others = kernels.filter(({ layer }) => layer === undefined);
  const right = new Set(columns.map((_, i) => i + 2).concat(1));
  return `${[
    `${of.model}: ${of.arithmetic} inputs, other activations ${of.activations} (${of.target}) beside ${of.against}; ` +
      `${counted(of.prompts, 'prompt')}, ${counted(of.tokens, 'token')}`,
    'rms of the difference divided by rms of the value; of several results of a kernel the largest',
    '',
    ...textTable([['layer', 'stream', ...columns], ...rows], right),
    '',
    ...textTable(
      others.map((each) => [each.path, shown(worstOf(each))]),
      new Set([1]),
    ),
    `${of.classes === undefined ? 'log-probabilities' : 'classes'} of ${count(of.tokens - of.prompts)} tokens: ` +
      `|Δ| ${shown(logProbability.meanAbsolute)}${of.classes === undefined ? ' nats' : ''} on ` +
      `average, ${shown(logProbability.worst)} at worst`,
  ].join('\n')}\n`;
}
