import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { invocationOf } from '../../cli/io.js';
import { errorLines } from '../../cli/print.js';
import type { CompileResult } from '../../commands/compile.js';
import { Interrupted, type RunResult } from '../../commands/runRequest.js';
import type { Ui } from '../../driver/requests.js';
import { UserError } from '../../errors.js';
import { quoteForShell } from '../../system/process.js';
import { fakeIo, runCli, type Stories } from './fakeIo.js';

const RUN = ['run', 'models/demo', '--task', 'hellaswag', '--data', 'my data.jsonl'];
const PROGRESS = {
  questionsDone: 3,
  questionsTotal: 10,
  tokensDone: 30,
  tokensTotal: 100,
  accuracy: 0.5,
  accuracyNorm: 0.25,
  tokensPerSecond: 1234,
  secondsLeft: 41,
};
const RESULT: RunResult = {
  results: {
    results: { hellaswag: { 'acc,none': 0.25 } },
    throughput: {
      questions: 10,
      tokensComputed: 100,
      tokensWithoutSharing: 250,
      tokensGrouped: 200,
      tokensShared: 80,
      loadSeconds: 1,
      scoreSeconds: 2,
      tokensPerSecond: 50,
      modelFlops: 3e9,
    },
  },
  table: '|the table|',
  resultsPath: 'o/r.json',
  samplesPath: 'o/s.jsonl',
};

/** Reports as a real run does. */
function noisy(ui: Ui): void {
  ui.phase('compile', 'demo');
  ui.step(0.5, 'half');
  ui.note('a note');
  ui.run(PROGRESS);
}

const scored: Stories['run'] = (_request, ui) => {
  noisy(ui);
  return Promise.resolve(RESULT);
};

describe('a run that succeeds', () => {
  it('prints the table and the paths of the files', async () => {
    const { status, stdout } = await runCli([...RUN, '--out', 'o'], { run: scored });
    expect(status).toBe(0);
    expect(stdout).toBe(
      [
        '|the table|',
        '10 questions in 2.00 s after 1.00 s of loading: 50 tokens/s, 1.5 GFLOP/s',
        '100 tokens computed instead of 250: 2.50× fewer',
        'results: o/r.json',
        'samples: o/s.jsonl',
        '',
      ].join('\n'),
    );
  });

  it('prints what else was counted with --verbose, and details above the progress', async () => {
    const run: Stories['run'] = (request, ui) => {
      ui.detail('why this device');
      return scored(request, ui);
    };
    const { stdout, stderr } = await runCli([...RUN, '--verbose'], { run });
    expect(stdout).toContain('with one sequence for choices of equal inputs: 200 tokens (2.00× as many)\n');
    expect(stdout).toContain('with every common beginning once: 80 tokens (this run: 1.250×)\n');
    expect(stderr).toContain('why this device');
    for (const flag of [undefined, '--json', '-q']) {
      const quiet = await runCli(flag === undefined ? RUN : [...RUN, flag], { run });
      expect(quiet.stderr).not.toContain('why this device');
    }
    expect((await runCli([...RUN, '--verbose', '--quiet'], { run })).stderr).toContain('exclude each other');
  });

  it('counts one of anything as one', async () => {
    const one = { questions: 1, scoreSeconds: 2, loadSeconds: 1, tokensPerSecond: 1, tokensComputed: 1 };
    const results = { throughput: one, generation: { texts: 1, seconds: 1, computedTokens: 1, foundTokens: 0 } };
    const run: Stories['run'] = () => Promise.resolve({ ...RESULT, results });
    const { stdout } = await runCli([...RUN, '-v'], { run });
    expect(stdout).toContain('1 question in 2.00 s');
    expect(stdout).toContain('1 text generated in 1.00 s: 1 token computed, 0 tokens of prompts found in the cache');
    const listTasks: Stories['listTasks'] = () => ({
      tasks: ['hellaswag', 'piqa'],
      groups: [],
      tags: [],
      unreadable: [],
    });
    for (const [word, said] of [
      ['hella', '1 name\n'],
      ['', '2 names\n'],
      ['x', '0 names\n'],
    ] as const)
      expect((await runCli(['tasks', ...(word === '' ? [] : [word])], { listTasks })).stdout).toMatch(said);
  });

  it('prints the results and nothing else with --json', async () => {
    const { status, stdout, stderr } = await runCli([...RUN, '--json'], { run: scored });
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toEqual(RESULT.results);
    expect(stderr).toBe('');
  });

  it('keeps warnings with --json, away from stdout', async () => {
    const { stdout, stderr } = await runCli([...RUN, '--json'], {
      run: (_, ui) => {
        ui.warn('careful');
        return Promise.resolve(RESULT);
      },
    });
    expect(JSON.parse(stdout)).toEqual(RESULT.results);
    expect(stderr).toBe('warning: careful\n');
  });

  it('with --quiet prints results and errors only', async () => {
    const run: Stories['run'] = (_, ui) => {
      noisy(ui);
      ui.warn('careful');
      return Promise.resolve(RESULT);
    };
    const loud = await runCli(RUN, { run });
    for (const flag of ['--quiet', '-q']) {
      const { status, stdout, stderr } = await runCli([...RUN, flag], { run });
      expect([status, stdout, stderr]).toEqual([0, loud.stdout, '']);
    }
    const failed = await runCli([...RUN, '-q'], { run: () => Promise.reject(new UserError('x is wrong', 'y')) });
    expect([failed.status, failed.stderr]).toEqual([1, 'error: x is wrong\nhint: y\n']);
  });

  it('stops listening for signals', async () => {
    const io = fakeIo();
    await runCli(RUN, { run: scored }, io);
    expect(io.listeners).toBe(0);
  });
});

