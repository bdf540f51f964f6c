/** `tilewright generate` on fakes: flags in, texts out. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { GenerateRequest, GenerateResult, PrintRequest } from '../../commands/generate.js';
import type { ContinueListener, PromptResult } from '../../commands/textGenerator.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { Float } from '../../python/value.js';
import { runFolder } from '../support/runFolder.js';
import { fakeIo, type FakeIo, type Outcome, runCli } from './fakeIo.js';

const COUNTS = {
  calls: 1,
  computedTokens: 1,
  foundTokens: 32,
  preemptions: 0,
  evictions: 0,
  peakPages: 2,
  pages: 4,
};

const textOf = (index: number, text: string): PromptResult => ({
  index,
  sample: 0,
  where: `prompt ${index + 1}`,
  promptTokens: 3,
  text,
  rest: '!',
  tokens: [5, 6],
  logProbs: [-0.5, -1],
  reason: 'length',
  foundTokens: 0,
  seconds: [0.25, 0.5],
});
const FAILED: PromptResult = {
  index: 1,
  sample: 0,
  where: 'prompt 2',
  promptTokens: 3,
  error: 'a value is NaN or infinite',
};

const resultOf = (results: readonly PromptResult[]): GenerateResult => ({
  results,
  counts: COUNTS,
  drafts: {
    writtenTokens: 2,
    writtenParts: 1,
    drafts: [{ drafter: 'suffix', rounds: 1, drafted: [1, 1], accepted: [1, 0] }],
  },
  cacheBytes: 4096,
  seconds: 2,
});

/** Runs with results that come in the given order. */
function run(
  argv: readonly string[],
  results: readonly PromptResult[],
  { io = fakeIo(), before }: { io?: FakeIo; before?: (listener: ContinueListener, io: FakeIo) => void } = {},
): Promise<Outcome> {
  return runCli(
    ['generate', ...argv],
    {
      generate: (_, ui, listener = {}) => {
        ui.phase('generate');
        before?.(listener, io);
        for (const index of new Set(results.map((result) => result.index)))
          listener.onResults?.(
            index,
            results.filter((result) => result.index === index),
          );
        return Promise.resolve(resultOf([...results].sort((a, b) => a.index - b.index)));
      },
    },
    io,
  );
}

async function requestOf(...argv: string[]): Promise<WithTargetChoice<GenerateRequest>> {
  let seen: WithTargetChoice<GenerateRequest> | undefined;
  const { status, stderr } = await runCli(['generate', ...argv], {
    generate: (request) => {
      seen = request;
      return Promise.resolve(resultOf([]));
    },
  });
  expect(status, stderr).toBe(0);
  return seen!;
}

