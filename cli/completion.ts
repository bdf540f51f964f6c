/** `tilewright completion`: commands, flags, choices and files for shells, read off the commander program itself. */
import type { Command, Option } from 'commander';
import { PREFIXES } from '../commands/runRequest.js';
import { KV_CACHES, PRECISIONS, QUANTIZED, TARGET_CHOICES } from '../driver/precision.js';
import { FILE_TASKS } from '../evaluate/fileTasks.js';
import { SHARING_MODES } from '../evaluate/scorer.js';
import { CPU_ISAS } from '../ir/plan.js';
import { addSections, choice } from './options.js';
import type { Context } from './work.js';

export type Value =
  | { readonly kind: 'none' | 'any' | 'file' | 'folder' }
  | { readonly kind: 'choice' | 'list'; readonly choices: readonly string[] };

export interface FlagModel {
  readonly long: string;
  readonly short: string | undefined;
  readonly description: string;
  readonly value: Value;
}

export interface CommandModel {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly FlagModel[];
  /** What stands beside flags: words of a few, or files and folders. */
  readonly argument: Value;
}

/** Words in single quotes, for `compgen -W`. None of ours holds a quote or a space. */
const words = (list: readonly string[]): string => `'${list.join(' ')}'`;

function propose(value: Value): string {
  switch (value.kind) {
    case 'none':
    case 'any':
      return ':';
    case 'choice':
      return `_tilewright_words ${words(value.choices)}`;
    case 'list':
      return `_tilewright_list ${words(value.choices)}`;
    case 'file':
      return '_tilewright_files -f';
    case 'folder':
      return '_tilewright_files -d';
    default:
      return value satisfies never;
  }
}

/** Flags with a value and what to propose for it. */
const valueCases = ({ flags }: CommandModel): string[] =>
  flags
    .filter(({ value }) => value.kind !== 'none')
    .map(
      ({ long, short, value }) =>
        `        ${short === undefined ? long : `${short}|${long}`}) ${propose(value)}; return ;;`,
    );

const commandCase = (command: CommandModel): string => {
  const flags = command.flags.flatMap(({ long, short }) => (short === undefined ? [long] : [short, long]));
  return [
    `    ${command.name})`,
    '      case $previous in',
    ...valueCases(command),
    '      esac',
    `      if [[ $current == -* ]]; then _tilewright_words ${words(flags)}; else ${propose(command.argument)}; fi ;;`,
  ].join('\n');
};

export const bashScript = (commands: readonly CommandModel[]): string => `# bash completion for tilewright
# bash breaks words at colons; what stands before the last one is on the line already.
_tilewright_words() {
  local before=
  [[ $current == *:* && $COMP_WORDBREAKS == *:* ]] && before=\${current%:*}:
  COMPREPLY=($(compgen -W "$1" -- "$current"))
  COMPREPLY=("\${COMPREPLY[@]#"$before"}")
}
# The last name of a list; another comma may follow.
_tilewright_list() {
  local before=
  [[ $current == *,* ]] && before=\${current%,*},
  compopt -o nospace 2>/dev/null
  COMPREPLY=($(compgen -P "$before" -W "$1" -- "\${current##*,}"))
}
_tilewright_files() {
  compopt -o filenames 2>/dev/null
  local IFS=$'\\n'
  COMPREPLY=($(compgen "$1" -- "$current"))
}
_tilewright() {
  local line=\${COMP_LINE:0:COMP_POINT}
  local -a typed
  read -ra typed <<< "$line"
  [[ $line == *[[:space:]] ]] && typed+=('')
  local current=\${typed[\${#typed[@]}-1]} previous=
  COMPREPLY=()
  if ((\${#typed[@]} <= 2)); then
    _tilewright_words ${words([...commands.map(({ name }) => name), '--help', '--version'])}
    return
  fi
  previous=\${typed[\${#typed[@]}-2]}
  case \${typed[1]} in
${commands.map(commandCase).join('\n')}
  esac
}
complete -F _tilewright tilewright
`;