const COMPILED: CompileResult = {
  artifact: 'm.tw',
  isa: 'avx2',
  arithmetic: 'f32',
  kernels: 44,
  distinctKernels: 13,
  arenaBytes: 3 << 20,
  packedWeightBytes: 5 << 20,
  seconds: 1.25,
  cached: true,
};

describe('compile', () => {
  it('prints a summary, or JSON', async () => {
    const compile = (): Promise<CompileResult> => Promise.resolve(COMPILED);
    const { stdout } = await runCli(['compile', 'm', '-o', 'm.tw'], { compile });
    expect(stdout).toContain('m.tw: 44 kernels, 13 of them different; avx2, f32 inputs');
    expect(stdout).toContain('3 MiB for a micro-batch, 5 MiB of packed weights');
    expect(stdout).toContain('1.25 s (kernels from the cache)');
    expect(JSON.parse((await runCli(['compile', 'm', '-o', 'm.tw', '--json'], { compile })).stdout)).toEqual(COMPILED);
  });
});

describe('errors', () => {
  const failing =
    (error: unknown): Stories['run'] =>
    () =>
      Promise.reject(error);

  it('of the user are a message and a hint, without a stack', async () => {
    const { status, stdout, stderr } = await runCli(RUN, {
      run: failing(new UserError('x.json:3: not a question\nsecond line', 'look there')),
    });
    expect([status, stdout]).toEqual([1, '']);
    expect(stderr.endsWith('error: x.json:3: not a question\n  second line\nhint: look there\n')).toBe(true);
  });

  it('of the program say so in one line, and where with TILEWRIGHT_DEBUG', async () => {
    const plain = await runCli(RUN, { run: failing(new TypeError('x is undefined')) });
    expect(plain.status).toBe(1);
    expect(plain.stderr).toContain(
      'error: unexpected: x is undefined\nhint: this is a bug in tilewright; run it again with TILEWRIGHT_DEBUG=1',
    );
    expect(plain.stderr).not.toMatch(/\n\s+at /);
    const debug = await runCli(RUN, { run: failing(new TypeError('x is undefined')) }, fakeIo({ isDebug: true }));
    expect(debug.stderr).toMatch(/TypeError: x is undefined\n\s+at /);
  });

  it('of the system are not called bugs', () => {
    const error = Object.assign(new Error('ENOSPC: no space left on device, write'), {
      code: 'ENOSPC',
      syscall: 'write',
    });
    expect(errorLines(error, false)).toBe('error: ENOSPC: no space left on device, write\n');
  });

  it('cannot control the terminal', () => {
    expect(errorLines(new UserError('bad \x1b[2J\r\x07name\x9b'), false)).toBe('error: bad ·[2J··name·\n');
    expect(errorLines(new UserError('line one\nline two'), false)).toBe('error: line one\n  line two\n');
    expect(errorLines('a string', false)).toContain('error: unexpected: a string');
  });

  it('leave no progress line behind on a terminal', async () => {
    const io = fakeIo({ isTTY: true });
    await runCli(
      RUN,
      {
        run: (_, ui) => {
          noisy(ui);
          return Promise.reject(new UserError('no'));
        },
      },
      io,
    );
    expect(io.stderr.text.lastIndexOf('\x1b[?25h')).toBeGreaterThan(io.stderr.text.lastIndexOf('\x1b[?25l'));
    expect(io.stderr.text.endsWith('error: no\n')).toBe(true);
  });
});

