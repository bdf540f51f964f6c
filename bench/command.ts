/** Benchmarks as programs: their options, read by commander, and errors in words. */
import { existsSync, realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Command, CommanderError, InvalidArgumentError } from 'commander';
import { UserError } from '../errors.js';

/** Kinds of machine that benchmarks of whole models run on. */
export const BENCH_TARGETS = ['cpu', 'cuda'] as const;
export type BenchTarget = (typeof BENCH_TARGETS)[number];

/** The command `npm run SCRIPT`. The caller adds its options; parseOptions and runProgram read them. */
export function benchCommand(script: string, about: string): Command {
  return new Command(`npm run ${script} --`)
    .description(about)
    .exitOverride()
    .configureHelp({ helpWidth: 120 })
    .configureOutput({ writeErr: () => undefined });
}

/** The value of an option: a whole number. */
export const whole = (min: number, max: number) => (text: string) => checked(text, min, max, true);

/** The value of an option: a number. */
export const decimal = (min: number, max: number) => (text: string) => checked(text, min, max, false);

function checked(text: string, min: number, max: number, isWhole: boolean): number {
  const value = Number(text);
  const isNumber = isWhole ? /^\d{1,16}$/.test(text) : text.trim() !== '';
  const isValid = isNumber && value >= min && value <= max;
  if (isValid) return value;
  throw new InvalidArgumentError(`expected ${isWhole ? 'a whole number' : 'a number'} from ${min} to ${max}`);
}

/** The value of an option: one of these words. */
export function oneOf<const T extends string>(values: readonly T[]): (text: string) => T {
  return (text) => {
    const found = values.find((value) => value === text);
    if (found !== undefined) return found;
    throw new InvalidArgumentError(`expected ${values.join(' or ')}`);
  };
}

/** The value of an option: several, with commas between them. */
export const list =
  <T>(parse: (text: string) => T) =>
  (text: string): readonly T[] =>
    text.split(',').map(parse);

/** The values of an option that may be given several times. For one reading of a command line. */
export function repeated<T>(parse: (text: string) => T): (text: string) => readonly T[] {
  const found: T[] = [];
  return (text) => {
    found.push(parse(text));
    return found;
  };
}

/** A text as it is, to repeat. */
export const text = (given: string): string => given;

/** The options, by the names of the flags; undefined if help was asked for, and printed. Throws UserError. */
export function parseOptions<Options extends object>(command: Command, args: readonly string[]): Options | undefined {
  try {
    return command.parse(args, { from: 'user' }).opts<Options>();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.code === 'commander.helpDisplayed') return undefined;
    const message = error.message.replace(/^error: /, '');
    throw new UserError(message, `look at the options: ${command.name()} --help`, { cause: error });
  }
}

/** Whether this module is the program that Node was started with. */
export function isProgram(url: string): boolean {
  const started = process.argv[1];
  return started !== undefined && existsSync(started) && realpathSync(started) === fileURLToPath(url);
}

/**
 * Runs `main` with the options of the command line, where the module with this URL is the program. The error of a
 * user's mistake is printed and lets the program fail; every other one is thrown.
 */
export async function runProgram<Options extends object>(
  url: string,
  command: () => Command,
  main: (options: Options, operands: readonly unknown[]) => Promise<void> | void,
): Promise<void> {
  if (!isProgram(url)) return;
  try {
    const own = command();
    const options = parseOptions<Options>(own, process.argv.slice(2));
    if (options !== undefined) await main(options, own.processedArgs);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    process.stderr.write(`error: ${error.message}\n${error.hint === undefined ? '' : `hint: ${error.hint}\n`}`);
    process.exitCode = 1;
  }
}
