/** `tilewright doctor`: what this machine has and lacks. */
import type { Command } from 'commander';
import type { Check } from '../commands/doctor.js';
import { textTable } from '../system/text.js';
import { type Style, styleFor } from './io.js';
import { addSections, type Flags, isSet } from './options.js';
import { type Context, printJson } from './work.js';

export function addDoctor(program: Command, context: Context): void {
  const command = program
    .command('doctor')
    .summary('check this machine: what is here, what is missing, how to fix it')
    .description('Checks everything that compiling and running need and prints a command for whatever is missing.')
    .option('--json', 'print the checks as JSON and nothing else')
    .action(async (_options: unknown, self: Command) => {
      await doctor(context, self.opts<Flags>());
    });
  addSections(command, {
    Examples: ['tilewright doctor', 'tilewright doctor --json'],
    'Exit status': ['0  nothing that is needed is missing', '1  something is; its line says how to get it'],
  });
}

async function doctor(context: Context, flags: Flags): Promise<void> {
  const story = await import('../commands/doctor.js');
  const checks = await story.doctor();
  const isHealthy = checks.every(({ status }) => status !== 'missing');
  if (isSet(flags, 'json')) printJson(context.io, { isHealthy, checks });
  else context.io.stdout.write(describe(checks, styleFor(context.io, 'stdout')));
  if (!isHealthy) context.fail();
}

const COLOURS = { ok: 'green', note: 'yellow', missing: 'red' } as const;

function describe(checks: readonly Check[], style: Style): string {
  const table = textTable(checks.map(({ status, name, detail }) => [status, name, detail.split('\n')[0] ?? '']));
  const missing = checks.filter(({ status }) => status === 'missing');
  const lines = checks.flatMap(({ status, fix }, i) => [
    style[COLOURS[status]](status) + table[i]!.slice(status.length),
    ...(fix === undefined ? [] : [`         → ${fix}`]),
  ]);
  const verdict =
    missing.length === 0
      ? 'Everything that is needed is here.'
      : `Missing: ${missing.map(({ name }) => name).join(', ')}.`;
  return `${[...lines, '', verdict].join('\n')}\n`;
}
