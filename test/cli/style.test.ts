import { describe, expect, it } from 'vitest';
import type { Io } from '../../cli/io.js';
import { readSettings } from '../../settings.js';
import { UserError } from '../../errors.js';
import { fakeIo, runCli, type FakeIo } from './fakeIo.js';

const ESCAPE = '\x1b[';

/** What the environment says, as settings.ts reads it. */
const colourOf = (environment: Record<string, string>): Io['colour'] => readSettings(environment);

const terminal = (environment: Record<string, string>): FakeIo =>
  fakeIo({ isTTY: true, colour: colourOf({ TERM: 'xterm', ...environment }) });
const pipe = (environment: Record<string, string>): FakeIo => fakeIo({ colour: colourOf(environment) });

/** Whether anything that a failing run prints is coloured. */
async function paints(io: FakeIo, ...flags: string[]): Promise<boolean> {
  const { stdout, stderr } = await runCli(
    ['run', 'm', '--task', 'hellaswag', '--data', 'd', ...flags],
    { run: () => Promise.reject(new UserError('wrong', 'do this')) },
    io,
  );
  expect(stderr).toMatch(/error:.*wrong/);
  return `${stdout}${stderr}`.includes(`${ESCAPE}31m`);
}

describe('colours', () => {
  it('are for terminals, not for pipes', async () => {
    expect(await paints(terminal({}))).toBe(true);
    expect(await paints(pipe({}))).toBe(false);
  });

  it('are switched off by a NO_COLOR that is not empty, and by a dumb terminal', async () => {
    expect(await paints(terminal({ NO_COLOR: '1' }))).toBe(false);
    expect(await paints(terminal({ NO_COLOR: '' }))).toBe(true);
    expect(await paints(terminal({ TERM: 'dumb' }))).toBe(false);
  });

  it('are switched on and off by FORCE_COLOR', async () => {
    expect(await paints(pipe({ FORCE_COLOR: '1' }))).toBe(true);
    expect(await paints(terminal({ FORCE_COLOR: '0' }))).toBe(false);
    expect(await paints(terminal({ FORCE_COLOR: '1', NO_COLOR: '1' }))).toBe(true);
  });

  it('never go with --json', async () => {
    expect(await paints(terminal({}), '--json')).toBe(false);
    expect(await paints(pipe({ FORCE_COLOR: '1' }), '--json')).toBe(false);
  });

  it('paint the headings of help', async () => {
    const help = async (io: FakeIo): Promise<string> => (await runCli(['run', '--help'], {}, io)).stdout;
    const painted = await help(terminal({}));
    expect(painted).toContain(`${ESCAPE}1mExamples:${ESCAPE}22m`);
    expect(painted).toContain(`${ESCAPE}1mOptions:${ESCAPE}22m`);
    expect(await help(pipe({}))).not.toContain(ESCAPE);
  });

  it('paint the verdicts of doctor without moving its columns', async () => {
    const doctor = async (io: FakeIo): Promise<string> =>
      (
        await runCli(
          ['doctor'],
          {
            doctor: () =>
              Promise.resolve([
                { name: 'Node', status: 'ok', detail: '22' },
                { name: 'C compiler', status: 'missing', detail: 'none' },
              ]),
          },
          io,
        )
      ).stdout;
    const painted = await doctor(terminal({}));
    expect(painted).toContain(`${ESCAPE}31mmissing${ESCAPE}39m`);
    expect(painted.replace(/\x1b\[\d+m/g, '')).toBe(await doctor(pipe({})));
  });

  it('and cursor movements are not sent to a dumb terminal', async () => {
    const io = terminal({ TERM: 'dumb' });
    await runCli(
      ['run', 'm', '--task', 'hellaswag', '--data', 'd'],
      {
        run: (_, ui) => {
          ui.phase('compile');
          ui.step(0.5);
          return Promise.reject(new UserError('wrong'));
        },
      },
      io,
    );
    expect(io.stderr.text).not.toContain('\x1b');
    expect(io.stderr.text).toContain('] compile\n');
  });
});
