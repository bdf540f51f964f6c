import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FLAG_CHOICES } from '../../cli/completion.js';
import { FILE_TASKS } from '../../evaluate/fileTasks.js';
import { runCli } from './fakeIo.js';

const NAMES = ['arc_easy', 'hellaswag', 'mmlu', 'mmlu_anatomy', 'piqa'];
const script = async (shell: string): Promise<string> => {
  const listTasks = () => ({ tasks: NAMES, groups: ['mmlu'], tags: [], unreadable: [] });
  return (await runCli(['completion', shell], { listTasks })).stdout;
};
const COMMANDS = [
  'run',
  'generate',
  'reward',
  'search',
  'serve',
  'route',
  'compile',
  'tune',
  'merge',
  'compare',
  'verify',
  'report',
  'quantize',
  'merge-adapter',
  'inspect',
  'tasks',
  'doctor',
  'explore',
  'completion',
  'help',
];

let folder = '';
const scripts = { bash: '', zsh: '', fish: '' };
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-completion-'));
  mkdirSync(join(folder, 'work', 'some folder'), { recursive: true });
  writeFileSync(join(folder, 'work', 'some data.jsonl'), '');
  for (const shell of ['bash', 'zsh', 'fish'] as const) {
    scripts[shell] = await script(shell);
    writeFileSync(join(folder, `tilewright.${shell}`), scripts[shell]);
  }
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
const lines = ({ status, stdout, stderr }: Ended): string[] => {
  expect([status, stderr]).toEqual([0, '']);
  return [...new Set(stdout.split('\n').filter((word) => word !== ''))].sort();
};

/** What bash proposes for a line with the cursor at its end: its own function, in a bash of its own. */
function inBash(line: string): string[] {
  const program = [
    scripts.bash,
    // As readline sets them: words are broken at spaces and, in bash, at colons too.
    "COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'",
    '_tilewright',
    'printf \'%s\\n\' "${COMPREPLY[@]}"',
  ].join('\n');
  return lines(
    spawnSync('bash', ['--norc', '-c', program, 'bash', line], { cwd: join(folder, 'work'), encoding: 'utf8' }),
  );
}

