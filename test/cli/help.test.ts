/** The help of every command: complete, at most 100 columns, with examples that can be pasted in this repository. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { FLAG_CHOICES } from '../../cli/completion.js';
import { TARGET_RECORDS } from '../../driver/targets/index.js';
import { runCli } from './fakeIo.js';

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
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
  'explore',
  'tasks',
  'doctor',
  'completion',
];

const helpOf = async (...command: string[]): Promise<string> => (await runCli([...command, '--help'])).stdout;

/** The commands in the lines below a title, without comments. */
function commandsIn(help: string): readonly (readonly string[])[] {
  return help
    .split('\n')
    .filter((line) => line.startsWith('  tilewright '))
    .flatMap((line) => line.replace(/ +#.*/, '').trim().split(' && '))
    .map((command) => command.split(/ +/));
}

describe.each(COMMANDS)('tilewright %s --help', (name) => {
  it('says what it is for and fits 100 columns', async () => {
    const help = await helpOf(name);
    expect(help).toMatch(/^Usage: tilewright [\w-]+ .*\n\n\S/);
    expect(help).not.toContain('default: []');
    expect(help).toContain(name === 'completion' ? 'To install it, once:' : 'Examples:');
    for (const line of help.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
  });

  it('has examples whose flags and files exist', async () => {
    const made = new Set<string>();
    for (const [program, command, ...words] of commandsIn(await helpOf(name))) {
      expect([program, COMMANDS.includes(command!)]).toEqual(['tilewright', true]);
      const flags = await helpOf(command!);
      for (const [i, word] of words.entries()) {
        // Underscores may take the place of dashes, as users of lm-evaluation-harness write them.
        const flag = word.replaceAll('_', '-');
        if (/^-[^\d]/.test(word)) expect(flags, word).toMatch(new RegExp(`^ +(-\\w, )?${flag}\\b`, 'm'));
        const isOutput = ['-o', '--out', '--database'].includes(words[i - 1] ?? '');
        if (isOutput) made.add(word);
        // Those of lm-evaluation-harness are not in this repository.
        else if (/\/|\.tw$/.test(word) && !/^\d+\/\d+$/.test(word) && !word.startsWith('lm_eval/'))
          expect(made.has(word.split('/')[0]!) || existsSync(join(ROOT, word)), word).toBe(true);
      }
    }
  });
});

describe('tilewright --help', () => {
  it('fits 100 columns', async () => {
    for (const line of (await helpOf()).split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
  });
});

it('every target can be completed', () => {
  expect(FLAG_CHOICES['--target']).toEqual(['auto', ...TARGET_RECORDS.flatMap(({ names }) => names)]);
});
