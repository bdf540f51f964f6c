/** The library as programs use it: from dist/, with the bundled model. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type * as Library from '../../index.js';
import { readSettings } from '../../settings.js';
import { quickCc, runFolder } from '../support/runFolder.js';
import { thorough } from '../support/thorough.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const INDEX = join(ROOT, 'dist', 'index.js');
const isBuilt = [INDEX, join(ROOT, 'build', 'Release', 'tilewright.node')].every((path) => existsSync(path));
const hasCompiler = spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;
if (!isBuilt) console.warn('SKIPPED test/library: dist/ or the addon is missing; run npm run build');

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-library-'));
  // As for end-to-end tests, whose kernels these are too.
  vi.stubEnv('TILEWRIGHT_CACHE', join(runFolder(), 'e2e-cache'));
  vi.stubEnv('TILEWRIGHT_CC', quickCc('-O1'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const DEMO = join(ROOT, 'models', 'demo');
/** Small steps have the fewest kernels to compile. */
const SMALL = { model: DEMO, target: 'cpu', precision: 'f32', threads: 2, batchTokens: 64 } as const;
const EVERYDAY = join(ROOT, 'examples', 'everyday.jsonl');
const RECORDS = readFileSync(EVERYDAY, 'utf8')
  .split('\n')
  .slice(0, 6)
  .map((line) => JSON.parse(line) as Record<string, unknown>);