/** Inside single quotes of a shell. */
const quoted = (text: string): string => text.replaceAll("'", `'\\''`);
/** zsh's _arguments ends descriptions at `]` and parts at `:`. */
const inZsh = (text: string): string => quoted(text.replace(/[[\]:\\]/g, '\\$&'));

function zshAction(value: Value): string {
  switch (value.kind) {
    case 'none':
      return '';
    case 'any':
      return ':value: ';
    case 'choice':
      return `:value:(${value.choices.map(inZsh).join(' ')})`;
    case 'list':
      return `:names:{_tilewright_list ${value.choices.map(inZsh).join(' ')}}`;
    case 'file':
      return ':file:_files';
    case 'folder':
      return ':folder:_files -/';
    default:
      return value satisfies never;
  }
}

const zshFlag = ({ long, short, description, value }: FlagModel): string =>
  (short === undefined ? [long] : [short, long])
    .map((flag) => `      '${flag}[${inZsh(description)}]${zshAction(value)}'`)
    .join(' \\\n');

const zshCommand = ({ name, flags, argument }: CommandModel): string => {
  const rest = argument.kind === 'none' ? [] : [`      '*${zshAction(argument)}'`];
  return `    ${name}) _arguments \\\n${[...flags.map(zshFlag), ...rest].join(' \\\n')} ;;`;
};

export const zshScript = (commands: readonly CommandModel[]): string => `#compdef tilewright
# The last name of a list; another comma may follow.
_tilewright_list() {
  compset -P '*,'
  compadd -qS , -- "$@"
}
_tilewright() {
  local -a commands=(
${commands.map(({ name, summary }) => `    '${name}:${inZsh(summary)}'`).join('\n')}
  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local command=\${words[2]}
  shift words
  ((CURRENT--))
  case $command in
${commands.map(zshCommand).join('\n')}
  esac
}
compdef _tilewright tilewright
`;

function fishAction(value: Value): string {
  switch (value.kind) {
    case 'none':
      return '';
    case 'any':
      return ' -x';
    case 'choice':
      return ` -x -a '${quoted(value.choices.join(' '))}'`;
    case 'list':
      return ` -x -a '(__tilewright_list ${quoted(value.choices.join(' '))})'`;
    case 'file':
      return ' -r -F';
    case 'folder':
      return " -x -a '(__fish_complete_directories)'";
    default:
      return value satisfies never;
  }
}

const fishCommand = ({ name, summary, flags, argument }: CommandModel): string => {
  const when = `-n '__fish_seen_subcommand_from ${name}'`;
  return [
    `complete -c tilewright -n __fish_use_subcommand -f -a ${name} -d '${quoted(summary)}'`,
    ...(argument.kind === 'choice'
      ? [`complete -c tilewright ${when} -f -a '${quoted(argument.choices.join(' '))}'`]
      : argument.kind === 'none'
        ? [`complete -c tilewright ${when} -f`]
        : []),
    ...flags.map(({ long, short, description, value }) => {
      const names = `-l ${long.slice(2)}${short === undefined ? '' : ` -s ${short.slice(1)}`}`;
      return `complete -c tilewright ${when} ${names}${fishAction(value)} -d '${quoted(description)}'`;
    }),
  ].join('\n');
};

export const fishScript = (commands: readonly CommandModel[]): string =>
  `# fish completion for tilewright
# The names of a list behind those that are typed already.
function __tilewright_list
  set -l typed (commandline -ct | string replace -r '^--[a-z-]+=' '' | string replace -r '[^,]*$' '')
  printf '%s\\n' "$typed"$argv
end
${commands.map(fishCommand).join('\n')}
`;

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
  const choices = option.argChoices ?? FLAG_CHOICES[option.long ?? ''];
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

/** What may follow a flag; `none`: it takes no value; `list`: some of the choices, with commas between them. */
