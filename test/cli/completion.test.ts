import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FLAG_CHOICES } from '../../cli/completion.js';
import { TASKS } from '../../eval/tasks/index.js';
import { runCli } from './fakeIo.js';

const script = async (shell: string): Promise<string> => (await runCli(['completion', shell])).stdout;
const COMMANDS = ['run', 'compile', 'tune', 'merge', 'inspect', 'doctor', 'completion', 'help'];

let folder = '';
let bash = '';
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-completion-'));
  mkdirSync(join(folder, 'some folder'));
  writeFileSync(join(folder, 'some data.jsonl'), '');
  bash = await script('bash');
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** What bash would propose for a line with the cursor at its end, from its own function in a process of its own. */
function proposed(line: string): string[] {
  const program = [
    bash,
    // As readline sets them: words are broken at spaces and, in bash, at colons too.
    "COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'",
    '_tilewright',
    'printf \'%s\\n\' "${COMPREPLY[@]}"',
  ].join('\n');
  const { stdout, stderr, status } = spawnSync('bash', ['--norc', '-c', program, 'bash', line], {
    cwd: folder,
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
  return stdout.split('\n').filter((word) => word !== '');
}

describe('completion in bash', () => {
  it('proposes commands', () => {
    expect(proposed('tilewright ')).toEqual([...COMMANDS, '--help', '--version']);
    expect(proposed('tilewright co')).toEqual(['compile', 'completion']);
  });

  it('proposes the flags of the command', () => {
    expect(proposed('tilewright run m --sh')).toEqual(['--sharing', '--shard']);
    expect(proposed('tilewright tune m --sh')).toEqual([]);
    expect(proposed('tilewright run --mas')).toEqual([]);
  });

  it('proposes the values of a flag', () => {
    expect(proposed('tilewright run m --task ')).toEqual(TASKS.map(({ name }) => name));
    expect(proposed('tilewright compile m --isa avx')).toEqual(['avx2', 'avx512']);
    expect(proposed('tilewright completion ')).toEqual(['bash', 'zsh', 'fish']);
    expect(proposed('tilewright help in')).toEqual(['inspect']);
  });

  it('continues after a colon, where bash breaks words', () => {
    expect(proposed('tilewright run m --target cu')).toEqual(['cuda', 'cuda:sm_80', 'cuda:sm_90a']);
    expect(proposed('tilewright run m --target cuda:sm_9')).toEqual(['sm_90a']);
  });

  it('proposes files or folders where a flag or the command takes one', () => {
    expect(proposed('tilewright run m --data ').sort()).toEqual(['some data.jsonl', 'some folder']);
    expect(proposed('tilewright run m --out ')).toEqual(['some folder']);
    expect(proposed('tilewright inspect so').sort()).toEqual(['some data.jsonl', 'some folder']);
    expect(proposed('tilewright run m --threads ')).toEqual([]);
  });
});

describe('completion', () => {
  it('knows every command and every visible flag, in every shell', async () => {
    const scripts = { bash, zsh: await script('zsh'), fish: await script('fish') };
    for (const command of COMMANDS.filter((name) => name !== 'help')) {
      const { stdout } = await runCli([command, '--help']);
      const flags = [...stdout.matchAll(/^ {2}(?:-\w, )?--([a-z-]+)/gm)].map(([, flag = '']) => flag);
      expect(flags).toContain('help');
      for (const flag of flags) {
        expect(scripts.bash).toMatch(new RegExp(`[' ]--${flag}[' ]`));
        expect(scripts.zsh).toContain(`'--${flag}[`);
        expect(scripts.fish).toMatch(new RegExp(`seen_subcommand_from ${command}' -l ${flag}\\b`));
      }
    }
  });

  it('proposes no value for a flag that does not exist', async () => {
    const help = (await Promise.all(COMMANDS.map(async (name) => (await runCli(['help', name])).stdout))).join('\n');
    for (const flag of Object.keys(FLAG_CHOICES)) expect(help).toContain(`${flag} <`);
  });

  it('says how to install it, and which shells it supports', async () => {
    for (const line of [['--help'], ['completion', '--help']])
      expect((await runCli(line)).stdout).toContain('source <(tilewright completion bash)');
    const wrong = await runCli(['completion', 'fisch']);
    expect([wrong.status, wrong.stderr]).toEqual([
      2,
      'error: completion fisch: expected bash, zsh or fish\nhint: did you mean completion fish?\n',
    ]);
  });

  it.skipIf(spawnSync('zsh', ['--version']).status !== 0)('is a script that zsh parses', async () => {
    expect(spawnSync('zsh', ['-n'], { input: await script('zsh'), encoding: 'utf8' })).toMatchObject({ stderr: '' });
  });
});
