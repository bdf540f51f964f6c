/** Texts that are asked to be something, through the link: another thread follows grammars, and may end at any time. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RequestEvent } from '../../../engine/request.js';
import type { GrammarSource } from '../../../grammar/source.js';
import { compile } from '../../../grammar/tokens/compile.js';
import type { Drafter } from '../../../draft/drafter.js';
import { describeTokenizer } from '../../../models/tokenizer/files.js';
import type { ApiError } from '../../../serve/apiError.js';
import type { GrammarModel, GrammarThreadData, ToGrammars } from '../../../serve/link/grammarMessages.js';
import { grammarVocabulary, GrammarWork } from '../../../serve/link/grammarWork.js';
import { GrammarGuides, type GrammarPort, type GuidesOptions } from '../../../serve/link/guides.js';
import { defined } from '../../../system/defined.js';
import { grammarPort } from '../../support/grammarPort.js';
import { DEMO, type Served, servedModels } from '../../support/servedModels.js';
import { isThorough } from '../../support/thorough.js';

const MODEL: GrammarModel = {
  key: 'model',
  vocabSize: 4096,
  eosTokenIds: [2],
  tokenizer: describeTokenizer(DEMO).spec,
};
const text = (of: string): GrammarSource => ({ kind: 'text', text: of });
const COLOURS: GrammarSource = { kind: 'choice', of: ['red', 'green', 'a darker blue'].map(text) };
const LIST: GrammarSource = {
  kind: 'sequence',
  of: [text('['), { kind: 'repeat', of: { kind: 'choice', of: [text('12,'), text('7,')] }, min: 2, max: 9 }, text(']')],
};
const UNTIL: GrammarSource = { kind: 'until', text: '.' };

const open: { close(): Promise<void> }[] = [];
afterEach(async () => void (await Promise.all(open.splice(0).map((each) => each.close()))));

function served(
  options: GuidesOptions = { start: grammarPort },
  keptRows?: number,
  drafter?: Drafter,
): Served & { guides: GrammarGuides } {
  const guides = new GrammarGuides([MODEL], options);
  const drafts = drafter && { drafter, tokens: 6 };
  const made = servedModels({
    guides,
    ...defined({ drafts }),
    path: { maxLength: 300, ...(keptRows ? { limits: { keptRows } } : {}) },
  });
  open.push(made, guides);
  return Object.assign(made, { guides });
}

/** The text that a request gives, or its error. */
async function textOf({ client, model }: Served, grammar: GrammarSource | undefined, seed: number): Promise<string> {
  const events: RequestEvent[] = [];
  await new Promise<void>((resolve, reject) => {
    const running = client.submit(
      {
        kind: 'generate',
        model: 'model',
        prompt: [5, seed + 9],
        maxNewTokens: 60,
        stopTokens: model.eosTokenIds,
        sampling: { temperature: 1, seed },
        grammar,
      },
      {
        onEvents: (told) => {
          events.push(...told);
          running.acknowledge(told.length);
          if (told.some(({ kind }) => kind === 'end' || kind === 'failed')) resolve();
        },
        onRefused: reject,
      },
    );
  });
  const last = events.at(-1)!;
  if (last.kind === 'failed') return `failed: ${last.error.message}`;
  if (last.kind !== 'end' || (grammar !== undefined && last.result.reason !== 'eos'))
    return `ended early: ${last.kind}`;
  return model.texts.detokenizer.decode(last.result.tokens.map(({ token }) => token));
}

const ASKED: readonly (GrammarSource | undefined)[] = [COLOURS, LIST, undefined, COLOURS, LIST, UNTIL];
const many = (server: Served, count = 24): Promise<string[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => textOf(server, ASKED[i % ASKED.length], i)));

/**
 * Proposes what came of a prompt before, behind drafts that may not come, wrong ones, and beside some; and anything
 * where nothing came yet.
 */
