/** `tilewright tasks`: names of tasks, groups and tags. */
import type { Command } from 'commander';
import { counted, textTable } from '../system/text.js';
import { addSections, EXIT_STATUSES, type Flags, isSet } from './options.js';
import { noteLine, printText } from './print.js';
import { addTaskSources, taskFolders } from './taskFlags.js';
import { type Context, printJson } from './work.js';

export function addTasks(program: Command, context: Context): void {
  const command = addTaskSources(
    program
      .command('tasks')
      .summary('list the tasks, groups and tags that run --tasks knows')
      .description(
        'Lists the names that run --tasks takes: those that are built in, and those of folders of task files.',
      )
      .argument('[word]', 'only names with this in them'),
  )
    .option('--json', 'print the names as JSON and nothing else')
    .action(async (word: string | undefined, _options: unknown, self: Command) => {
      await list(context, word ?? '', self.opts<Flags>());
    });
  addSections(command, {
    Examples: ['tilewright tasks --include_path lm_eval/tasks', 'tilewright tasks mmlu --include_path lm_eval/tasks'],
    'Exit status': EXIT_STATUSES,
  });
}

async function list({ io }: Context, word: string, flags: Flags): Promise<void> {
  const { listTasks } = await import('../commands/tasks.js');
  const { tasks, groups, tags, unreadable } = listTasks(taskFolders(flags));
  const chosen = (names: readonly string[]): string[] => names.filter((name) => name.includes(word));
  const found = { groups: chosen(groups), tags: chosen(tags), tasks: chosen(tasks) };
  if (isSet(flags, 'json')) return printJson(io, { ...found, unreadable });
  const rows = Object.entries(found).flatMap(([kind, names]) => names.map((name) => [kind.slice(0, -1), name]));
  printText(io, `${[...textTable(rows), counted(rows.length, 'name')].join('\n')}\n`);
  if (rows.length === 0)
    io.stderr.write(
      'note: tasks that are not built in are files of lm-evaluation-harness: --include_path lm_eval/tasks lists them\n',
    );
  for (const problem of unreadable) io.stderr.write(`${noteLine(`not readable: ${problem}`)}\n`);
}
