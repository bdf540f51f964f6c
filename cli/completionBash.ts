/** The completion script for bash. */
import type { CommandModel, Value } from './completionModel.js';

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