function remembering(): Drafter {
  const known = new Map<string, readonly number[]>();
  return {
    name: 'remembering',
    begin: ({ tokens: prompt, promptLength }) => {
      const key = prompt.slice(0, promptLength).join();
      return {
        propose: ({ tokens }) => {
          const coming = (known.get(key) ?? [7, 8, 9]).slice(tokens.length - promptLength).slice(0, 4);
          const wrong = tokens.length % 3 === 0 ? [coming[0] ?? 5, 2, 11] : [3];
          return {
            tokens: [...wrong, ...coming],
            parents: [...wrong.map((_, i) => i - 1), ...coming.map((_, i) => (i === 0 ? -1 : wrong.length + i - 1))],
          };
        },
        end: ({ tokens }) => void known.set(key, tokens.slice(promptLength)),
      };
    },
  };
}

/** What `many` gives where nothing happens. */
let together: readonly string[];
beforeAll(async () => {
  const server = served();
  together = await many(server);
  await server.close();
});

describe('the work of the thread', () => {
  const vocabulary = grammarVocabulary(MODEL);
  const begin = (state: number, source: GrammarSource, tokens: readonly number[] = []) => ({
    ...{ state, model: 'model', source },
    tokens: Int32Array.from(tokens),
  });
  const idle = { check: [], begin: [], take: [], look: [], close: new Int32Array(0) };
  const take = (state: number, ...tokens: number[]) => ({ state, tokens: Int32Array.from(tokens) });

  it('sends a mask once, and equal ones of other grammars not again', () => {
    const work = new GrammarWork(new Map([['model', vocabulary]]), new Int32Array(2));
    const answerOf = (message: Partial<ToGrammars>) => {
      work.add({ ...idle, ...message });
      while (!work.isIdle) work.next();
      return work.take();
    };
    const first = answerOf({ begin: [begin(1, UNTIL), begin(2, UNTIL)] });
    expect([[...first!.masks], first!.fresh.length]).toEqual([[1, 1, 2, 1], 1]);
    expect(first!.fresh[0]!.words).toEqual(compile(UNTIL, vocabulary).start().mask());
    // Any text, up to another mark that is no token.
    const same = answerOf({ begin: [begin(3, { kind: 'sequence', of: [UNTIL, text('x')] })] });
    expect([[...same!.masks], same!.fresh]).toEqual([[3, 1], []]);
    // Where a thread begins again, in the middle of texts.
    const r = vocabulary.bytes.findIndex((bytes) => bytes?.length === 1 && bytes[0] === 114);
    const later = answerOf({ begin: [begin(4, COLOURS, [r])] });
    expect(later!.fresh[0]!.words).toEqual(compile(COLOURS, vocabulary).start().take(r).mask());
    expect(work.counts.grammars).toBe(3);
    expect(answerOf({ close: Int32Array.of(1, 2, 3, 4), take: [take(1, 5)] })).toBeUndefined();
    expect(work.counts.states).toBe(0);
  });

  it('says what may come behind drafts, and follows no text further for it', () => {
    const work = new GrammarWork(new Map([['model', vocabulary]]), new Int32Array(2));
    const of = (letter: string): number =>
      vocabulary.bytes.findIndex((bytes) => bytes?.length === 1 && bytes[0] === letter.charCodeAt(0));
    const [r, e, d, x] = [of('r'), of('e'), of('d'), of('x')];
    work.add({ ...idle, begin: [begin(1, COLOURS)] });
    const drafts = { tokens: Int32Array.of(e, d, x, e, 2), parents: Int32Array.of(-1, 0, 0, 2, 1) };
    work.add({ ...idle, look: [{ question: 9, state: 1, taken: Int32Array.of(r), ...drafts }] });
    work.add({ ...idle, look: [{ question: 10, state: 5, taken: Int32Array.of(), ...drafts }] });
    while (!work.isIdle) work.next();
    const { looked, fresh, failed } = work.take()!;
    const words = new Map(fresh.map((each) => [each.mask, each.words]));
    expect(looked.map(({ question, state }) => [question, state])).toEqual([[9, 1]]);
    const behind = compile(COLOURS, vocabulary).start().take(r).take(e);
    expect(Array.from(looked[0]!.masks, (mask) => words.get(mask))).toEqual([
      behind.mask(),
      behind.take(d).mask(),
      ...[undefined, undefined, undefined],
    ]);
    // The next token is taken behind the first.
    work.add({ ...idle, take: [take(1, e)] });
    work.next();
    expect(words.get(work.take()!.masks[1]!)).toEqual(behind.mask());
    expect(failed).toEqual([]);
  });

  it('does what costs little before what costs much, and all in the end', () => {
    const work = new GrammarWork(new Map([['model', vocabulary]]), new Int32Array(2));
    work.add({ ...idle, begin: [begin(1, UNTIL)] });
    work.next();
    work.take();
    const check = Array.from({ length: 5 }, (_, i) => ({ question: 10 + i, model: 'model', source: text(`${i}`) }));
    const letter = vocabulary.bytes.findIndex((bytes) => bytes?.length === 1 && bytes[0] === 97);
    work.add({ ...idle, check, take: [take(1, letter)] });
    work.next();
    expect(work.take()!.masks[0]).toBe(1);
    while (!work.isIdle) work.next();
    expect([...work.take()!.checked].sort()).toEqual([10, 11, 12, 13, 14]);
  });

  it('says what is wrong with a grammar, and that a model is unknown', () => {
    const work = new GrammarWork(new Map([['model', vocabulary]]), new Int32Array(2));
    work.add({ ...idle, check: [{ question: 1, model: 'model', source: { kind: 'until', text: '' } }] });
    work.add({ ...idle, begin: [begin(2, COLOURS, [1, 1, 1]), { ...begin(3, COLOURS), model: 'other' }] });
    while (!work.isIdle) work.next();
    const failed = new Map(work.take()!.failed);
    expect(failed.get(1)).toEqual({ message: 'a text cannot go on up to an empty one' });
    expect(failed.get(2)).toEqual({ message: 'token 1 cannot come here' });
    expect(failed.get(3)).toMatchObject({ isFault: true });
    expect(work.counts.states).toBe(0);
  });
});

