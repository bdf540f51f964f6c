/** Other spellings of flags: with underscores, and the names that flags have elsewhere. */
import type { Command, Option } from 'commander';
import { UsageError } from '../errors.js';
import { text, type Flags } from './options.js';

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
