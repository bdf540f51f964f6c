import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { seconds, wholeNumber } from '../../cli/options.js';
import type { CompileRequest } from '../../commands/compile.js';
import type { RunRequest, RunResult } from '../../commands/runRequest.js';
import type { TuneRequest } from '../../commands/tune.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { runCli } from './fakeIo.js';

const RESULT: RunResult = {
  results: { results: {} },
  table: '|table|',
  resultsPath: undefined,
  samplesPath: undefined,
};
const RUN = ['run', 'models/demo', '--task', 'hellaswag', '--data', 'd.jsonl'];

let folder = '';
let artifact = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-cli-'));
  artifact = join(folder, 'a.tw');
  mkdirSync(artifact);
  writeFileSync(join(artifact, 'manifest.json'), '{}');
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** What `run` was asked for. */
async function requestOf(...flags: string[]): Promise<WithTargetChoice<RunRequest>> {
  let seen: WithTargetChoice<RunRequest> | undefined;
  const { status, stderr } = await runCli([...RUN, ...flags], {
    run: (request) => {
      seen = request as WithTargetChoice<RunRequest>;
      return Promise.resolve(RESULT);
    },
  });
  expect(status, stderr).toBe(0);
  return seen!;
}

describe('help', () => {
  it('names every setting from the environment, except those of tests', async () => {
    const settings = readFileSync(new URL('../../settings.ts', import.meta.url), 'utf8');
    const names = new Set([...settings.matchAll(/'(TILEWRIGHT_\w+)'/g)].map(([, name = '']) => name));
    for (const name of ['TILEWRIGHT_TEST_SEED', 'TILEWRIGHT_COMPUTE_SANITIZER', 'TILEWRIGHT_CHROMIUM'])
      expect(names.delete(name), name).toBe(true);
    expect(names.size).toBeGreaterThan(7);
    const { stdout } = await runCli(['--help']);
    for (const name of names) expect(stdout).toMatch(new RegExp(`\\b${name}=`));
  });
});

describe('run', () => {
  it('has defaults', async () => {
    const { signal, ...request } = await requestOf();
    expect(signal?.aborted).toBe(false);
    expect(request).toEqual({
      model: 'models/demo',
      task: 'hellaswag',
      data: 'd.jsonl',
      sharing: 'tree',
      prefixes: 'auto',
      overlong: 'truncate',
      threads: 2,
      resume: false,
      resumeCommand: 'tilewright run models/demo --task hellaswag --data d.jsonl --resume',
      precision: 'auto',
      init: { kind: 'checkpoint' },
    });
  });

  it('takes what --quantize says where --precision is auto', async () => {
    const flags = ['--quantize', 'int8', '--precision'];
    expect(await requestOf(...flags, 'auto')).toMatchObject({ precision: 'int8' });
    expect((await runCli([...RUN, ...flags, 'f32'])).stderr).toContain('both say what is multiplied');
  });

  it('hands over every flag', async () => {
    const { signal: _, ...request } = await requestOf(
      '--sharing',
      'context',
      '--prefixes',
      'repeat',
      '--out',
      'o',
      '--threads',
      '7',
      '--limit',
      '0.5',
      '--docs',
      '3:',
      '--precision',
      'f32',
      '--init',
      'random:9',
      '--resume',
      '--overlong',
      'refuse',
      '--model-name',
      'mine',
      '--trace',
      't.json',
      '--batch-tokens',
      '512',
      '--isa',
      'avx2',
      '--mask',
      'path',
      '--dump',
      'stages',
    );
    expect(request).toEqual({
      model: 'models/demo',
      task: 'hellaswag',
      data: 'd.jsonl',
      sharing: 'context',
      prefixes: 'repeat',
      output: 'o',
      threads: 7,
      limit: 0.5,
      docs: [{ first: 3 }],
      precision: 'f32',
      init: { kind: 'random', seed: 9 },
      resume: true,
      resumeCommand: expect.stringMatching(/--resume/) as string,
      overlong: 'refuse',
      modelName: 'mine',
      trace: 't.json',
      batchTokens: 512,
      isa: 'avx2',
      mask: 'path',
      dump: 'stages',
    });
  });

  it.each([
    [['--devices', '4'], { devices: 4 }],
    [['--devices', 'all'], { devices: 'all' }],
    [['--parallel', 'auto'], { parallel: 'auto' }],
    [['--parallel', 'dp=3'], { parallel: { replicas: 3, stages: 1 } }],
    [['--parallel', 'pp=4', '--devices', '4'], { devices: 4, parallel: { replicas: 1, stages: 4 } }],
    [['--parallel', 'dpxpp=2x3'], { parallel: { replicas: 2, stages: 3 } }],
    [['--kv-cache-dtype', 'fp8'], { kvCache: 'fp8' }],
  ])('reads %j', async (flags, expected) => {
    expect(await requestOf(...flags)).toMatchObject(expected);
  });

  it.each([
    [['--devices', '0'], '--devices 0: expected a whole number from 1 to 64'],
    [['--devices', 'two'], '--devices two: expected'],
    [['--parallel', 'tp=2'], '--parallel tp=2: expected auto, dp=N, pp=N or dpxpp=AxB'],
    [['--parallel', 'dp=2x2'], '--parallel dp=2x2: expected'],
    [['--parallel', 'dpxpp=4'], '--parallel dpxpp=4: expected'],
    [['--parallel', 'dpxpp=9x9'], 'of at most 64 devices'],
    [['--parallel', 'pp=0'], '--parallel pp=0: expected'],
    [['--parallel', 'dp=2', '--devices', '4'], '--parallel dp=2 is for 2 devices, --devices says 4'],
    [['--kv-cache-dtype', 'fp4'], '--kv-cache-dtype fp4: expected'],
    [['--kv-cache', 'fp8', '--kv-cache-dtype', 'int8'], '--kv-cache and --kv-cache-dtype are one flag'],
  ])('refuses %j', async (flags, said) => {
    const { status, stderr } = await runCli([...RUN, ...flags]);
    expect(status).toBe(2);
    expect(stderr).toContain(said);
    expect(stderr).toMatch(/^hint: /m);
  });

  it('compiles nothing again for an artifact', async () => {
    const line = ['run', artifact, '--task', 'hellaswag', '--data', 'd'];
    expect((await runCli(line, { run: () => Promise.resolve(RESULT) })).status).toBe(0);
    const { status, stderr } = await runCli([...line, '--precision', 'f32', '--isa', 'avx2']);
    expect(status).toBe(2);
    expect(stderr).toContain(`error: --precision, --isa: ${artifact} is compiled already`);
    const cache = await runCli([...line, '--kv-cache-dtype', 'fp8']);
    expect(cache.stderr).toContain(`error: --kv-cache-dtype: ${artifact} is compiled already`);
    expect(stderr).toContain(
      `hint: leave them out, or compile again: tilewright compile <checkpoint> --precision … --isa … -o ${artifact}`,
    );
  });
});

