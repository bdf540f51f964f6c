/** How an error reaches the user: `error:` and `hint:` lines, never a stack unless asked for. */
import { UserError } from '../errors.js';
import { type Io, type Style, styleFor, styleOf } from './io.js';

/** Text from files and models may be shown; it must not steer the terminal. Line ends and tabs stay. */
export const printable = (text: string): string => text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, '\u00b7');

/** Text of a command on the standard output, which names files, tasks and models. */
export const printText = (io: Pick<Io, 'stdout'>, text: string): void => {
  io.stdout.write(printable(text));
};

const isSystemError = (error: Error): boolean => 'syscall' in error && 'code' in error;

const indent = (text: string): string => text.trimEnd().replaceAll('\n', '\n  ');

/** A line of its own, such as a note: a name with line ends cannot look like another one. */
export const printableLine = (text: string): string => printable(indent(text));

/** What a user should know, whatever names and texts of files are in it. */
export const noteLine = (note: string): string => printableLine(`note: ${note}`);

/** `error: …` and, where there is something to do, `hint: …`. */
export function errorLines(error: unknown, isDebug: boolean): string {
  if (error instanceof UserError)
    return printable(
      `error: ${indent(error.message)}\n${error.hint === undefined ? '' : `hint: ${indent(error.hint)}\n`}`,
    );
  const { message, stack } = error instanceof Error ? error : { message: String(error), stack: undefined };
  const trace = isDebug && stack !== undefined ? `${stack}\n` : '';
  if (error instanceof Error && isSystemError(error)) return printable(`error: ${message}\n${trace}`);
  const more = isDebug
    ? 'please report it with the lines below'
    : 'run it again with TILEWRIGHT_DEBUG=1 and report what it prints';
  return printable(`error: unexpected: ${indent(message)}\nhint: this is a bug in tilewright; ${more}\n${trace}`);
}

/** The first words of lines that report something, and their colours. */
const LABELS = { error: 'red', warning: 'yellow', hint: 'cyan', stopped: 'yellow' } as const;

/** `error: …`, with its first word painted. */
export function label(word: keyof typeof LABELS, style: Style): string {
  return style.bold(style[LABELS[word]](`${word}:`));
}

/** `isPlain`: without colours, whatever the terminal (--json). */
export const printError = (io: Io, error: unknown, isPlain = false): void => {
  const style = isPlain ? styleOf(false) : styleFor(io, 'stderr');
  io.stderr.write(
    errorLines(error, io.isDebug).replace(/^(error|hint):/gm, (_, word: 'error' | 'hint') => label(word, style)),
  );
};
