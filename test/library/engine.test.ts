/** Engines as programs use them: from dist/, with the bundled model and a small one. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type * as Library from '../../index.js';
import { readSettings } from '../../settings.js';
import { quickCc, runFolder } from '../support/runFolder.js';
import { isThorough, thorough } from '../support/thorough.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const INDEX = join(ROOT, 'dist', 'index.js');
const isBuilt = [INDEX, join(ROOT, 'build', 'Release', 'tilewright.node')].every((path) => existsSync(path));
const hasCompiler = spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;

const MODEL = join(ROOT, 'models', 'demo');
/** Small steps have the fewest kernels to compile. */
const DEMO = { model: MODEL, target: 'cpu', precision: 'f32', threads: 2, batchTokens: 64 } as const;
const SHARED = join(ROOT, '..', 'shared');
const VERIFIER = join(SHARED, 'checkpoints', 'verifiers', 'qwen2-tokcls');
const GOLDEN = join(SHARED, 'golden', 'verifiers', 'qwen2-tokcls.jsonl');
const PROMPTS = ['The sky is', 'Two and two make', { tokens: [1, 402, 17] }];
const ASKED = { prompts: PROMPTS, n: 2, temperature: 1, seed: 5, maxNewTokens: 12, ignoreEos: true } as const;

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-engine-'));
  vi.stubEnv('TILEWRIGHT_CACHE', join(runFolder(), 'e2e-cache'));
  vi.stubEnv('TILEWRIGHT_CC', quickCc('-O1'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

const sorted = (events: readonly Library.GenerateEvent[]): readonly unknown[] =>
  events
    .filter((event) => event.kind === 'end')
    .map(({ prompt, sample, tokens, logProbs, reason }) => ({ prompt, sample, tokens, logProbs, reason }))
    .toSorted((a, b) => a.prompt - b.prompt || a.sample - b.sample);

async function all<E>(events: AsyncIterable<E>): Promise<E[]> {
  const found: E[] = [];
  for await (const event of events) found.push(event);
  return found;
}

describe.skipIf(!isBuilt || !hasCompiler)('an engine', async () => {
  const { openEngine } = isBuilt
    ? ((await import(pathToFileURL(INDEX).href)) as typeof Library)
    : ({} as typeof Library);

  thorough(
    'gives texts the bits that they have alone, whatever else comes and goes',
    async () => {
      const engine = await openEngine({ models: { a: { ...DEMO, cacheTokens: 4096 } } });
      try {
        const alone: Library.GenerateEvent[] = [];
        for (const [i, prompt] of PROMPTS.entries())
          for (const event of await all(engine.generate({ ...ASKED, prompts: [prompt] })))
            alone.push({ ...event, prompt: i });

        await engine.load('b', { ...DEMO, cacheTokens: 4096 });
        await expect(engine.load('b', DEMO)).rejects.toThrow('load: there is a model "b" already');
        const beside = all(engine.generate({ ...ASKED, model: 'a' }));
        const left = engine.generate({ ...ASKED, model: 'a', n: 4, seed: 9, maxNewTokens: 1000 });
        const long = engine.generate({ ...ASKED, model: 'b', maxNewTokens: 1000 });
        // This one reads an event and no more; that one leaves.
        await left.next();
        for await (const event of long) if (event.kind === 'token') break;
        expect(sorted(await beside)).toEqual(sorted(alone));

        await expect(engine.unload('a')).rejects.toMatchObject({
          message: expect.stringMatching(/^unload: model "a" has \d+ requests in work$/) as string,
          hint: expect.stringContaining('{ drain: true }') as string,
        });
        await engine.unload('b');
        expect(engine.models).toEqual(['a']);
        await left.return();
        expect(sorted(await all(engine.generate(ASKED)))).toEqual(sorted(alone));

        // What was generated is what the model finds when it is given.
        const [{ tokens, logProbs }] = sorted(alone) as [{ tokens: number[]; logProbs: number[] }];
        const [end] = await all(engine.score({ inputs: [{ prompt: PROMPTS[0]!, rows: [] }] }));
        const prompt = end?.kind === 'end' ? end.tokens : [];
        const events = await all(engine.score({ inputs: [{ prompt: { tokens: [...prompt, ...tokens] } }] }));
        const rows = events.filter((event) => event.kind === 'row').map(({ logProb }) => logProb);
        expect(rows.slice(prompt.length - 1)).toEqual(logProbs);
        expect(events.at(-1)).toMatchObject({ kind: 'end', reason: 'length' });

        // Rows in any order, of any target, with what is likelier.
        const position = prompt.length - 1;
        const asked = [{ position, target: tokens[0]!, top: 3 }, { position: 0, target: 9 }, { position }];
        const found = await all(engine.score({ inputs: [{ prompt: { tokens: [...prompt] }, rows: asked }] }));
        expect(found.at(-1)).toMatchObject({ kind: 'end', tokens: prompt });
        const isRow = (at: number, hasTarget: boolean) => (event: Library.RowEvent) =>
          event.kind === 'row' && event.position === at && 'logProb' in event === hasTarget;
        const [zero, target, last] = [isRow(0, true), isRow(position, true), isRow(position, false)].map((is) =>
          found.find(is),
        );
        expect(zero).toMatchObject({ kind: 'row', position: 0, logProb: expect.any(Number) as number });
        expect(target).toMatchObject({ kind: 'row', position, logProb: logProbs[0] });
        if (target?.kind !== 'row' || last?.kind !== 'row') throw new Error('There are rows.');
        expect(target.top).toHaveLength(3);
        expect(target.top![0]).toEqual(target.argmax);
        expect(last.argmax).toEqual(target.argmax);
      } finally {
        await engine.close();
      }
      await expect(engine.generate(ASKED).next()).rejects.toThrow('generate: the engine is closed');
    },
    120_000,
  );

  it('ends what is late, and refuses with one line what cannot mean anything', async () => {
    const engine = await openEngine({ models: { demo: { ...DEMO, cacheTokens: 4096 } }, queueLimit: 4 });
    try {
      const late = await all(engine.generate({ ...ASKED, n: 1, maxNewTokens: 900, deadline: 1 }));
      expect(late.filter(({ kind }) => kind === 'end')).toMatchObject([1, 2, 3].map(() => ({ reason: 'deadline' })));
      const refused: readonly (readonly [() => AsyncGenerator, string])[] = [
        [() => engine.generate({ ...ASKED, deadline: new Date(0) }), 'deadline: 1970-01-01T00:00:00.000Z has passed'],
        [() => engine.generate({ ...ASKED, model: 'other' }), 'generate: there is no model "other"'],
        [() => engine.generate({ ...ASKED, priority: 0.5 }), 'engine.generate: priority: '],
        [() => engine.generate({ ...ASKED, n: 5 }), 'submit: 0 wait for the model already, and the limit is 4'],
        [() => engine.score({ inputs: [{ prompt: 'a', rows: [{ position: 99 }] }] }), 'rows: position 99 is outside'],
        [() => engine.generate({ ...ASKED, prompts: [{ tokens: Array(600).fill(5) }] }), "the model's context has 512"],
        [() => engine.score({ inputs: [] }), 'engine.score: inputs: '],
      ];
      for (const [ask, message] of refused) await expect(ask().next()).rejects.toThrow(message);
    } finally {
      await engine.close();
    }
    await expect(openEngine({ models: { demo: { model: join(folder, 'none') } } })).rejects.toThrow('none');
  }, 120_000);

  it.skipIf(!isThorough || !existsSync(VERIFIER))(
    'scores solutions with a verifier while another model writes, and searches with both',
    async () => {
      const lines = readFileSync(GOLDEN, 'utf8').trim().split('\n').slice(0, 6);
      const golden = lines.map(
        (line) =>
          JSON.parse(line) as Record<'tokens' | 'rows' | 'scores', number[]> & { question: string; steps: string[] },
      );
      const engine = await openEngine({
        models: { prm: { model: VERIFIER, target: 'cpu', precision: 'f32', threads: 1 }, demo: DEMO },
      });
      try {
        const writing = all(engine.generate({ ...ASKED, model: 'demo' }));
        const inputs = golden.flatMap(({ question, steps, tokens, rows }) => [
          { question, steps },
          { tokens, rows },
        ]);
        const events = await all(engine.reward({ model: 'prm', inputs }));
        expect(events).toHaveLength(inputs.length);
        for (const event of events) {
          if (event.kind === 'failed') throw new Error(event.error);
          const { scores, tokens } = golden[event.input >> 1]!;
          expect(event.tokens).toEqual(tokens);
          // The goldens have rotary frequencies of bf16 (test/e2e/verifiers.test.ts).
          event.scores.forEach((score, i) => expect(score).toBeCloseTo(scores[i]!, 1));
          expect(event.scores).toHaveLength(scores.length);
        }
        expect((await writing).filter(({ kind }) => kind === 'end')).toHaveLength(6);
        const searching: Library.EngineSearchOptions = {
          problems: ['What is 2 + 2?', { problem: 'And 3?', answer: '3', id: 'three' }],
          ...({ generator: 'demo', verifier: 'prm', method: 'beam', n: 4, width: 2, system: 'none' } as const),
          iterations: 2,
          stepTokens: 4,
        };
        const search = async (more: object): Promise<Library.SearchEvent[]> =>
          (await all(engine.search({ ...searching, ...more }))).toSorted((a, b) => a.problem - b.problem);
        const found = await search({});
        expect(await search({ atOnce: 1, speculate: 'on' })).toEqual(found);
        expect(found).toMatchObject([
          { kind: 'result', problem: 0, result: { picked: expect.any(Number) as number } },
          { kind: 'result', problem: 1, isRight: false },
        ]);
        for (const event of found)
          if (event.kind === 'result') expect(event.text).toBe(event.result.candidates[event.result.picked!]!.text);
        // A reader that leaves ends the search.
        for await (const _ of engine.search({ ...searching, iterations: 3, atOnce: 1 })) break;
        const refused: readonly (readonly [() => AsyncGenerator, string])[] = [
          [() => engine.reward({ model: 'demo', inputs: [{ tokens: [1] }] }), 'nothing says that it is a verifier'],
          [() => engine.generate({ ...ASKED, model: 'prm' }), 'the model has a head of 2 classes and gives no tokens'],
          [() => engine.reward({ model: 'prm', inputs: [{}] }), 'inputs[0]: there is nothing to score'],
          [() => engine.reward({ model: 'prm', inputs: [{ tokens: [1], rows: [1] }] }), 'inputs[0]: rows: 1 is behind'],
          [() => engine.search({ ...searching, n: 0 }), 'engine.search: n: expected a whole number'],
          [() => engine.search({ ...searching, generator: 'prm' }), 'verifier: it is the generator'],
          [() => engine.search({ ...searching, verifier: 'demo', generator: 'prm' }), 'gives 2 classes, no tokens'],
          [() => engine.search({ ...searching, problems: [{ problem: '' }] }), 'problems[0]: problem: expected a text'],
        ];
        for (const [ask, message] of refused) await expect(ask().next()).rejects.toThrow(message);
      } finally {
        await engine.close();
      }
    },
    120_000,
  );

  const example = join(ROOT, 'examples', 'engine.mjs');

  it('has the example that docs/engine.md shows', () => {
    expect(readFileSync(join(ROOT, 'docs', 'engine.md'), 'utf8')).toContain(readFileSync(example, 'utf8'));
  });

  thorough(
    'runs the example',
    () => {
      const { status, stdout, stderr } = spawnSync(process.execPath, [example], {
        cwd: ROOT,
        encoding: 'utf8',
        env: {
          PATH: readSettings().path,
          HOME: folder,
          TILEWRIGHT_CACHE: join(runFolder(), 'e2e-cache'),
          TILEWRIGHT_CC: quickCc('-O1'),
        },
      });
      expect(status, stderr).toBe(0);
      const lines = stdout.trimEnd().split('\n');
      expect(lines).toHaveLength(3);
      for (const line of lines)
        expect(line).toMatch(/^(The sky is|Two and two make|A cat likes to) .+ \(-\d\.\d\d, the best of 4\)$/);
    },
    120_000,
  );
});
