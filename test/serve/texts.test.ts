/** Texts in threads of their own, within bounds. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { EncodeThread } from '../../serve/texts/encodeThread.js';
import { openTexts } from '../../serve/texts/modelTexts.js';
import { DEMO } from '../support/servedModels.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-texts-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A thread that does what a text says. */
const module = join(folder, 'worker.mjs');
writeFileSync(
  module,
  `import { parentPort, threadId } from 'node:worker_threads';
   parentPort.on('message', ({ texts: [text] }) => {
     if (text === 'hang') for (;;);
     if (text === 'end') process.exit(3);
     if (text === 'grow') for (const all = [];;) all.push(new Array(1e5).fill(0));
     if (text === 'refuse') return parentPort.postMessage({ error: 'no', isRefused: true });
     parentPort.postMessage({ ids: [Int32Array.of(threadId)] });
   });
   parentPort.postMessage({ ids: [] });`,
);
const thread = (jobs = 8, milliseconds = 20_000): EncodeThread =>
  new EncodeThread(describeTokenizer(DEMO).spec, pathToFileURL(module), {
    milliseconds,
    startMs: 60_000,
    jobs,
    heapMib: 32,
  });
const job = (text: string) => ({ texts: [text], addSpecialTokens: true });

describe('a thread that encodes', () => {
  it('is the same for one text after another, also when one is refused', async () => {
    const own = thread();
    const [first] = await own.encode(job('a'));
    await expect(own.encode(job('refuse'))).rejects.toMatchObject({ status: 400 });
    expect(await own.encode(job('b'))).toEqual([first]);
    await own.close();
  });

  it.each([
    ['hang', 500, 'it takes more than 0.5 seconds'],
    ['end', 20_000, 'its thread ended'],
    ['grow', 20_000, 'it takes too much memory'],
  ])('is another one after a text that makes it %s', async (text, milliseconds, why) => {
    const own = thread(8, milliseconds);
    const failing = own.encode(job(text));
    const next = own.encode(job('a'));
    await expect(failing).rejects.toMatchObject({ status: 400, message: `The text cannot be tokenized: ${why}.` });
    expect(await next).toHaveLength(1);
    await own.close();
  });

  it('takes so many texts at a time', async () => {
    const own = thread(2);
    const taken = [own.encode(job('a')), own.encode(job('b'))];
    await expect(own.encode(job('c'))).rejects.toMatchObject({ status: 429 });
    await Promise.all(taken);
    expect(await own.encode(job('d'))).toHaveLength(1);
    await own.close();
  });
});

describe('texts of a model', () => {
  const { spec, bos, eos } = describeTokenizer(DEMO);
  const open = (maxLength = 1000) =>
    openTexts({ path: DEMO, tokenizer: spec, bounds: { ...(bos && { bos }), ...(eos && { eos }) } }, maxLength);

  it('are encoded as the tokenizer does it, short or long', async () => {
    const texts = open();
    const tokenizer = openTokenizer(DEMO);
    for (const text of ['Once upon a time', 'A line, and one more.\n'.repeat(2000)]) {
      const [withOwn] = await texts.encode([text]);
      expect(withOwn).toEqual(await tokenizer.encode(text));
      expect(await texts.encode([text, 'b'], false)).toEqual([
        await tokenizer.encodeWritten(text),
        await tokenizer.encodeWritten('b'),
      ]);
    }
    await texts.close();
  });

  it('that no context can hold are refused before they are encoded', async () => {
    const texts = open(10);
    await expect(texts.encode(['x'.repeat(2561)])).rejects.toMatchObject({
      status: 400,
      options: { code: 'context_length_exceeded' },
    });
    await texts.close();
  });

  it('name the end of a text in what describes the tokenizer', async () => {
    const texts = openTexts({ path: DEMO, tokenizer: spec, bounds: { eos: { id: 2, text: '</s>' } } }, 10);
    expect(texts.tokenizerInfo).toEqual({ eos_token: '</s>' });
    await texts.close();
  });

  it('have no conversations without a template', async () => {
    const texts = open();
    const chat = { messages: [], addGenerationPrompt: true, continueFinalMessage: false, variables: {} };
    await expect(texts.renderChat(chat)).rejects.toMatchObject({ status: 400 });
    await texts.close();
  });
});