/** An interactive zsh on a terminal of its own, in which Tab is pressed; what it adds to the list is written down. */
const ZSH = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT= RPROMPT=; stty -echo; cd $4"
zpty -w shell 'unsetopt zle_bracketed_paste prompt_cr prompt_sp; autoload -Uz compinit; compinit -u -D; source '$1
zpty -w shell 'compadd() { local -a found; builtin compadd -A found "$@"; '\\
'print -rl -- $found >> '$3'; builtin compadd "$@" }'
zpty -w shell 'finish() { print END >> '$3'; exit }; zle -N finish; '\\
'bindkey "^Xq" finish; bindkey "^I" complete-word; print READY'
zpty -r -m shell out '*READY*'
zpty -n -w shell "$2"$'\\t\\C-xq'
until [[ -f $3 ]] && grep -q '^END$' $3; do sleep 0.1; done
grep -v '^END$' $3 || true
zpty -d shell
`;

let calls = 0;
function inZsh(line: string): string[] {
  const [source, answer] = [join(folder, 'tilewright.zsh'), join(folder, `answer${calls++}`)];
  const ended = spawnSync('zsh', ['-f', '-c', ZSH, 'zsh', source, line, answer, join(folder, 'work')], {
    encoding: 'utf8',
    timeout: 240_000,
  });
  return lines(ended).map((word) => word.replaceAll('\\', ''));
}

/** fish says itself what it would propose, each with its description behind a tab. */
function inFish(line: string): string[] {
  const program = `source ${join(folder, 'tilewright.fish')}; complete -C '${line}'`;
  const ended = spawnSync('fish', ['--no-config', '-c', program], { cwd: join(folder, 'work'), encoding: 'utf8' });
  return lines(ended)
    .map((word) => word.split('\t')[0]!.replace(/\/$/, ''))
    .sort();
}

const SHELLS = { bash: inBash, zsh: inZsh, fish: inFish };
const isHere = (shell: string): boolean => spawnSync(shell, ['--version']).status === 0;
for (const shell of Object.keys(SHELLS).filter((name) => !isHere(name)))
  process.stderr.write(`SKIPPED: completion in ${shell}: it is not here; apt-get install ${shell}\n`);

describe.each(['bash', 'zsh', 'fish'] as const)('completion in %s', (shell) => {
  const test = it.skipIf(!isHere(shell));
  const proposed = SHELLS[shell];
  const FILES = ['some data.jsonl', 'some folder'];

  test('proposes commands', () => {
    const general = shell === 'bash' ? ['--help', '--version'] : [];
    expect(proposed('tilewright ')).toEqual([...general, ...COMMANDS].sort());
    expect(proposed('tilewright co')).toEqual(['compare', 'compile', 'completion']);
  });

  test('proposes the flags of the command', () => {
    expect(proposed('tilewright run m --sh')).toEqual(['--shard', '--sharing']);
    expect(proposed('tilewright tune m --sh')).toEqual([]);
    expect(proposed('tilewright run --mas')).toEqual(['--mask']);
  });

  test('proposes the values of a flag', () => {
    expect(proposed('tilewright run m --task ')).toEqual(FILE_TASKS.map(({ name }) => name).sort());
    expect(proposed('tilewright compile m --isa avx')).toEqual(['avx2', 'avx512']);
    expect(proposed('tilewright completion ')).toEqual(['bash', 'fish', 'zsh']);
    expect(proposed('tilewright help in')).toEqual(['inspect']);
  });

  test('proposes tasks, and the last one of a list', () => {
    expect(proposed('tilewright run m --tasks ')).toEqual(NAMES);
    expect(proposed('tilewright run m --tasks mm')).toEqual(['mmlu', 'mmlu_anatomy']);
    // bash and fish propose the whole word.
    const before = shell === 'zsh' ? '' : 'piqa,arc_easy,';
    expect(proposed('tilewright run m --tasks piqa,arc_easy,h')).toEqual([`${before}hellaswag`]);
    expect(proposed('tilewright run m --tasks piqa,arc_easy,x')).toEqual([]);
    expect(proposed('tilewright tasks mm')).toEqual(['mmlu', 'mmlu_anatomy']);
  });

  test('continues after a colon, where bash breaks words', () => {
    expect(proposed('tilewright run m --target cu')).toEqual(['cuda', 'cuda:sm_80', 'cuda:sm_90a']);
    expect(proposed('tilewright run m --target cuda:sm_9')).toEqual([shell === 'bash' ? 'sm_90a' : 'cuda:sm_90a']);
  });

  test('proposes files or folders where a flag or the command takes one', () => {
    expect(proposed('tilewright run m --data ')).toEqual(FILES);
    expect(proposed('tilewright run m --out ')).toEqual(['some folder']);
    expect(proposed('tilewright inspect so')).toEqual(FILES);
    expect(proposed('tilewright run m --threads ')).toEqual([]);
    // No file in any shell; zsh goes straight to the flags.
    expect(proposed('tilewright doctor ').filter((word) => !word.startsWith('-'))).toEqual([]);
  });
});

describe('completion', () => {
  it('knows every command and every visible flag, in every shell', async () => {
    for (const command of COMMANDS.filter((name) => name !== 'help')) {
      const { stdout } = await runCli([command, '--help']);
      const flags = [...stdout.matchAll(/^ {2}(?:-\w, )?--([a-z-]+) /gm)].map(([, flag = '']) => flag);
      expect(flags).toContain('help');
      for (const flag of flags) {
        expect(scripts.bash).toMatch(new RegExp(`[' ]--${flag}[' ]`));
        expect(scripts.zsh).toContain(`'--${flag}[`);
        expect(scripts.fish).toMatch(new RegExp(`seen_subcommand_from ${command}' -l ${flag}\\b`));
      }
    }
  });

  it('proposes no value for a flag that is not there', async () => {
    const help = (await Promise.all(COMMANDS.map(async (name) => (await runCli(['help', name])).stdout))).join('\n');
    for (const flag of Object.keys(FLAG_CHOICES)) expect(help).toContain(`${flag} <`);
  });

  it('says how to install it, and which shells there are', async () => {
    for (const line of [['--help'], ['completion', '--help']])
      expect((await runCli(line)).stdout).toContain('source <(tilewright completion bash)');
    const wrong = await runCli(['completion', 'fisch']);
    expect([wrong.status, wrong.stderr]).toEqual([
      2,
      'error: completion fisch: expected bash, zsh or fish\nhint: did you mean completion fish?\n',
    ]);
  });
});
