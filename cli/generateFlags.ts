/** The flags that say how prompts are continued. */
import { Option, type Command } from 'commander';
import { UsageError } from '../errors.js';
import { DEFAULT_NEW_TOKENS, generateSchema, MOST_NEW_TOKENS, type GenerateOptions } from '../generate/options.js';
import { MOST_TEMPERATURE } from '../generate/sampling.js';
import { isSet, text, texts, wholeNumber, type Flags } from './options.js';

const append = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

export const addGenerateFlags = (command: Command): Command =>
  command
    .option('--max-new-tokens <n>', `most tokens to generate for a prompt (default: ${DEFAULT_NEW_TOKENS})`)
    .addOption(
      new Option(
        '--stop <text>',
        'end at this text, which is left out; may be given several times; \\n is a line end',
      ).argParser(append),
    )
    .option(
      '--temperature <t>',
      `divide logits by this before a token is drawn, 0 to ${MOST_TEMPERATURE}; 0: the most likely`,
    )
    .option('--top-k <n>', 'draw from this many most likely tokens; 0: from all')
    .option('--top-p <p>', 'draw from the fewest most likely tokens that have this probability together')
    .option('--min-p <p>', "draw from tokens with at least this share of the most likely one's probability")
    .option('--repetition-penalty <x>', 'divide logits of tokens that came before by this')
    .option('--presence-penalty <x>', 'take this from the logits of tokens that were generated')
    .option('--frequency-penalty <x>', 'the same for each time that they were')
    .option('--seed <n>', 'draw the same tokens as any other run with this seed (default: 0)')
    .option('--ignore-eos', "go on after the model's end-of-text token");

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '\\': '\\' };

/** `\n`, `\t`, `\r` and `\\` as shells leave them; any other backslash stays. */
const unescape = (given: string): string => given.replace(/\\([ntr\\])/g, (_, letter: string) => ESCAPES[letter]!);

/** Fields of sampling that are flags of a number each. */
const NUMBERS = [
  'temperature',
  'topK',
  'topP',
  'minP',
  'repetitionPenalty',
  'presencePenalty',
  'frequencyPenalty',
  'seed',
] as const;

/** A field as a number; NaN, which the schema refuses, where the text is none. */
const numberOf = (field: string, given: string | undefined): readonly (readonly [string, number])[] =>
  given === undefined ? [] : [[field, given.trim() === '' ? NaN : Number(given)]];

/** Throws UsageError. */
export function generateFlags(flags: Flags): GenerateOptions {
  const most = text(flags, 'maxNewTokens');
  const stop = texts(flags, 'stop').map(unescape);
  const options = {
    ...(most === undefined ? {} : { maxNewTokens: wholeNumber('--max-new-tokens', most, 1, MOST_NEW_TOKENS, '256') }),
    ...(stop.length === 0 ? {} : { stop }),
    ...Object.fromEntries(NUMBERS.flatMap((field) => numberOf(field, text(flags, field)))),
    ...(isSet(flags, 'ignoreEos') ? { ignoreEos: true } : {}),
  };
  const checked = generateSchema.safeParse(options);
  if (checked.success) return checked.data;
  const [issue] = checked.error.issues;
  const field = String(issue?.path[0] ?? 'options');
  const flag = `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  const problem = stop.includes('') ? 'is empty' : (issue?.message ?? 'not understood');
  throw new UsageError(
    `${flag}: ${problem}`,
    field === 'stop' ? 'for example: --stop "\\n\\n"' : 'see generate --help',
  );
}
