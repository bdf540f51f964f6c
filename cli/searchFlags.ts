/** The flags that say how answers are searched for. */
import { type Command, Option } from 'commander';
import type { SearchOptions } from '../search/options.js';
import { UsageError } from '../errors.js';
import { choice, type Flags, isSet, text } from './options.js';
import { unescape } from './generateFlags.js';

/** Names of search/options.ts, which help must not load. */
export const METHOD_NAMES = ['best-of-n', 'weighted', 'majority', 'beam', 'dvts', 'rebase'] as const;
export const AGGREGATE_NAMES = ['last', 'min', 'prod'] as const;

export const addSearchFlags = (command: Command): Command =>
  command
    .addOption(
      new Option('--method <name>', 'how answers are searched for (see below; default: beam)').choices(METHOD_NAMES),
    )
    .option('--n <n>', 'paths that are kept at a time, or samples (default: 16)')
    .option('--width <n>', 'continuations of each path that survives (default: 4)')
    .option('--iterations <n>', 'most steps of a path (default: 40)')
    .option('--temperature <t>', 'divide logits by this before a token is drawn; 0: the most likely (default: 0.8)')
    .option('--top-p <p>', 'draw from the fewest tokens that have this probability together (default: 1)')
    .option('--seed <n>', 'draw the same steps as any other search with this seed (default: 0)')
    .option('--step-stop <text>', 'text that ends a step; \\n is a line end (default: "\\n\\n")')
    .option('--step-tokens <n>', 'a step has this many tokens instead')
    .option('--max-step-tokens <n>', 'most tokens of a step, or of a sample (default: 2048)')
    .option('--system <text>', "system prompt, or none (default: search-and-learn's)")
    .option('--ignore-eos', "go on after the model's end-of-text tokens")
    .addOption(
      new Option('--aggregate <how>', "how scores of a path's steps become one (default: last)").choices(
        AGGREGATE_NAMES,
      ),
    )
    .option('--every <n>', 'score and choose paths after every so many steps (default: 1)')
    .option('--lookahead <n>', 'a score looks at so many more steps, the most likely ones (default: 0)')
    .option('--filter-duplicates', 'of paths with equal texts the first alone goes on')
    .option('--sort-completed', 'completed paths come best first')
    .option('--rebase-temperature <t>', 'of rebase: children follow softmax(score / t) (default: 0.2)')
    .option('--early-stop', 'draw no more samples once the vote cannot change')
    .addOption(
      new Option('--compat <program>', 'sal: what search-and-learn does, to the letter, where that is odd').choices([
        'sal',
      ]),
    )
    .addOption(
      new Option(
        '--speculate <when>',
        'extend steps while their scores are pending; changes no result (default: auto)',
      ).choices(['auto', 'on', 'off']),
    );

/** Fields that are flags of a number each, and a value that makes sense. */
const NUMBERS = {
  n: 16,
  width: 4,
  iterations: 40,
  temperature: 0.8,
  topP: 0.95,
  seed: 1,
  stepTokens: 60,
  maxStepTokens: 2048,
  every: 2,
  lookahead: 1,
  rebaseTemperature: 0.2,
} as const satisfies Partial<Record<keyof SearchOptions, number>>;

const SWITCHES = [
  'ignoreEos',
  'filterDuplicates',
  'sortCompleted',
  'earlyStop',
] as const satisfies readonly (keyof SearchOptions)[];
const WORDS = ['aggregate', 'compat', 'speculate', 'system'] as const satisfies readonly (keyof SearchOptions)[];

const flagOf = (field: string): string => `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** A text as a number; NaN, which the schema refuses, where it is none. */
const numberOf = (given: string): number => (/^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(given) ? Number(given) : NaN);

/** Rejects with UsageError. */
export async function searchFlags(flags: Flags): Promise<SearchOptions> {
  const { searchSchema } = await import('../search/options.js');
  const given = Object.keys(NUMBERS).flatMap((field) => {
    const value = text(flags, field);
    return value === undefined ? [] : [[field, value] as const];
  });
  const words = WORDS.flatMap((field) => {
    const value = text(flags, field);
    return value === undefined ? [] : [[field, value] as const];
  });
  const stop = text(flags, 'stepStop');
  const checked = searchSchema.safeParse({
    method: choice('--method', text(flags, 'method') ?? 'beam', METHOD_NAMES),
    ...Object.fromEntries(given.map(([field, value]) => [field, numberOf(value)])),
    ...Object.fromEntries(words),
    ...(stop === undefined ? {} : { stepStop: unescape(stop) }),
    ...Object.fromEntries(SWITCHES.flatMap((field) => (isSet(flags, field) ? [[field, true]] : []))),
  });
  if (checked.success) return checked.data;
  const [issue] = checked.error.issues;
  const field = String(issue?.path[0] ?? '');
  const flag = flagOf(field);
  const value = text(flags, field) ?? '';
  const example = Object.hasOwn(NUMBERS, field) ? NUMBERS[field as keyof typeof NUMBERS] : '"\\n\\n"';
  throw new UsageError(
    `${flag} ${value === '' ? '""' : value}: ${issue?.message ?? 'not understood'}`,
    `for example: ${flag} ${example}`,
  );
}
