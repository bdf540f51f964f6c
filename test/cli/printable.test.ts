/** What tasks, files and models are called is shown and does not steer the terminal. */
import { expect, test } from 'vitest';
import type { Results } from '../../evaluate/resultTypes.js';
import { fakeIo, runCli, type Stories } from './fakeIo.js';

const NAME = 'evil\x1b[31m\x9b2Jname';
const SHOWN = 'evil·[31m·2Jname';
const MERGED: Awaited<ReturnType<Stories['mergeShards']>> = {
  results: {
    results: { [NAME]: { alias: NAME, 'acc,none': 0.5 } },
    ...{ versions: {}, 'n-shot': {}, higher_is_better: {}, throughput: {} },
  } as unknown as Results,
  ...{ resultsPath: NAME, samplesPath: NAME, shards: 2, questions: 10 },
};
const run: Stories['run'] = (_request, ui) => {
  ui.phase('open', NAME);
  ui.step(0.5, NAME);
  ui.note(NAME);
  ui.warn(NAME);
  ui.table([NAME]);
  return Promise.resolve({ results: {}, table: `|${NAME}|`, resultsPath: NAME, samplesPath: NAME });
};
const listTasks: Stories['listTasks'] = () => ({ tasks: [NAME], groups: [NAME], tags: [NAME], unreadable: [NAME] });
const RUN = ['run', 'm', '--task', 'hellaswag', '--data', 'd'];

test.each([{ argv: RUN }, { argv: ['merge', 'shards', '--out', 'o'] }, { argv: ['tasks'] }])(
  'in lines of $argv.0',
  async ({ argv }) => {
    const io = fakeIo();
    const { status, stdout, stderr } = await runCli(argv, { run, listTasks, mergeShards: () => MERGED }, io);
    expect(status, stderr).toBe(0);
    expect(stdout).toContain(SHOWN);
    expect(stdout + stderr).not.toMatch(/[\x1b\x9b]/);
  },
);

test('in what is redrawn on a terminal', async () => {
  const io = fakeIo({ isTTY: true });
  await runCli(RUN, { run }, io);
  expect(io.stderr.text).toContain(SHOWN);
  expect(io.stderr.text).not.toContain(NAME);
  expect(io.stdout.text).toContain(`|${SHOWN}|`);
});

test('line ends of a name begin no line of their own', async () => {
  const name = 'some task\nerror: spoofed';
  const spoof: Stories['run'] = (request, ui) => {
    ui.phase('open', name);
    ui.step(0.5, name);
    ui.note(name);
    ui.warn(name);
    return run(request, ui);
  };
  for (const io of [fakeIo(), fakeIo({ isTTY: true })]) {
    const { stderr } = await runCli(RUN, { run: spoof }, io);
    expect(stderr).toContain('  error: spoofed');
    expect(stderr).not.toMatch(/^error:/m);
  }
  const listed = await runCli(['tasks'], {
    listTasks: () => ({ tasks: [], groups: [], tags: [], unreadable: [name] }),
  });
  expect(listed.stderr).toContain('note: not readable: some task\n  error: spoofed\n');
});
