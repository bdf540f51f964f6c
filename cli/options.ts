/** Flags as text → typed values. Every refusal says what was given, what is expected, and shows an example. */
import type { Command, Option } from 'commander';
import { UsageError } from '../errors.js';
import { type Sharing, SHARING_MODES } from '../evaluate/scorer.js';
import { nearest } from '../system/text.js';
import { type Io, styleOf } from './io.js';

/** What commander hands over: a string for a flag with a value, true for one without, a list where it may repeat. */
export type Flags = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/** The value of a flag that takes one. */
export function text(flags: Flags, name: string): string | undefined {
  const value = flags[name];
  return typeof value === 'string' ? value : undefined;
}

/** The values of a flag that may be given several times. */
export function texts(flags: Flags, name: string): readonly string[] {
  const value = flags[name];
  return Array.isArray(value) ? (value as readonly string[]) : [];
}

export const isSet = (flags: Flags, name: string): boolean => flags[name] === true;

/** The word that was given. `synonym`: the one that others call so. Throws UsageError for a word that is not known. */
export function choice<T extends string>(
  flag: string,
  given: string,
  known: readonly T[],
  synonym: (given: string) => T | undefined = () => undefined,
): T {
  const found = known.find((word) => word === given);
  if (found !== undefined) return found;
  const meant = synonym(given) ?? nearest(given, known);
  throw new UsageError(
    `${flag} ${given}: expected ${known.slice(0, -1).join(', ')}${known.length > 1 ? ' or ' : ''}${known.at(-1)!}`,
    meant === undefined ? `for example: ${flag} ${known[0]!}` : `did you mean ${flag} ${meant}?`,
  );
}

/** A whole number from `min` to `max`. */
export function wholeNumber(flag: string, given: string, min: number, max: number, example: string): number {
  const value = /^\d{1,15}$/.test(given) ? Number(given) : NaN;
  if (!(value >= min && value <= max))
    throw new UsageError(
      `${flag} ${given}: expected a whole number from ${min} to ${max}`,
      `for example: ${flag} ${example}`,
    );
  return value;
}

const SECONDS = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600 } as const;
const isUnit = (unit: string): unit is keyof typeof SECONDS => unit in SECONDS;

/** `30s`, `5m`, `1h30m` in seconds. A bare number is refused: nobody can tell what it counts. */
export function seconds(flag: string, given: string): number {
  const parts = [...given.matchAll(/(\d+(?:\.\d+)?)([a-z]+)/g)];
  const isWhole = parts.length > 0 && parts.map(([part]) => part).join('') === given;
  const total = parts.reduce(
    (sum, [, value = '', unit = '']) => sum + Number(value) * (isUnit(unit) ? SECONDS[unit] : NaN),
    0,
  );
  if (!isWhole || !(total > 0) || total > 30 * 24 * 3600) {
    throw new UsageError(
      `${flag} ${given}: expected a time with a unit, at most 30 days`,
      `for example: ${flag} 30s, ${flag} 5m, ${flag} 1h30m`,
    );
  }
  return total;
}

const MAX_THREADS = 1024;

export const threads = (flags: Flags, { cores }: Pick<Io, 'cores'>): number => {
  const given = text(flags, 'threads');
  return given === undefined ? cores() : wholeNumber('--threads', given, 1, MAX_THREADS, '2');
};

export const sharing = (flags: Flags): Sharing => choice('--sharing', text(flags, 'sharing') ?? 'tree', SHARING_MODES);

/** The value of a flag that must be there. */
export function required(flags: Flags, name: string, flag: string, example: string): string {
  const value = text(flags, name);
  if (value === undefined || value === '') throw new UsageError(`${flag} is missing`, `for example: ${example}`);
  return value;
}

/** What `--max-tokens` is in the commands that take it; to most people it is the length of an answer. */
const MAX_TOKENS = {
  batchTokens: ['--batch-tokens', 'the size of a micro-batch'],
  maxNewTokens: ['--max-new-tokens', 'the length of an answer'],
} as const;

/**
 * The arguments with the flags of their command spelt with dashes, as help has them. Values stay as they are, and so
 * does all that follows `--`.
 */
export function withDashes(program: Command, argv: readonly string[]): string[] {
  const at = argv.findIndex((each) => !each.startsWith('-'));
  const options = program.commands.find((command) => command.name() === argv[at])?.options ?? [];
  const optionOf = (flag: string): Option | undefined =>
    options.find(({ long, short }) => flag === long || flag === short);
  let before: Option | undefined;
  let isOver = false;
  return argv.map((each) => {
    const isValue = before?.required === true;
    before = undefined;
    isOver ||= !isValue && each === '--';
    if (isValue || isOver) return each;
    const [, name, value = ''] = /^(--?[a-z][\w-]*)(=.*)?$/is.exec(each) ?? [];
    if (name === undefined) return each;
    const flag = name.replaceAll('_', '-');
    const option = optionOf(flag);
    if (value === '') before = option;
    return option === undefined ? each : `${flag}${value}`;
  });
}

/** The flags with what `--max-tokens` says under the name that it has here. Throws UsageError where both are given. */
export function withMaxTokens(flags: Flags, name: keyof typeof MAX_TOKENS): Flags {
  const given = text(flags, 'maxTokens');
  if (given === undefined) return flags;
  const [flag, what] = MAX_TOKENS[name];
  if (flags[name] !== undefined)
    throw new UsageError(`${flag} and --max-tokens are both ${what}`, 'leave --max-tokens out');
  // Whoever gives the length of an answer has said all with it; in `run` the name may still be refused.
  const { maxTokens, ...others } = flags;
  return name === 'maxNewTokens' ? { ...others, [name]: given } : { ...others, maxTokens, [name]: given };
}

/** Words for whoever types a flag that a command does not have, and another one does. */
export const INSTEAD: Readonly<Record<string, string>> = {
  '--max-tokens':
    'the size of a micro-batch is --batch-tokens; the length of an answer is --max-new-tokens, of generate',
};

/** Lines after the list of flags: what was not obvious from it. */
export function addSections(command: Command, sections: Readonly<Record<string, readonly string[]>>): Command {
  const text = Object.entries(sections).map(
    ([title, lines]) =>
      `${styleOf(true).bold(`${title}:`)}\n${lines.map((line) => (line === '' ? '' : `  ${line}`)).join('\n')}`,
  );
  return command.addHelpText('after', `\n${text.join('\n\n')}`);
}

export const EXIT_STATUSES = [
  '0    done',
  '1    failed; stderr says what and what to do',
  '2    wrong use: an unknown flag, a value that cannot be, a missing argument',
  '130  stopped with Ctrl-C; stderr says how to go on',
];

export const CHECKPOINT_HELP = [
  'A checkpoint is a Hugging Face folder: config.json, model.safetensors',
  '(or its index and shards), and a tokenizer (tokenizer.json, tokenizer.model,',
  'tekken.json, or vocab.json and merges.txt); or a GGUF file.',
  'With --init random:SEED the weights are made up and config.json alone describes them.',
];