describe('results and artifacts', () => {
  it('never share a folder', async () => {
    for (const [model, out] of [
      ['m', artifact],
      [join(folder, 'a.tw'), artifact],
      [join('elsewhere', 'a.tw'), artifact],
    ] as const) {
      const { status, stderr } = await runCli(['run', model, '--task', 'hellaswag', '--data', 'd', '--out', out]);
      expect([status, stderr.split('\n')[0]]).toEqual([
        2,
        `error: --out ${out}: the results would go into the artifact ${artifact}, and be lost when ` +
          'it is compiled again',
      ]);
    }
    const plain = join(folder, 'b');
    mkdirSync(plain);
    writeFileSync(join(plain, 'manifest.json'), '{}');
    expect((await runCli(['run', 'x/b.tw', '--task', 'hellaswag', '--data', 'd', '--out', folder])).stderr).toContain(
      `the results would go into the artifact ${plain}`,
    );
    expect(
      (
        await runCli(['run', artifact, '--task', 'hellaswag', '--data', 'd', '--out', folder], {
          run: () => Promise.resolve(RESULT),
        })
      ).status,
    ).toBe(0);
  });
});

describe('compile and tune', () => {
  it('hand over their flags', async () => {
    let compiled: WithTargetChoice<CompileRequest> | undefined, tuned: TuneRequest | undefined;
    const stop = (): never => {
      throw new Error('seen');
    };
    await runCli(['compile', 'm', '-o', 'm.tw', '--target', 'cpu', '--batch-tokens', '64'], {
      compile: (request) => {
        compiled = request;
        return stop();
      },
    });
    const { signal: _, ...compileRequest } = compiled!;
    expect(compileRequest).toEqual({
      model: 'm',
      output: 'm.tw',
      target: 'cpu',
      batchTokens: 64,
      precision: 'auto',
      init: { kind: 'checkpoint' },
    });
    await runCli(['tune', artifact, '--budget', '1m30s', '--database', 'd.jsonl'], {
      tune: (request) => {
        tuned = request;
        return stop();
      },
    });
    const { signal: __, ...tuneRequest } = tuned!;
    expect(tuneRequest).toEqual({ artifact, budgetSeconds: 90, threads: 2, database: 'd.jsonl' });
  });
});