describe('generate', () => {
  it('hands over prompts and every flag', async () => {
    const { signal, ...request } = await requestOf(
      ...['m', 'Once', 'Twice', '--prompts', 'p.txt', '--max-new-tokens', '7', '--stop', '\\n\\n', '--stop', '\\\\n'],
      ...['--ignore-eos', '--cache-tokens', '512', '--threads', '3', '--precision', 'f32'],
    );
    expect(signal?.aborted).toBe(false);
    expect(request).toEqual({
      model: 'm',
      prompts: [
        { where: 'prompt 1', prompt: { prompt: 'Once' } },
        { where: 'prompt 2', prompt: { prompt: 'Twice' } },
      ],
      promptFile: 'p.txt',
      maxNewTokens: 7,
      stop: ['\n\n', '\\n'],
      ignoreEos: true,
      cacheTokens: 512,
      threads: 3,
      precision: 'f32',
      init: { kind: 'checkpoint' },
    });
  });

  it.each([
    [['m', ''], 'prompt 1 is empty'],
    [['m', 'a', '--max-new-tokens', '0'], '--max-new-tokens 0: expected a whole number from 1'],
    [['m', 'a', '--stop', ''], '--stop: is empty'],
    [['m', 'a', '--stop', 'x'.repeat(1001)], '--stop: '],
    [['m', 'a', '--cache-tokens', '8'], '--cache-tokens 8: expected a whole number from 16'],
    [['m', 'a', '--temperature', '-1'], '--temperature -1: expected a number from 0 to 100'],
    [['m', 'a', '--temperature', 'hot'], '--temperature hot: expected a number from 0 to 100'],
    [['m', 'a', '--top-k', '1.5'], '--top-k 1.5: expected a whole number from -1 to 2147483647'],
    [['m', 'a', '--top-p', '-1'], '--top-p -1: expected a number from 0 to 1'],
    [['m', 'a', '--min-p', '2'], '--min-p 2: expected a number from 0 to 1'],
    [['m', 'a', '--repetition-penalty', '0'], '--repetition-penalty 0: expected a number above 0, at most 100'],
    [['m', 'a', '--presence-penalty', '3'], '--presence-penalty 3: expected a number from -2 to 2'],
    [['m', 'a', '--seed', '-1'], '--seed -1: expected a whole number from 0 to 9007199254740991'],
    [['m', 'a', '--n', '0'], '--n 0: expected a whole number from 1 to 128'],
    [['m', 'a', '--beams', '21'], '--beams 21: expected a whole number from 1 to 20'],
    [['m', 'a', '--logit-bias', '42'], '--logit-bias 42: expected a token id, = and a number from -100 to 100'],
    [['m', 'a', '--logit-bias', '42=101'], '--logit-bias 42=101: expected a token id, = and a number from -100 to 100'],
    [['m', 'a', '--top-logprobs', '21', '--json'], '--top-logprobs 21: expected a whole number from 0 to 20'],
    [['m', 'a', '--top-logprobs', '2'], '--top-logprobs: they are printed with --json only'],
    [['m', 'a', '--n', '3'], '--n 3: without a temperature they would all be the same text'],
    [['m', 'a', '--best-of', '3'], '--best-of 3: without a temperature'],
    [['m', 'a', '--n', '3', '--best-of', '2', '--temperature', '1'], '--n 3: --best-of 2 has only 2'],
    [['m', 'a', '--n', '3', '--beams', '2'], '--n 3: --beams 2 finds only 2'],
    [
      ['m', 'a', '--beams', '2', '--temperature', '1'],
      '--temperature: a search with --beams 2 looks for the most likely',
    ],
    [['m', 'a', '--min-new-tokens', '200'], '--min-new-tokens 200: at most 128 tokens are generated'],
  ])('refuses %j, with an example', async (argv, message) => {
    const { status, stderr } = await runCli(['generate', ...argv]);
    expect(status).toBe(2);
    expect(stderr).toContain(`error: ${message}`);
    expect(stderr).toMatch(/^hint: .+$/m);
  });

  it('hands over what texts have to be, one thing at a time', async () => {
    expect((await requestOf('m', 'a', '--regex', '[0-9]+')).structure).toEqual({ regex: '[0-9]+' });
    expect((await requestOf('m', 'a', '--json-object')).structure).toEqual({ jsonObject: true });
    expect((await requestOf('m', 'a', '--choice', 'yes', '--choice', 'no')).structure).toEqual({
      choice: ['yes', 'no'],
    });
    const schema = join(runFolder(), 'schema.json');
    writeFileSync(schema, '{"type": "integer"}');
    expect((await requestOf('m', 'a', '--json-schema', schema)).structure).toEqual({ json: { type: 'integer' } });
    writeFileSync(schema, '{');
    for (const [expected, flags, message] of [
      [1, ['--json-schema', schema], 'schema.json'],
      [2, ['--regex', 'a', '--json-object'], '--json-schema, --json-object, --regex, --choice: a text is one of them'],
      [2, ['--regex', 'a', '--beams', '2'], '--beams: a search has no use for what texts have to be'],
    ] as const) {
      const { status, stderr } = await run(['m', 'a', ...flags], []);
      expect([status, stderr]).toEqual([expected, expect.stringContaining(message)]);
    }
  });

  it('hands over how tokens are chosen', async () => {
    const request = await requestOf(
      ...['m', 'a', '--json', '--n', '2', '--best-of', '4', '--temperature', '.5', '--logit-bias', '42=-100'],
      ...['--logit-bias', '7=1.5', '--top-logprobs', '3', '--min-new-tokens', '5', '--seed', '9'],
    );
    expect(request).toMatchObject({
      n: 2,
      bestOf: 4,
      temperature: 0.5,
      logitBias: [
        [42, -100],
        [7, 1.5],
      ],
      topLogProbs: 3,
      minNewTokens: 5,
      seed: 9,
    });
  });

  it('prints several texts of a prompt, numbered, and what they are ranked by', async () => {
    const second = { ...textOf(0, ' c'), sample: 1, score: -2 };
    const texts = [{ ...textOf(0, ' b'), score: -1 }, second, textOf(1, ' d')];
    const { stdout } = await run(['m', 'a', 'x', '--beams', '2', '--n', '2', '-q'], texts);
    expect(stdout).toBe('--- prompt 1, 1 of 2\n b\n--- prompt 1, 2 of 2\n c\n--- prompt 2\n d\n');
    const lines = await run(['m', 'a', '--beams', '2', '--n', '2', '--json'], [second]);
    expect(JSON.parse(lines.stdout)).toMatchObject({ index: 0, sample: 1, text: ' c', score: -2 });
    const top = [[{ token: 5, logProb: -0.5 }], [{ token: 6, logProb: -1 }]];
    const one = await run(['m', 'a', '--top-logprobs', '1', '--json'], [{ ...textOf(0, ''), top } as PromptResult]);
    expect(JSON.parse(one.stdout)).toMatchObject({ topLogprobs: [[{ token: 5, logprob: -0.5 }], [{ token: 6 }]] });
  });

  it('prints a single text alone and several under headings, in the order of the prompts', async () => {
    const one = await run(['m', 'a'], [textOf(0, ' b')]);
    expect(one.stdout).toBe(' b\n');
    expect(one.stderr).toContain(
      '2 tokens in 2.00 s: 1.0 tokens/s; the first after 250.0 ms, then one every 250.0 ms; ' +
        'ended by --max-new-tokens\ndrafts: 1 of 2 accepted, 2.0 tokens a step\n',
    );
    expect(one.stderr).not.toContain('pages');
    const more = await run(['m', 'a', '--verbose'], [textOf(0, ' b')]);
    expect(more.stderr).toContain('2 of 4 pages of keys and values (2 KiB), 32 tokens of prompts found there\n');
    const two = await run(['m', 'a', 'c', '-q'], [textOf(1, ' d'), textOf(0, ' b')]);
    expect(two).toEqual({ status: 0, stdout: '--- prompt 1\n b\n--- prompt 2\n d\n', stderr: '' });
  });

  it('prints JSON lines, and says which prompt failed', async () => {
    const { status, stdout, stderr } = await run(['m', 'a', 'c', '--json'], [FAILED, textOf(0, 'b')]);
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      {
        index: 0,
        text: 'b',
        tokens: [5, 6],
        logprobs: [-0.5, -1],
        reason: 'length',
        promptTokens: 3,
        foundTokens: 0,
      },
      { index: 1, error: 'a value is NaN or infinite' },
    ]);
    // What became of drafts depends on the moment: it is told where it is asked.
    const drafted = { ...textOf(0, 'b'), drafts: { drafted: 3, accepted: 1 } } as PromptResult;
    expect((await run(['m', 'a', '--json'], [drafted])).stdout).not.toContain('drafts');
    const lines = await run(['m', 'a', 'c', '--json', '--draft', 'suffix'], [drafted, textOf(1, 'd')]);
    expect(
      lines.stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toMatchObject([{ drafts: { drafted: 3, accepted: 1 } }, { drafts: { drafted: 0, accepted: 0 } }]);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^error: prompt 2: a value is NaN or infinite\nhint: .*\n$/);
  });

  it('streams a single text to a terminal, without what would steer it', async () => {
    const io = fakeIo({ isTTY: true });
    const { stdout } = await run(['m', 'a'], [textOf(0, 'b')], {
      io,
      before: ({ onPiece }) => {
        for (const text of ['x', '\x1b[2J', 'y\n']) void onPiece?.(0, { token: 1, logProb: -1, text }, 0);
      },
    });
    expect(stdout).toBe('x·[2Jy\n!\n');
  });

  it('prints what there is after Ctrl-C, and exits as a stopped program does', async () => {
    const { status, stdout, stderr } = await run(['m', 'a'], [textOf(0, 'b')], {
      before: (_, io) => io.send('SIGINT'),
    });
    expect(stdout).toBe('b\n');
    expect(status).toBe(130);
    expect(stderr).toContain('stopped: what was generated is above');
  });

  it('stops without a word when its reader goes away', async () => {
    const io = fakeIo();
    let isAborted: boolean | undefined;
    const { status, stderr } = await runCli(
      ['generate', 'm', 'a', 'b'],
      {
        generate: ({ signal }) => {
          io.stdout.emit('error', Object.assign(new Error('gone'), { code: 'EPIPE' }));
          isAborted = signal?.aborted;
          return Promise.resolve(resultOf([FAILED]));
        },
      },
      io,
    );
    expect([isAborted, status, stderr]).toEqual([true, 0, '']);
  });

  it('needs a prompt where nobody types', async () => {
    const { status, stderr } = await runCli(['generate', 'm']);
    expect([status, stderr]).toEqual([2, expect.stringContaining('there is nothing to continue')]);
  });

  it('prints prompts as the model sees them, and looks for no model', async () => {
    const asked: PrintRequest[] = [];
    const print = (argv: readonly string[]): Promise<Outcome> =>
      runCli(['generate', 'm', ...argv, '--print-prompts'], {
        printPrompts: (request, tell) => {
          asked.push(request);
          for (const { where, prompt } of request.prompts)
            tell({ where, text: 'prompt' in prompt ? `<s>${prompt.prompt}` : '', tokens: [1, 2] });
          return Promise.resolve();
        },
      });
    const json = await print(['a', 'b', '--json', '--chat-template-kwargs', '{"enable_thinking": false, "n": 1.0}']);
    expect(json.stdout).toBe('{"text":"<s>a","tokens":[1,2]}\n{"text":"<s>b","tokens":[1,2]}\n');
    expect(asked[0]?.templateVariables).toEqual(
      new Map<string, unknown>([
        ['enable_thinking', false],
        ['n', new Float(1)],
      ]),
    );
    expect((await print(['a', 'b'])).stdout).toBe('--- prompt 1\n<s>a\n--- prompt 2\n<s>b\n');
    expect((await print(['a'])).stdout).toBe('<s>a\n');
    expect((await print(['a', '--chat-template-kwargs', '[1]'])).stderr).toContain('expected an object');
    const own = await print(['a', '--chat-template-kwargs', '{"messages": []}']);
    expect(own.stderr).toContain('every conversation has its own messages');
    expect((await print(['a', '--chat-template-kwargs', '{'])).stderr).toContain('not valid JSON');
  });
});
