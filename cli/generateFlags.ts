/** The flags that say how prompts are continued. */
import { type Command, Option } from 'commander';
import type { Structure } from '../commands/structure.js';
import { UsageError } from '../errors.js';
import {
  DEFAULT_NEW_TOKENS,
  MAX_BEAMS,
  MAX_SAMPLES,
  MAX_TEMPERATURE,
  MAX_TOP_LOGPROBS,
  ownVariable,
} from '../engine/limits.js';
import type { GenerateField, GenerateOptions } from '../engine/options.js';
import { parseJsonValue } from '../python/literal.js';
import { type Dict, isDict, type PyValue } from '../python/value.js';
import { parseJson } from '../system/json.js';
import { decodeUtf8, readBounded } from '../system/read.js';
import { type Flags, isSet, text, texts } from './options.js';

const MAX_SCHEMA_BYTES = 16 * 2 ** 20;

const append = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

export const addGenerateFlags = (command: Command): Command =>
  command
    .option(
      '--max-new-tokens <n>',
      `most tokens to generate for a prompt; also --max-tokens (default: ${DEFAULT_NEW_TOKENS})`,
    )
    .addOption(new Option('--max-tokens <n>', 'the same').hideHelp())
    .option('--min-new-tokens <n>', 'no end-of-text token and no --stop ends a text before it has n tokens')
    .addOption(
      new Option(
        '--stop <text>',
        'end at this text, which is left out; may be given several times; \\n is a line end',
      ).argParser(append),
    )
    .option('--ignore-eos', "go on after the model's end-of-text tokens")
    .option('--n <n>', `texts for each prompt, at most ${MAX_SAMPLES}; they share the pages of the prompt`)
    .option('--best-of <n>', 'draw n texts, and print the --n whose tokens are most likely on average')
    .option('--beams <n>', `search for the most likely text with n paths, at most ${MAX_BEAMS}; print the --n best`)
    .option(
      '--temperature <t>',
      `divide logits by this before a token is drawn, 0 to ${MAX_TEMPERATURE}; 0: the most likely`,
    )
    .option('--top-k <n>', 'draw from this many most likely tokens; 0 or -1: from all')
    .option('--top-p <p>', 'draw from the fewest most likely tokens that have this probability together; 0: the one')
    .option('--min-p <p>', "draw from tokens with at least this share of the most likely one's probability")
    .option('--repetition-penalty <x>', 'divide logits of tokens that came before by this')
    .option('--presence-penalty <x>', 'take this from the logits of tokens that were generated')
    .option('--frequency-penalty <x>', 'the same for each time that they were')
    .addOption(
      new Option('--logit-bias <token=x>', 'add x to the logit of a token id; may be given several times').argParser(
        append,
      ),
    )
    .option('--json-schema <file>', 'write JSON that the JSON Schema in this file accepts (docs/structured.md)')
    .option('--json-object', 'write a JSON object')
    .option('--regex <expression>', 'write a text that this regular expression matches as a whole')
    .addOption(new Option('--choice <text>', 'write one of these texts; given once for each of them').argParser(append))
    .option('--seed <n>', 'draw the same tokens as any other run with this seed (default: 0)')
    .option('--top-logprobs <n>', `with --json: the n most likely tokens at each place, at most ${MAX_TOP_LOGPROBS}`);

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '\\': '\\' };

/** `\n`, `\t`, `\r` and `\\` as shells leave them; any other backslash stays. */
export const unescape = (given: string): string =>
  given.replace(/\\([ntr\\])/g, (_, letter: string) => ESCAPES[letter]!);

/** Fields that are flags of a number each, and a value that makes sense. */
const NUMBERS = {
  maxNewTokens: 256,
  minNewTokens: 16,
  n: 4,
  bestOf: 8,
  beams: 4,
  temperature: 0.8,
  topK: 50,
  topP: 0.9,
  minP: 0.05,
  repetitionPenalty: 1.1,
  presencePenalty: 0.5,
  frequencyPenalty: 0.5,
  seed: 7,
  topLogProbs: 5,
} as const satisfies Partial<Record<GenerateField, number>>;

/** What texts have to be. Throws UsageError, and UserError for a file that is not JSON. */
export function structureFlags(flags: Flags): { readonly structure?: Structure } {
  const [file, regex, choice] = [text(flags, 'jsonSchema'), text(flags, 'regex'), texts(flags, 'choice')];
  const found: Structure[] = [
    ...(file === undefined ? [] : [{ json: readSchema(file) }]),
    ...(isSet(flags, 'jsonObject') ? [{ jsonObject: true } as const] : []),
    ...(regex === undefined ? [] : [{ regex }]),
    ...(choice.length === 0 ? [] : [{ choice }]),
  ];
  const [structure] = found;
  if (structure === undefined) return {};
  if (found.length > 1)
    throw new UsageError('--json-schema, --json-object, --regex, --choice: a text is one of them', 'give one');
  if (text(flags, 'beams') !== undefined)
    throw new UsageError('--beams: a search has no use for what texts have to be', 'leave --beams out');
  return { structure };
}

