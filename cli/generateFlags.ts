/** The flags that say how prompts are continued. */
import { Option, type Command } from 'commander';
import { UsageError } from '../errors.js';
import { DEFAULT_NEW_TOKENS, generateSchema, MOST_NEW_TOKENS, type GenerateOptions } from '../generate/options.js';
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
    .option('--ignore-eos', "go on after the model's end-of-text token");

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '\\': '\\' };

/** `\n`, `\t`, `\r` and `\\` as shells leave them; any other backslash stays. */
const unescape = (given: string): string => given.replace(/\\([ntr\\])/g, (_, letter: string) => ESCAPES[letter]!);

/** Throws UsageError. */
export function generateFlags(flags: Flags): GenerateOptions {
  const most = text(flags, 'maxNewTokens');
  const stop = texts(flags, 'stop').map(unescape);
  const options = {
    ...(most === undefined ? {} : { maxNewTokens: wholeNumber('--max-new-tokens', most, 1, MOST_NEW_TOKENS, '256') }),
    ...(stop.length === 0 ? {} : { stop }),
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