describe('a text that is asked to be something', () => {
  it('is that, and the same alone, among others, and with steps that overlap', async () => {
    for (const [i, found] of together.entries()) {
      if (ASKED[i % ASKED.length] === COLOURS) expect(found).toMatch(/^(red|green|a darker blue)$/);
      if (ASKED[i % ASKED.length] === LIST) expect(found).toMatch(/^\[((12|7),){2,9}\]$/);
    }
    expect(new Set(together).size).toBeGreaterThan(8);
    const server = served();
    for (const i of [0, 1, 2, 5, 9, 16]) expect(await textOf(server, ASKED[i % ASKED.length], i)).toBe(together[i]);
    const overlapping = served({ start: grammarPort }, 64);
    expect(await many(overlapping)).toEqual(together);
    expect([server.guides.size, overlapping.guides.size]).toEqual([0, 0]);
  });

  it('is the same where the thread ends meanwhile', async () => {
    let [things, threads] = [0, 0];
    const start = (data: GrammarThreadData): GrammarPort => {
      threads++;
      return grammarPort(data, () => {
        // Between two things, as if the machine had ended it.
        if ([7, 61, 140].includes(++things)) throw new Error('ended');
      });
    };
    const server = served({ start });
    expect(await many(server)).toEqual(together);
    expect([threads, server.guides.size]).toEqual([4, 0]);
  });

  it('is the same with drafts, of which it takes what may come, and needs fewer steps', async () => {
    const server = served({ start: grammarPort }, undefined, remembering());
    for (let turn = 0; turn < 2; turn++) expect(await many(server, 12)).toEqual(together.slice(0, 12));
    const { drafts, writtenTokens, writtenParts } = server.engine.statsOf('model');
    expect(drafts[0]!.accepted[0]).toBeGreaterThan(20);
    expect(writtenTokens / writtenParts).toBeGreaterThan(1.3);
    expect(server.guides.size).toBe(0);
  });

  it('is the same where looking at drafts ends the thread, or takes too long: it takes no more drafts', async () => {
    for (const way of ['ends', 'hangs'] as const) {
      let threads = 0;
      const most = way === 'ends' ? 4 : 1;
      const spoiled = new Set<number>();
      const start = (data: GrammarThreadData): GrammarPort => {
        threads++;
        return grammarPort(data, (_asked, [look]) => {
          if (look === undefined || spoiled.size >= most || look % 3 > 0) return;
          spoiled.add(look);
          Atomics.store(data.progress, 0, look);
          if (way === 'ends') throw new Error('out of memory');
          throw new Hang();
        });
      };
      const options = { start: way === 'ends' ? start : hanging(start), stallMs: 1 };
      const server = served(options, undefined, remembering());
      for (let turn = 0; turn < 2; turn++) expect(await many(server, 12)).toEqual(together.slice(0, 12));
      expect([spoiled.size, server.guides.size]).toEqual([most, 0]);
      expect(threads).toBeGreaterThanOrEqual(most);
    }
  });

  it('fails where following it ends the thread, or takes too long; others go on', async () => {
    for (const way of ['ends', 'hangs'] as const) {
      let [threads, things] = [0, 0];
      let poison: number | undefined;
      const start = (data: GrammarThreadData): GrammarPort => {
        threads++;
        return grammarPort(data, (asked) => {
          if (++things >= 30) poison ??= asked.at(-1);
          if (poison === undefined || !asked.includes(poison)) return;
          Atomics.store(data.progress, 0, poison);
          if (way === 'ends') throw new Error('out of memory');
          throw new Hang();
        });
      };
      const server = served({ start: way === 'ends' ? start : hanging(start), stallMs: 1 });
      const found = await many(server);
      const failed = found.flatMap((each, i) => (each === together[i] ? [] : [each]));
      const why = way === 'ends' ? 'Out of memory.' : 'What is asked of the text takes too long to follow.';
      expect(failed).toEqual([`failed: its guide failed: ${why}`]);
      expect([threads, server.guides.size]).toEqual([way === 'ends' ? 3 : 2, 0]);
    }
  });

  it('is refused before it begins where there is no such text', async () => {
    const { client, model, guides } = served();
    await expect(client.checkGrammar(model, COLOURS)).resolves.toBeUndefined();
    const refusal = await client.checkGrammar(model, { kind: 'until', text: '' }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ status: 400, message: 'A text cannot go on up to an empty one.' });
    const asked = Array.from({ length: 30 }, (_, i) => client.checkGrammar(model, text(`text ${i % 7}`)));
    await expect(Promise.all(asked)).resolves.toHaveLength(30);
    expect(guides.size).toBe(0);
  });

  it('fails once the thread cannot be started', async () => {
    const start = (data: GrammarThreadData): GrammarPort =>
      grammarPort(data, () => {
        throw new Error('no memory');
      });
    const { guides } = served({ start });
    const refusal = (await guides.check('model', COLOURS).catch((error: unknown) => error)) as ApiError;
    expect([refusal.status, refusal.message]).toEqual([500, 'The thread that follows grammars cannot be started.']);
    await guides.close();
    await expect(guides.check('model', COLOURS)).rejects.toMatchObject({ status: 503 });
  });
});