function readSchema(file: string): unknown {
  const hint = 'give a file with a JSON Schema';
  return parseJson(decodeUtf8(readBounded(file, MAX_SCHEMA_BYTES, hint), file, hint), file, hint);
}

const KWARGS = '--chat-template-kwargs';
const KWARGS_HINT = `for example: ${KWARGS} '{"enable_thinking": false}'`;

/** Variables of the chat template. Throws UsageError. */
export function templateFlags(flags: Flags): { readonly templateVariables?: Dict } {
  const given = text(flags, 'chatTemplateKwargs');
  if (given === undefined) return {};
  let value: PyValue;
  try {
    value = parseJsonValue(given);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new UsageError(`${KWARGS} ${given}: not valid JSON: ${error.message}`, KWARGS_HINT);
  }
  if (!isDict(value)) throw new UsageError(`${KWARGS} ${given}: expected an object`, KWARGS_HINT);
  const own = ownVariable(value.keys());
  if (own !== undefined)
    throw new UsageError(`${KWARGS} ${given}: every conversation has its own ${own}`, `leave ${own} out`);
  return { templateVariables: value };
}

/** Flags as commander names them, where that is not the field. */
const flagKey = (field: string): string => (field === 'topLogProbs' ? 'topLogprobs' : field);

const flagOf = (field: string): string =>
  `--${flagKey(field).replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** A text as a number; NaN, which the schema refuses, where it is none. */
const numberOf = (given: string): number => (/^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(given) ? Number(given) : NaN);

/** `42=-100` as [42, -100]. */
function biasOf(given: string): readonly [number, number] {
  const [token = '', bias = '', ...rest] = given.split('=');
  return rest.length > 0 ? [NaN, NaN] : [numberOf(token), numberOf(bias)];
}

/** Rejects with UsageError. */
export async function generateFlags(flags: Flags): Promise<GenerateOptions> {
  const { checkTogether, generateSchema } = await import('../engine/options.js');
  const stop = texts(flags, 'stop').map(unescape);
  const biases = texts(flags, 'logitBias');
  const given = Object.keys(NUMBERS).flatMap((field) => {
    const value = text(flags, flagKey(field));
    return value === undefined ? [] : [[field, value] as const];
  });
  const checked = generateSchema.safeParse({
    ...Object.fromEntries(given.map(([field, value]) => [field, numberOf(value)])),
    ...(stop.length === 0 ? {} : { stop }),
    ...(biases.length === 0 ? {} : { logitBias: biases.map(biasOf) }),
    ...(isSet(flags, 'ignoreEos') ? { ignoreEos: true } : {}),
  });
  if (!checked.success) {
    const [issue] = checked.error.issues;
    const [field, place] = (issue?.path ?? []).map(String);
    throw refused(field ?? '', place, issue?.message ?? 'not understood', { stop, biases, given: new Map(given) });
  }
  checkTogether(checked.data, flagOf);
  if ((checked.data.topLogProbs ?? 0) > 0 && !isSet(flags, 'json'))
    throw new UsageError('--top-logprobs: they are printed with --json only', 'add --json');
  return checked.data;
}

interface Given {
  readonly stop: readonly string[];
  readonly biases: readonly string[];
  readonly given: ReadonlyMap<string, string>;
}

/** What was given, what is expected, and an example. `place`: of several values, which. */
function refused(
  field: string,
  place: string | undefined,
  problem: string,
  { stop, biases, given }: Given,
): UsageError {
  if (field === 'stop')
    return new UsageError(
      `--stop: ${stop[Number(place)] === '' ? 'is empty' : problem}`,
      'for example: --stop "\\n\\n"',
    );
  if (field === 'logitBias') {
    const value = place === undefined ? '' : ` ${biases[Number(place)] ?? ''}`;
    return new UsageError(
      `--logit-bias${value}: ${place === undefined ? problem : 'expected a token id, = and a number from -100 to 100'}`,
      'for example: --logit-bias 42=-100',
    );
  }
  const example = NUMBERS[field as keyof typeof NUMBERS];
  return new UsageError(
    `${flagOf(field)} ${given.get(field) ?? ''}: ${problem}`,
    `for example: ${flagOf(field)} ${example}`,
  );
}