/** A run that reports progress, then waits for its signal as evaluate() does. */
function untilStopped(
  onStart: () => void,
  isScoring: boolean,
  error: (request: Parameters<Stories['run']>[0]) => unknown,
): Stories['run'] {
  return (request, ui) =>
    new Promise((_, reject) => {
      ui.phase('score');
      if (isScoring) ui.run(PROGRESS);
      request.signal?.addEventListener('abort', () => {
        reject(error(request));
      });
      setImmediate(onStart);
    });
}

describe('Ctrl-C', () => {
  it('aborts, and prints the exact command that resumes the run', async () => {
    const io = fakeIo();
    const run = untilStopped(
      () => {
        io.send('SIGINT');
      },
      true,
      () => new Interrupted(1234),
    );
    const { status, stdout, stderr } = await runCli([...RUN, '--out', 'o'], { run }, io);
    expect([status, stdout]).toEqual([130, '']);
    expect(stderr).toContain('stopping after what is running; Ctrl-C again stops at once');
    expect(
      stderr.endsWith(
        'stopped: 1,234 finished questions are in the journal; go on with\n  tilewright run ' +
          "models/demo --task hellaswag --data 'my data.jsonl' --out o --resume\n",
      ),
    ).toBe(true);
    expect(io.died).toEqual([]);
    expect(io.listeners).toBe(0);
  });

  it('does not add --resume twice', async () => {
    const io = fakeIo();
    const run = untilStopped(
      () => {
        io.send('SIGINT');
      },
      true,
      () => new Interrupted(1),
    );
    const { stderr } = await runCli([...RUN, '--resume', '--out', 'o'], { run }, io);
    expect(stderr.match(/--resume/g)).toHaveLength(1);
  });

  it('says that nothing was kept if there is no --out', async () => {
    const io = fakeIo();
    const run = untilStopped(
      () => {
        io.send('SIGINT');
      },
      true,
      () => new Interrupted(1),
    );
    expect((await runCli(RUN, { run }, io)).stderr).toContain(
      'nothing was kept, since there was no --out; give one to be able to go on next time:\n  ' +
        "tilewright run models/demo --task hellaswag --data 'my data.jsonl' --out results\n",
    );
  });

  it('waits for nothing before the first result', async () => {
    const io = fakeIo();
    const run: Stories['run'] = (_, ui) =>
      new Promise(() => {
        ui.phase('load weights');
        setImmediate(() => {
          io.send('SIGINT');
        });
      });
    const { status, stderr } = await runCli([...RUN, '--out', 'o'], { run }, io);
    expect(status).toBe(130);
    expect(stderr).toContain(
      'stopped: no question was scored yet; the same command starts again:\n  tilewright run ' +
        "models/demo --task hellaswag --data 'my data.jsonl' --out o\n",
    );
  });

  it('ends the process at once the second time, and restores the cursor', async () => {
    const io = fakeIo({ isTTY: true });
    let textAtDeath = '';
    const run: Stories['run'] = (request, ui) =>
      new Promise((_, reject) => {
        ui.phase('score');
        ui.run(PROGRESS);
        setImmediate(() => {
          io.send('SIGINT');
          expect(request.signal?.aborted).toBe(true);
          expect(io.died).toEqual([]);
          io.send('SIGINT');
          textAtDeath = io.stderr.text;
          reject(new Interrupted(0));
        });
      });
    await runCli(RUN, { run }, io);
    expect(io.died).toEqual(['SIGINT']);
    expect(textAtDeath.lastIndexOf('\x1b[?25h')).toBeGreaterThan(textAtDeath.lastIndexOf('\x1b[?25l'));
  });

  it('exits with 130 from a tuning too, which keeps what it found', async () => {
    const io = fakeIo();
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-cli-'));
    try {
      writeFileSync(join(folder, 'manifest.json'), '{}');
      const tune: Stories['tune'] = (request, ui) => {
        ui.table(['row']);
        io.send('SIGINT');
        expect(request.signal?.aborted).toBe(true);
        return Promise.resolve({
          artifact: folder,
          trials: 3,
          reused: 4,
          gain: 1.5,
          functions: [{ name: 'score', trials: 3, reused: 4, gain: 1.5 }],
          isSaved: true,
          table: ['heading', 'row'],
          seconds: 2,
        });
      };
      const { status, stdout, stderr } = await runCli(['tune', folder], { tune }, io);
      expect(status).toBe(130);
      expect(stdout).toBe(
        `heading\nrow\n${folder}: 3 trials in 2.00 s, 4 more from the database\nwhat was measured of the ` +
          'largest batch is 1.50× as fast as with default schedules\n',
      );
      expect(stderr.endsWith(`stopped: finished trials are kept; go on with\n  tilewright tune ${folder}\n`)).toBe(
        true,
      );
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('exits with 143 if it is SIGTERM instead', async () => {
    const io = fakeIo();
    const run = untilStopped(
      () => {
        io.send('SIGTERM');
      },
      true,
      () => new Interrupted(1),
    );
    expect((await runCli([...RUN, '--out', 'o'], { run }, io)).status).toBe(143);
  });

  it('also reports a disk that failed meanwhile', async () => {
    const io = fakeIo();
    const full = new UserError('cannot write journal: the disk is full', 'free some space', {
      cause: new Error('ENOSPC'),
    });
    const run = untilStopped(
      () => {
        io.send('SIGINT');
      },
      true,
      () => full,
    );
    const { status, stderr } = await runCli([...RUN, '--out', 'o'], { run }, io);
    expect(status).toBe(130);
    expect(stderr).toContain('error: cannot write journal: the disk is full');
  });

  it('does not fail a command that finishes all the same', async () => {
    const io = fakeIo();
    const run: Stories['run'] = (_, ui) => {
      ui.run(PROGRESS);
      io.send('SIGINT');
      return Promise.resolve(RESULT);
    };
    const { status, stdout } = await runCli(RUN, { run }, io);
    expect(status).toBe(0);
    expect(stdout).toContain('|the table|');
  });
});

describe('the command line that starts the program', () => {
  it('is printed in a form that can be pasted', () => {
    expect(invocationOf('/usr/local/bin/tilewright', '/home/u')).toBe('tilewright');
    expect(invocationOf('/home/u/p/node_modules/.bin/tilewright', '/home/u/p')).toBe('npx tilewright');
    expect(invocationOf('/home/u/.npm/_npx/9cef/node_modules/.bin/tilewright', '/home/u/p')).toBe('npx tilewright');
    expect(invocationOf('/home/u/p/dist/cli/main.js', '/home/u/p')).toBe('node dist/cli/main.js');
    expect(invocationOf('/opt/my tools/dist/cli/main.js', '/home/u/p')).toBe("node '/opt/my tools/dist/cli/main.js'");
    expect(invocationOf(undefined, '/')).toBe('tilewright');
    expect(["it's", 'a b', '$HOME', 'x=1', '--docs', ''].map(quoteForShell)).toEqual([
      "'it'\\''s'",
      "'a b'",
      "'$HOME'",
      'x=1',
      '--docs',
      "''",
    ]);
  });
});