class Hang extends Error {}

/** A thread that says nothing more where it was told to hang. */
const hanging =
  (start: (data: GrammarThreadData) => GrammarPort) =>
  (data: GrammarThreadData): GrammarPort => {
    const port = start(data);
    return {
      ...port,
      on: (event: string, listener: unknown) =>
        event === 'error' ? undefined : (port.on as (name: string, each: unknown) => unknown)(event, listener),
    };
  };

const THREAD = join(import.meta.dirname, '..', '..', '..', 'dist', 'serve', 'link', 'grammarThread.js');

describe.runIf(isThorough && existsSync(THREAD))('the thread as it is built', () => {
  it('gives the same texts, and is replaced where somebody ends it', async () => {
    const workers: Worker[] = [];
    const start = (workerData: GrammarThreadData): GrammarPort => {
      workers.push(new Worker(THREAD, { workerData, resourceLimits: { maxOldGenerationSizeMb: 256 } }));
      return workers.at(-1)! as GrammarPort;
    };
    const server = served({ start });
    const running = many(server);
    await expect.poll(() => server.guides.size).toBeGreaterThan(0);
    await server.guides.check('model', COLOURS);
    void workers[0]!.terminate();
    expect(await running).toEqual(together);
    expect(await many(server)).toEqual(together);
    expect(workers.length).toBe(2);
  });
});
