/** `tilewright report`: results as a page to look at. */
import type { Command } from 'commander';
import { VERSION } from '../driver/version.js';
import { bytes } from '../system/format.js';
import { addSections, EXIT_STATUSES } from './help.js';
import { isSet, text, type Flags } from './options.js';
import { printable } from './report.js';
import { printJson, type Context } from './work.js';

const DEFAULT_OUTPUT = 'report.html';

export function addReport(program: Command, context: Context): void {
  const command = program
    .command('report')
    .summary('results as a page to look at, in one HTML file')
    .description(
      'Writes one HTML file that shows the results of runs: accuracies with intervals, calibration, every question ' +
        'with its choices, and how runs differ. It opens from a disk and uses no network. ' +
        "Reads this program's results and those of lm-evaluation-harness.",
    )
    .argument('<folder...>', 'folders that runs had as --out; or their results_*.json or samples_*.jsonl')
    .option('-o, --output <file>', `the page (default: ${DEFAULT_OUTPUT})`)
    .option('--title <text>', "the page's title (default: the names of the runs)")
    .option('--json', 'print what was written as JSON and nothing else')
    .action(async (runs: readonly string[], _options: unknown, self: Command) => {
      const flags = self.opts<Flags>();
      const title = text(flags, 'title');
      const written = await context.commands.report({
        ...{ runs, writer: `tilewright ${VERSION}`, now: new Date() },
        output: text(flags, 'output') ?? DEFAULT_OUTPUT,
        ...(title === undefined ? {} : { title }),
      });
      if (isSet(flags, 'json')) return printJson(context.io, written);
      const { path, notes } = written;
      const lines = [...notes.map((note) => `note: ${note}`), `${path}: ${bytes(written.bytes)}; open it in a browser`];
      context.io.stdout.write(printable(`${lines.join('\n')}\n`));
    });
  addSections(command, {
    'Several runs': [
      'The first is what the others are measured by. Questions are the same where number and document',
      'are, or where the document is; the page says what only one run has. docs/report.md says more.',
    ],
    Examples: [
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out a',
      'tilewright report a -o a.html',
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out b --isa portable',
      'tilewright report a b -o both.html --title "Two instruction sets"',
    ],
    'Exit status': EXIT_STATUSES,
  });
}
