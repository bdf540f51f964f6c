/** `tilewright completion`: commands, flags, choices and files for shells, read off the commander program itself. */
import type { Command, Option } from 'commander';
import { PREFIXES } from '../commands/runRequest.js';
import { KV_CACHES, PRECISIONS, QUANTIZED, TARGET_CHOICES } from '../driver/precision.js';
import { FILE_TASKS } from '../evaluate/fileTasks.js';
import { SHARING_MODES } from '../evaluate/scorer.js';
import { CPU_ISAS } from '../ir/plan.js';
import { bashScript } from './completionBash.js';
import type { CommandModel, Value } from './completionModel.js';
import { fishScript, zshScript } from './completionOthers.js';
import { addSections } from './help.js';
import { choice } from './options.js';
import type { Context } from './work.js';

/** Flags whose values are a few words. A test checks that each is a flag of some command. */
export const FLAG_CHOICES: Readonly<Record<string, readonly string[]>> = {
  '--task': FILE_TASKS.map(({ name }) => name),
  '--sharing': SHARING_MODES,
  '--prefixes': PREFIXES,
  '--overlong': ['truncate', 'refuse'],
  '--target': TARGET_CHOICES,
  '--precision': PRECISIONS,
  '--quantize': QUANTIZED,
  '--kv-cache': KV_CACHES,
  '--isa': CPU_ISAS,
};

export const SHELLS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;
type Shell = keyof typeof SHELLS;
const SHELL_NAMES: readonly Shell[] = ['bash', 'zsh', 'fish'];

function valueOf(option: Option, tasks: readonly string[]): Value {
  if (!option.required && !option.optional) return { kind: 'none' };
  if (option.long === '--tasks') return { kind: 'list', choices: tasks };
  const choices = FLAG_CHOICES[option.long ?? ''];
  if (choices !== undefined) return { kind: 'choice', choices };
  if (/<file>/.test(option.flags)) return { kind: 'file' };
  return { kind: /<dir>/.test(option.flags) ? 'folder' : 'any' };
}

function argumentOf(command: Command, names: readonly string[], tasks: readonly string[]): Value {
  const [first] = command.registeredArguments;
  if (command.name() === 'tasks') return { kind: 'choice', choices: tasks };
  if (command.name() === 'completion') return { kind: 'choice', choices: SHELL_NAMES };
  if (command.name() === 'help') return { kind: 'choice', choices: names };
  return { kind: first === undefined ? 'none' : 'file' };
}

/** The commands of a program as shells need them; hidden flags stay hidden. `tasks`: the names that --tasks takes. */
function commandModels(program: Command, tasks: readonly string[]): readonly CommandModel[] {
  const help = program.createHelp();
  const visible = help.visibleCommands(program);
  const names = visible.map((command) => command.name());
  return visible.map((command) => ({
    name: command.name(),
    summary: command.summary() || command.description(),
    argument: argumentOf(command, names, tasks),
    flags: help.visibleOptions(command).flatMap((option) =>
      option.long === undefined || option.long === null
        ? []
        : [
            {
              long: option.long,
              short: option.short ?? undefined,
              // What fits a line of a menu: up to the first explanation.
              description: option.description.split(/[:;(]/)[0]!.trim(),
              value: valueOf(option, tasks),
            },
          ],
    ),
  }));
}

/** The built-in ones: those of task files are where a later --include-path says. */
async function taskNames(): Promise<readonly string[]> {
  const { listTasks } = await import('../commands/tasks.js');
  const { tasks, groups, tags } = listTasks([]);
  return [...new Set([...groups, ...tags, ...tasks])].filter((name) => /^[\w.-]+$/.test(name)).sort();
}

/** How each shell takes the script: the one line to install it. */
export const INSTALL = [
  "bash  echo 'source <(tilewright completion bash)' >> ~/.bashrc",
  "zsh   echo 'source <(tilewright completion zsh)' >> ~/.zshrc    (after compinit)",
  'fish  tilewright completion fish > ~/.config/fish/completions/tilewright.fish',
];

export function addCompletion(program: Command, context: Context): void {
  const command = program
    .command('completion')
    .summary('a script that completes commands, flags and values in your shell')
    .description('Prints a completion script. It is made from the commands themselves, so it knows every flag.')
    .argument('<shell>', SHELL_NAMES.join(', '))
    .action(async (given: string) => {
      const shell = choice('completion', given, SHELL_NAMES);
      context.io.stdout.write(SHELLS[shell](commandModels(program, await taskNames())));
    });
  addSections(command, { 'To install it, once': INSTALL });
}
