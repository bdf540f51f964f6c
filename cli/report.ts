/** `tilewright report`: results as a page to look at. */
import type { Command } from 'commander';
import { VERSION } from '../driver/program.js';
import { UsageError } from '../errors.js';
import { defined } from '../system/defined.js';
import { bytes } from '../system/text.js';
import { addSections, EXIT_STATUSES, type Flags, isSet, text } from './options.js';
import { noteLine, printText } from './print.js';
import { type Context, printJson } from './work.js';

const DEFAULT_OUTPUT = 'report.html';

/** Values of a flag that may be repeated. */
const listed = (value: string, before: readonly string[] | undefined): readonly string[] => [...(before ?? []), value];
const listOf = (flags: Flags, name: string): readonly string[] => {
  const value: unknown = flags[name];
  return Array.isArray(value) ? (value as readonly string[]) : [];
};

export function addReport(program: Command, context: Context): void {
  const command = program
    .command('report')
    .summary('results as a page to look at, in one HTML file')
    .description(
      'Writes one HTML file that shows the results of runs: accuracies with intervals, calibration, every question ' +
        'with its choices, and how runs differ. It opens from a disk and uses no network. ' +
        "Reads this program's results and those of lm-evaluation-harness.",
    )
    .usage('[options] <folder...>')
    .argument('[folder...]', 'folders that runs had as --out; or their results_*.json or samples_*.jsonl')
    .option('-o, --output <file>', `the page (default: ${DEFAULT_OUTPUT})`)
    .option('--trace <file>', 'a file of run --trace, shown as Machine; repeat it for several', listed)
    .option(
      '--tuning <file>',
      'measurements of tune --database, or of bench:gpu --json, shown as Tuning; repeat it for several',
      listed,
    )
    .option('--title <text>', "the page's title (default: the names of the runs)")
    .option('--json', 'print what was written as JSON and nothing else')
    .action(async (runs: readonly string[], _options: unknown, self: Command) => {
      const flags = self.opts<Flags>();
      const title = text(flags, 'title');
      const [traces, tuning] = [listOf(flags, 'trace'), listOf(flags, 'tuning')];
      if (runs.length + traces.length + tuning.length === 0)
        throw new UsageError('there is nothing to report', 'name the folder of a run: tilewright report results');
      const story = await import('../commands/report.js');
      const written = story.report({
        runs,
        traces,
        tuning,
        writer: `tilewright ${VERSION}`,
        now: new Date(),
        output: text(flags, 'output') ?? DEFAULT_OUTPUT,
        ...defined({ title }),
      });
      if (isSet(flags, 'json')) return printJson(context.io, written);
      const { path, notes } = written;
      const lines = [...notes.map(noteLine), `${path}: ${bytes(written.bytes)}; open it in a browser`];
      printText(context.io, `${lines.join('\n')}\n`);
    });
  addSections(command, {
    'Several runs': [
      'The first is what the others are measured by. Questions are the same where number and document',
      'are, or where the document is; the page says what only one run has. docs/report.md says more.',
    ],
    'Machine and Tuning': [
      'Traces and tuning records that lie in a given folder are shown by themselves, by these names:',
      'trace.json, *.trace.json, tuning.jsonl, *.tuning.jsonl, bench.json. --trace and --tuning name',
      'other files, or folders of such; results are not needed then.',
    ],
    Examples: [
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out a',
      'tilewright report a -o a.html',
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out b --isa portable',
      'tilewright report a b -o both.html --title "Two instruction sets"',
      'tilewright report --trace trace.json --tuning tuning.jsonl -o machine.html',
    ],
    'Exit status': EXIT_STATUSES,
  });
}
