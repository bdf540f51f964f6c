/** `tilewright compare`: how the answers of two runs differ. */
import type { Command } from 'commander';
import { addSections, EXIT_STATUSES } from './options.js';
import { isSet, type Flags } from './options.js';
import { printText } from './print.js';
import { printJson, type Context } from './work.js';

export function addCompare(program: Command, context: Context): void {
  const command = program
    .command('compare')
    .summary('how the answers of two runs differ, and whether that is chance')
    .description(
      'Compares two runs question by question: metrics with the interval and a paired test of their difference, ' +
        'log-likelihoods, choices, texts. Differences are B less A, so that A is what B is measured by. ' +
        "Reads this program's results and those of lm-evaluation-harness.",
    )
    .argument('<A>', 'folder that a run had as --out; or one of its results_*.json or samples_*.jsonl')
    .argument('<B>', 'the same of another run')
    .option('--json', 'print the comparison as JSON and nothing else, with every question that changed')
    .action(async (a: string, b: string, _options: unknown, self: Command) => {
      const { compare } = await import('../commands/compare.js');
      const comparison = compare(a, b);
      if (isSet(self.opts<Flags>(), 'json')) printJson(context.io, comparison);
      else printText(context.io, (await import('./compareText.js')).comparisonText(comparison));
    });
  addSections(command, {
    'Which questions': [
      'Questions are the same where number and document are, or where the document is. What only one',
      'run has is named and left out, so that a run of a part (--limit, --docs) can be compared with one',
      'of the whole. Figures are those of the common questions; of all, they are those of results_*.json.',
      'Of several results in a folder the newest of each task is taken.',
    ],
    'How to read it': [
      '95 %         where the difference lies that more questions of this kind would show',
      'p            how often chance alone would make a difference as large, if there were none; below',
      '             0.05 it is taken for a difference. Of many tasks one in twenty passes by chance: the',
      "             last line allows for that (Holm's rule)",
      'exact McNemar  where a question is right or wrong: only those count that changed',
      'sign flips   where it has a number: differences with signs drawn again, seeded',
      'swaps        where the figure is no mean (F1, perplexity): answers swapped between A and B, seeded',
      'lead         by how much the most likely choice exceeds the next, in nats; a choice changes where',
      '             log-likelihoods moved by more than its lead',
      'Groups are pooled as the harness pools them. docs/compare.md says more.',
    ],
    Examples: [
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out a',
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out b --isa portable',
      'tilewright compare a b',
      'tilewright compare a b --json',
    ],
    'Exit status': EXIT_STATUSES,
  });
}
