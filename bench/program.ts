/** A benchmark as a program: its help, its options, and errors in words. */
import { UserError } from '../errors.js';

/** Prints the error of a user's mistake and lets the program fail; throws every other error. */
function fail(error: unknown): void {
  if (!(error instanceof UserError)) throw error;
  process.stderr.write(`error: ${error.message}\n${error.hint === undefined ? '' : `hint: ${error.hint}\n`}`);
  process.exitCode = 1;
}

/** Runs `main` with the options of the command line, or prints `usage` where `parse` finds that help was asked for. */
export async function runProgram<Options>(
  usage: string,
  parse: (args: readonly string[]) => Options | undefined,
  main: (options: Options) => Promise<void>,
): Promise<void> {
  try {
    const options = parse(process.argv.slice(2));
    if (options === undefined) console.log(usage);
    else await main(options);
  } catch (error) {
    fail(error);
  }
}