/** A command line, and what stderr must say. Nothing is called. */
const REFUSED: readonly (readonly [line: string, error: string, hint: string])[] = [
  ['rnu', "error: unknown command 'rnu'", 'hint: did you mean run? Otherwise see tilewright --help'],
  ['run', "error: missing required argument 'model'", 'hint: for example: tilewright run models/demo --task hellaswag'],
  ['run m', 'error: --task is missing', '--task hellaswag --data'],
  ['run m --tsk x', "error: unknown option '--tsk'", 'hint: did you mean --task?'],
  [
    'run m --task helaswag --data d',
    'error: --task helaswag: expected hellaswag, arc_easy, arc_challenge or multiple_choice',
    'hint: did you mean --task hellaswag?',
  ],
  ['run m --task hellaswag', 'error: --data is missing', 'examples/everyday.jsonl'],
  ['run m n --task hellaswag --data d', "error: too many arguments for 'run'", 'tilewright run --help'],
  [
    'run m --task hellaswag --data d --threads 0',
    'error: --threads 0: expected a whole number from 1 to 1024',
    'hint: for example: --threads 2',
  ],
  ['run m --task hellaswag --data d --threads two', 'error: --threads two: expected a whole number', '--threads 2'],
  ['run m --task hellaswag --data d --model-name=', 'error: --model-name is empty', '--model-name my-model'],
  ['run m --task hellaswag --data d --docs 5:3', 'error: --docs 5:3: is not a range', '--docs 0:100,500:600,777'],
  ['run m --task hellaswag --data d --docs 0:3,x', 'error: --docs 0:3,x: "x" is not a range', '--docs 0:100'],
  [
    'run m --task hellaswag --data d --overlong cut',
    'error: --overlong cut: expected truncate or refuse',
    '--overlong',
  ],
  ['run m --task hellaswag --data d --limit -1', 'error: --limit -1 is neither a count nor a fraction', '--limit 100'],
  [
    'run m --task hellaswag --data d --sharing tee',
    'error: --sharing tee: expected none, context, kv or tree',
    'did you mean --sharing tree?',
  ],
  [
    'run m --task hellaswag --data d --precision f17',
    'error: --precision f17: expected auto, f32, bf16, f16, fp8, int8 or int4',
    'did you mean --precision f16?',
  ],
  ['run m --task hellaswag --data d --init 7', 'error: --init "7": expected random:SEED', '--init random:1'],
  [
    'run m --task hellaswag --data d --batch-tokens 5',
    'error: --batch-tokens 5: expected a whole number from 32 to 65536',
    '--batch-tokens 1024',
  ],
  ['run m --task hellaswag --data d --mask metaPair', 'error: --mask metaPair: expected path or tree', 'hint:'],
  ['run m --task hellaswag --data d --report', 'error: --report needs --out', 'add --out'],
  ['run m --task hellaswag --data d --resume', 'error: --resume needs --out', 'add --out'],
  [
    'run m --tasks mmlu --task hellaswag',
    'error: --task says what to score, and so does --tasks',
    'leave out --task, or --tasks',
  ],
  ['run m --task hellaswag --data d --seed 1', 'error: --seed is for --tasks, which is not given', '--tasks mmlu'],
  ['merge', "error: missing required argument 'folders'", 'for example: tilewright merge shards --out results'],
  ['explore', "error: missing required argument 'model'", 'for example: tilewright explore models/demo'],
  ['compile m', 'error: -o DIR is missing', 'tilewright compile m -o model.tw'],
  [
    'compile m -o x --target cuda:sm90a',
    'error: --target cuda:sm90a: expected auto, cpu, cuda, cuda:sm_80 or cuda:sm_90a',
    'did you mean --target cuda:sm_90a?',
  ],
  ['compile m -o x --target gpu', 'error: --target gpu: expected auto, cpu, cuda', 'did you mean --target cuda?'],
  ['compile m -o x --target cuda:0', 'error: --target cuda:0: expected auto, cpu, cuda', 'did you mean --target cuda?'],
  [
    'compile m -o x --isa avx51',
    'error: --isa avx51: expected portable, avx2, avx512 or amx',
    'did you mean --isa avx512?',
  ],
  ['tune models/demo', 'error: models/demo: is not an artifact folder', 'tilewright compile models/demo -o model.tw'],
  ['tune m.tw', 'error: m.tw: there is no such folder', 'tilewright compile CHECKPOINT -o m.tw'],
  ['tune m --budget 5', 'error: --budget 5: expected a time with a unit', '--budget 30s'],
  ['inspect m --plan --memory', 'error: --plan and --memory: one at a time', 'tilewright inspect m --plan'],
  ['help rum', 'error: help rum: expected run', 'did you mean help run?'],
];

describe('wrong use', () => {
  it.each(REFUSED)('%s', async (line, error, hint) => {
    const { status, stdout, stderr } = await runCli(line.split(' '));
    expect(status).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toContain(error);
    expect(stderr).toContain(hint);
    expect(stderr).toMatch(/^error: [^\n]+\nhint: [^\n]+\n(  [^\n]+\n)*$/);
  });

  it('refuses what an artifact was compiled with', async () => {
    expect((await runCli(['compile', artifact, '-o', 'x'])).stderr).toContain('is an artifact already');
  });
});

describe('values', () => {
  it('may be times', () => {
    expect(['250ms', '20s', '5m', '1.5h', '1h30m', '1min'].map((text) => seconds('--budget', text))).toEqual([
      0.25, 20, 300, 5400, 5400, 60,
    ]);
    for (const text of ['', '5', 's', '5x', '-5s', '5s5', '0s', '999h', '5 m'])
      expect(() => seconds('--budget', text), text).toThrow('expected a time');
  });

  it('may be whole numbers', () => {
    expect(wholeNumber('-n', '12', 1, 12, '3')).toBe(12);
    for (const text of ['13', '0', '1.5', '1e1', ' 1', '0x1', ''])
      expect(() => wholeNumber('-n', text, 1, 12, '3'), text).toThrow('from 1 to 12');
  });
});
