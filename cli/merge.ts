/** `tilewright merge`: the results of shards as those of one run. */
import type { Command } from 'commander';
import { defined } from '../system/defined.js';
import { isArtifact } from '../driver/names.js';
import { UsageError } from '../errors.js';
import { FILE_TASKS } from '../evaluate/fileTasks.js';
import type { MergeRequest } from '../evaluate/merge.js';
import { formatTable } from '../evaluate/table.js';
import { counted } from '../system/text.js';
import { addSections, choice, EXIT_STATUSES, type Flags, isSet, required, text } from './options.js';
import { printText } from './print.js';
import { type Context, printJson } from './work.js';

export function addMerge(program: Command, context: Context): void {
  const command = program
    .command('merge')
    .summary('results of shards → results of one run')
    .description(
      'Joins what runs with --shard wrote into the results that one run over all questions would have written: ' +
        'samples the same to the byte, figures the same but for times.',
    )
    .argument(
      '<folders...>',
      "folders that the shards had with --out; or of one model in them, or single shards' (shard-3-of-8)",
    )
    .option('--out <dir>', 'folder for results_*.json and samples_*.jsonl')
    .option('--task <name>', 'which task, where the shards scored several')
    .option('--json', 'print the results as JSON and nothing else')
    .action(async (folders: string[], _options: unknown, self: Command) => {
      await merge(context, folders, self.opts<Flags>());
    });
  addSections(command, {
    'What is refused': [
      'a shard or a question that is missing or there twice; shards of different artifacts,',
      'tokenizers, arithmetic, instruction sets, sharing modes, data sets, questions or versions;',
      'samples that are not, to the byte, those their results were made of, or whose accuracies are not',
      'what their log-likelihoods say. The error names the command to type.',
      'Shards that are still running have no results yet: wait for them.',
    ],
    Times: ["seconds are the slowest shard's, as if all had run at the same time; counts are sums."],
    Examples: [
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out parts --shard 1/2',
      'tilewright run models/demo --task hellaswag --data examples/everyday.jsonl --out parts --shard 2/2',
      'tilewright merge parts --out results',
      'tilewright merge parts/demo/shard-*-of-2 --out results',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

async function merge(context: Context, folders: readonly string[], flags: Flags): Promise<void> {
  const { io } = context;
  const output = required(flags, 'out', '--out', 'tilewright merge shards --out results');
  const task = text(flags, 'task');
  if (isArtifact(output))
    throw new UsageError(
      `--out ${output}: the results would go into an artifact, and be lost when it is compiled again`,
      'give another folder, for example: --out results',
    );
  const request: MergeRequest = {
    folders,
    output,
    ...defined({
      task:
        task === undefined
          ? undefined
          : choice(
              '--task',
              task,
              FILE_TASKS.map(({ name }) => name),
            ),
    }),
  };
  const { mergeShards } = await import('../evaluate/merge.js');
  const { results, resultsPath, samplesPath, shards, questions } = mergeShards(request);
  if (isSet(flags, 'json')) printJson(io, results);
  else
    printText(
      io,
      `${formatTable(results)}\n` +
        `${counted(questions, 'question')} of ${counted(shards, 'shard')}\n` +
        `results: ${resultsPath}\nsamples: ${samplesPath}\n`,
    );
}
