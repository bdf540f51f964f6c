/** The completion scripts for zsh and fish. */
import type { CommandModel, FlagModel, Value } from './completionModel.js';

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