describe.skipIf(!isBuilt || !hasCompiler)('the library', async () => {
  const { openModel, quantize, run, Interrupted } = isBuilt
    ? ((await import(pathToFileURL(INDEX).href)) as typeof Library)
    : ({} as typeof Library);

  thorough(
    'runs the examples of docs/library.md',
    () => {
      const text = readFileSync(join(ROOT, 'docs', 'library.md'), 'utf8');
      const [scoring = '', generating = ''] = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, example]) => example);
      const { stdout, stderr } = runExample(scoring);
      expect(stdout).toMatch(/^question 0: .+\nquestion 1: .+\naccuracy 0\.\d\d ± 0\.\d\d\n$/);
      expect(stderr).toMatch(/^20 of 20$/m);
      expect(runExample(generating).stdout.trimEnd().split('\n').sort()).toEqual([
        expect.stringMatching(/^prompt 0 \((length|stop|eos)\): \S/) as string,
        expect.stringMatching(/^prompt 1 \((length|stop|eos)\):/) as string,
      ]);
    },
    120_000,
  );

  function runExample(example: string): { readonly stdout: string; readonly stderr: string } {
    const file = join(folder, 'example.mjs');
    writeFileSync(file, example.replace("'tilewright'", JSON.stringify(pathToFileURL(INDEX).href)));
    const { status, stdout, stderr } = spawnSync(process.execPath, [file], {
      cwd: ROOT,
      encoding: 'utf8',
      env: { PATH: readSettings().path, HOME: folder, TILEWRIGHT_CACHE: join(runFolder(), 'e2e-cache') },
    });
    expect(status, stderr).toBe(0);
    return { stdout, stderr };
  }

  thorough('generates, and scores in two phases: options checked, an end for whoever leaves or aborts', async () => {
    const model = await openModel({ ...SMALL, cacheTokens: 4096 });
    const all = async (options: Library.GenerateOptions): Promise<Library.GenerateEvent[]> => {
      const events: Library.GenerateEvent[] = [];
      for await (const event of model.generate(options)) events.push(event);
      return events;
    };
    try {
      const options = { prompts: ['The sky is'], maxNewTokens: 5, ignoreEos: true };
      const [one, same] = await Promise.all([all(options), all({ ...options, prompts: [{ prompt: 'The sky is' }] })]);
      expect(one.map(({ kind }) => kind)).toEqual([...Array.from({ length: 5 }, () => 'token'), 'end']);
      // The first tokens of a prompt in work are copied for another that begins alike.
      const apart = (events: Library.GenerateEvent[]) => events.map((event) => ({ ...event, foundTokens: 0 }));
      expect(apart(same)).toEqual(apart(one));
      expect(one.at(-1)).toMatchObject({ prompt: 0, reason: 'length' });
      for await (const event of model.generate({ ...options, maxNewTokens: 2000 })) {
        expect(event.kind).toBe('token');
        break;
      }
      expect(await all({ ...options, signal: AbortSignal.abort() })).toMatchObject([
        { kind: 'end', reason: 'aborted' },
      ]);
      const set = { task: 'hellaswag', data: EVERYDAY, limit: 10 } as const;
      const [trees, phases] = [await model.score(set), await model.score({ ...set, sharing: 'kv' })];
      expect(phases.answers).toEqual(trees.answers);
      expect(phases.results['config']).toMatchObject({ sharing: 'kv' });
      await expect(all({ prompts: [] })).rejects.toThrow('generate: prompts: ');
      await expect(all({ prompts: ['a'], maxNewTokens: 0 })).rejects.toThrow('generate: maxNewTokens: ');
      await expect(all({ prompts: [{ tokens: [99_999] }] })).rejects.toThrow('prompts[0]: token 99999: the model has');
    } finally {
      await model.close();
    }
    await expect(all({ prompts: ['a'] })).rejects.toThrow('generate: the model is closed');
    const filtering = await openModel({ ...SMALL, cacheTokens: 512, logits: true });
    try {
      const written = async (structure: NonNullable<Library.GenerateOptions['structure']>): Promise<string> => {
        const asked = { prompts: ['The sky is'], maxNewTokens: 80, temperature: 1, seed: 5, structure };
        let text = '';
        for await (const event of filtering.generate(asked)) if (event.kind !== 'failed') text += event.text;
        return text;
      };
      const properties = {
        colour: { type: 'string', maxLength: 8 },
        height: { type: 'integer', minimum: 0, maximum: 9 },
      };
      const json = { type: 'object', properties, required: ['colour', 'height'], additionalProperties: false };
      expect(JSON.parse(await written({ json }))).toEqual({
        colour: expect.stringMatching(/^.{0,8}$/su) as string,
        height: expect.any(Number) as number,
      });
      expect(['blue', 'grey']).toContain(await written({ choice: ['blue', 'grey'] }));
      await expect(written({ json: { type: 'string', format: 'regex' } })).rejects.toThrow('/format');
    } finally {
      await filtering.close();
    }
    const scoring = await openModel(SMALL);
    await expect(scoring.generate({ prompts: ['a'] }).next()).rejects.toMatchObject({
      name: 'UsageError',
      hint: expect.stringContaining('cacheTokens') as string,
    });
    await expect(scoring.score({ task: 'hellaswag', data: EVERYDAY, sharing: 'kv' })).rejects.toThrow(
      'score: sharing kv keeps the keys and values of contexts',
    );
    await scoring.close();
  });

  it('opens a model once and scores many sets; files and records give the same answers', async () => {
    const model = await openModel({ ...SMALL, cacheTokens: 4096 });
    try {
      const heard: Library.ProgressEvent[] = [];
      const options = { task: 'hellaswag', docs: [{ first: 0, end: 6 }] } as const;
      // Both at once: the second waits.
      const [file, memory] = await Promise.all([
        model.score({ ...options, data: EVERYDAY, onProgress: (event) => heard.push(event) }),
        model.score({ task: 'hellaswag', data: RECORDS, output: join(folder, 'out') }),
      ]);
      expect(memory.answers).toEqual(file.answers);
      expect(file.answers).toHaveLength(6);
      expect(file.answers[0]!.logLikelihoods).toHaveLength(4);
      expect(file.accuracy).toEqual(memory.accuracy);
      expect(file.files).toBeUndefined();
      expect(existsSync(memory.files!.results)).toBe(true);
      expect(heard.at(-1)).toMatchObject({ kind: 'scored', questionsDone: 6, questionsTotal: 6 });
      await expect(
        model.score({ task: 'hellaswag', data: RECORDS, signal: AbortSignal.abort() }),
      ).rejects.toBeInstanceOf(Interrupted);
      await expect(model.score({ task: 'hellaswag', data: [{ ctx: 1 }] })).rejects.toThrow(/^data\[0\]: /);
    } finally {
      await model.close();
      await model.close();
    }
    await expect(model.score({ task: 'hellaswag', data: RECORDS })).rejects.toThrow('score: the model is closed');
  });

  thorough(
    'keeps prefixes where it is told to, with the same answers; texts do not trust what it overwrote',
    async () => {
      const shots = 'The sky is blue. Grass is green. Snow is white. Coal is black. '.repeat(18);
      const data = Array.from({ length: 160 }, (_, i) => ({
        context: `${shots}${['A lemon', 'A rose', 'The sea', 'Night'][i % 4]!} number ${i} is`,
        choices: ['yellow', 'red', 'blue'],
        label: i % 3,
      }));
      // Its keys and values lie where those of the questions will.
      const tale = 'Once upon a time there was a king who had three sons. '.repeat(9);
      const model = await openModel({ model: DEMO, target: 'cpu', threads: 1, batchTokens: 512, cacheTokens: 2048 });
      const score = (prefixes: 'auto' | 'keep' | 'repeat') => model.score({ task: 'multiple_choice', data, prefixes });
      const write = async (): Promise<readonly (readonly number[])[]> => {
        const logProbs: (readonly number[])[] = [];
        for await (const event of model.generate({ prompts: [tale], maxNewTokens: 6, ignoreEos: true }))
          if (event.kind === 'end') logProbs.push(event.tokens, event.logProbs);
        return logProbs;
      };
      const tokensOf = ({ results }: Library.ScoreResult): unknown =>
        (results as unknown as { readonly throughput: { readonly tokensComputed: number } }).throughput.tokensComputed;
      try {
        const text = await write();
        const repeated = await score('repeat');
        const [kept, between] = await Promise.all([score('keep'), write()]);
        expect(kept.answers).toEqual(repeated.answers);
        expect(tokensOf(kept)).toBeLessThan(0.6 * Number(tokensOf(repeated)));
        expect(between).toEqual(text);
        expect(await write()).toEqual(text);
        // So few tokens are not worth it.
        expect(tokensOf(await score('auto'))).toBe(tokensOf(repeated));
        await expect(model.score({ task: 'multiple_choice', data, prefixes: 'keep', sharing: 'none' })).rejects.toThrow(
          "prefixes 'keep': with sharing 'none'",
        );
      } finally {
        await model.close();
      }
      const small = await openModel({ model: DEMO, target: 'cpu', threads: 1, batchTokens: 512 });
      await expect(small.score({ task: 'multiple_choice', data, prefixes: 'keep' })).rejects.toMatchObject({
        name: 'UsageError',
        hint: expect.stringContaining('openModel({ …, cacheTokens: ') as string,
      });
      await small.close();
    },
    120_000,
  );

  thorough(
    'scores questions that are longer than a call, with the answers of larger calls',
    async () => {
      const tale = 'Once upon a time there was a king who had three sons. ';
      const data = [2, 9, 1, 14].map((times, i) => ({
        context: `${tale.repeat(times)}The ${['first', 'second', 'third', 'king'][i]!} was`,
        choices: ['old', 'brave and strong', 'asleep'],
        label: i % 3,
      }));
      const open = { model: DEMO, target: 'cpu', threads: 1 } as const;
      const answers = async (model: Library.Model, more: Partial<Library.ScoreOptions> = {}) =>
        (await model.score({ task: 'multiple_choice', data, ...more })).answers;
      const large = await openModel(open);
      const expected = await answers(large);
      await large.close();
      const small = await openModel({ ...open, batchTokens: 64, cacheTokens: 1024 });
      try {
        expect(await answers(small)).toEqual(expected);
        expect(await answers(small, { prefixes: 'keep' })).toEqual(expected);
        expect(await answers(small, { sharing: 'kv' })).toEqual(expected);
        await expect(answers(small, { prefixes: 'repeat' })).rejects.toThrow('but the largest micro-batch is 64');
      } finally {
        await small.close();
      }
      // A model that is opened for one set gets the memory that the questions need.
      const notes: string[] = [];
      const once = { ...open, task: 'multiple_choice', data, batchTokens: 64 } as const;
      const onProgress = (event: Library.ProgressEvent) => event.kind === 'note' && notes.push(event.text);
      expect((await run({ ...once, onProgress })).answers).toEqual(expected);
      expect(notes.join('\n')).toMatch(/prefixes: kept, .* since question 1 has 1\d\d; keys and values: room for 512/);
      expect((await run({ ...once, sharing: 'kv', cacheTokens: 512 })).answers).toEqual(expected);
      await expect(run({ ...once, prefixes: 'repeat' })).rejects.toThrow('but the largest micro-batch is 64');
      const without = await openModel({ ...open, batchTokens: 64 });
      await expect(answers(without)).rejects.toMatchObject({
        name: 'UsageError',
        message: expect.stringMatching(
          /question 1 has 1\d\d tokens, more than a call of 64: the model has memory/,
        ) as string,
        hint: expect.stringContaining('cacheTokens: ') as string,
      });
      await without.close();
    },
    120_000,
  );

  it('stops loading when told to', async () => {
    const controller = new AbortController();
    const stopped = run({
      model: DEMO,
      task: 'hellaswag',
      data: EVERYDAY,
      signal: controller.signal,
      onProgress: (event) => {
        if (event.kind === 'phase') controller.abort();
      },
    });
    await expect(stopped).rejects.toBeInstanceOf(Interrupted);
  });

  it.each([
    [{ task: 'hellaswag', data: EVERYDAY }, 'run: model: '],
    [{ model: DEMO, task: 'helaswag', data: EVERYDAY }, 'run: task: expected one of hellaswag, '],
    [{ model: DEMO, task: 'hellaswag', data: 7 }, 'run: data: '],
    [{ model: DEMO, task: 'hellaswag', data: EVERYDAY, treads: 2 }, 'run: options: Unrecognized key: "treads"'],
    [{ model: DEMO, task: 'hellaswag', data: EVERYDAY, docs: [{ first: -1 }] }, 'run: docs[0].first: '],
    [{ model: DEMO, task: 'hellaswag', data: EVERYDAY, docs: [{ first: 5, end: 5 }] }, 'run: docs[0]: expected an end'],
    [{ model: DEMO, task: 'hellaswag', data: EVERYDAY, docs: [] }, 'run: docs: '],
    [{ model: DEMO, task: 'hellaswag', data: EVERYDAY, limit: 1.5 }, 'run: limit: expected a count'],
    [{ model: DEMO, task: 'hellaswag', data: EVERYDAY, onProgress: 1 }, 'run: onProgress: expected a function'],
    [undefined, 'run: options: '],
  ])('refuses %j', async (options, message) => {
    await expect(run(options as Library.RunOptions)).rejects.toMatchObject({
      name: 'UsageError',
      message: expect.stringContaining(message) as string,
    });
  });

  thorough('quantizes a checkpoint, and scores with it', async () => {
    const output = join(folder, 'int8');
    const { matrices } = await quantize({ model: DEMO, output, method: 'round', bits: 8, group: 64 });
    expect(matrices.length).toBe(56);
    const asked = { task: 'hellaswag', data: RECORDS, precision: 'f32', target: 'cpu' } as const;
    const [exact, coded] = [await run({ ...asked, model: DEMO }), await run({ ...asked, model: output })];
    coded.answers.forEach(({ logLikelihoods }, question) =>
      logLikelihoods.forEach((value, choice) =>
        expect(Math.abs(value - exact.answers[question]!.logLikelihoods[choice]!)).toBeLessThan(2),
      ),
    );
    expect(coded.answers).not.toEqual(exact.answers);
    await expect(quantize({ model: DEMO, output: join(folder, 'other') })).rejects.toThrow('needs a calibration text');
    const wrong = { model: DEMO, output, group: 48 } as unknown as Library.QuantizeOptions;
    await expect(quantize(wrong)).rejects.toMatchObject({ name: 'UsageError', message: /^quantize: group: / });
  });

  it('says what maxTokens is called', async () => {
    const open = { model: DEMO, maxTokens: 512 };
    await expect(openModel(open)).rejects.toMatchObject({ message: /^openModel: maxTokens: /, hint: /batchTokens/ });
  });

  it('refuses an empty list of questions', async () => {
    const model = { model: DEMO, target: 'cpu' } as const;
    await expect(run({ ...model, task: 'hellaswag', data: [] })).rejects.toThrow('data: there are no questions');
  });
});
