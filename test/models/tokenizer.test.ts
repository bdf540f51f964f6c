import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { jsonOf } from '../../models/tokenizer/files.js';
import { createTokenizer, deferredTokenizer, openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { DEMO, temporaryFolder, userError } from './support.js';
import { tokenizerFolder, TOY } from './tokenizerFolder.js';

const demoJson = (): Record<string, unknown> =>
  JSON.parse(readFileSync(join(DEMO, 'tokenizer.json'), 'utf8')) as Record<string, unknown>;

describe('openTokenizer', () => {
  it('opens the bundled one', async () => {
    const tokenizer = openTokenizer(DEMO);
    expect(tokenizer.vocabSize).toBe(4096);
    expect(tokenizer.spec).toEqual({ kind: 'file', path: join(DEMO, 'tokenizer.json'), digest: tokenizer.hash });
    expect(tokenizer.hash).toMatch(/^[0-9a-f]{64}$/);
    const texts = ['A man is', '', 'éé\u{1F600}', '  '];
    const each = await Promise.all(texts.map((text) => tokenizer.encode(text)));
    expect(await tokenizer.encodeBatch(texts)).toEqual(each);
    for (const ids of each) expect(ids[0]).toBe(1);
    expect(each[1]).toEqual([1]);
    const tokens = demoJson()['model'] as { vocab: Record<string, number> };
    expect(each[0]).toEqual([1, ...['A', 'Ġman', 'Ġis'].map((token) => tokens.vocab[token])]);
  });

  it('waits, where it is deferred, for the first text', async () => {
    const { spec } = openTokenizer(DEMO);
    const tokenizer = deferredTokenizer(spec);
    const ids = await tokenizer.encode('A man is');
    expect(ids).toEqual(await createTokenizer(spec).encode('A man is'));
    expect(await tokenizer.encodeBatch(['A man is'])).toEqual([ids]);
    expect(await tokenizer.encodeWritten('A man is')).toEqual(ids.slice(1));
    expect(tokenizer.detokenizer().decode(ids)).toBe('A man is');
    const gone = deferredTokenizer({ kind: 'json', text: '{', where: 'tokenizer.json' });
    await expect(gone.encode('a')).rejects.toThrow('tokenizer.json');
  });

  it('gives the same tokens through a spec that was posted to another thread', async () => {
    for (const dir of [DEMO, tokenizerFolder({ 'tokenizer.model': TOY })]) {
      const here = openTokenizer(dir);
      const text = 'a a';
      expect(await createTokenizer(structuredClone(here.spec)).encode(text)).toEqual(await here.encode(text));
      // The native package itself, loaded a second time in a thread of this process.
      const worker = new Worker(
        `const { parentPort, workerData } = require('node:worker_threads');
         const { Tokenizer } = require(workerData.module);
         const { json, text } = workerData;
         const tokenizer = Tokenizer.fromString(json);
         tokenizer.encode(text).then((encoding) => parentPort.postMessage(encoding.getIds()));`,
        {
          eval: true,
          workerData: {
            json: String(jsonOf(here.spec)),
            text,
            module: join(DEMO, '..', '..', 'node_modules', 'tokenizers'),
          },
        },
      );
      const ids = await new Promise((done, fail) => worker.once('message', done).once('error', fail));
      await worker.terminate();
      expect(ids).toEqual(await here.encode(text));
    }
  });

  it('never truncates or pads, whatever the file asks for', async () => {
    const plain = openTokenizer(DEMO);
    const dir = tokenizerFolder({
      'tokenizer.json': {
        ...demoJson(),
        truncation: { direction: 'Right', max_length: 4, strategy: 'LongestFirst', stride: 0 },
        padding: {
          strategy: { Fixed: 64 },
          direction: 'Right',
          pad_to_multiple_of: null,
          pad_id: 0,
          pad_type_id: 0,
          pad_token: '<unk>',
        },
      },
    });
    const text = 'A man is standing in a kitchen.';
    expect(await openTokenizer(dir).encode(text)).toEqual(await plain.encode(text));
  });

  it('says what is wrong', () => {
    const empty = temporaryFolder();
    expect(userError(() => openTokenizer(empty)).message).toBe(
      `${empty}: found no tokenizer: neither tokenizer.json nor tokenizer.model, ` +
        'tekken.json, or vocab.json and merges.txt',
    );
    const withJson = (value: unknown): string =>
      userError(() => openTokenizer(tokenizerFolder({ 'tokenizer.json': value }))).message;
    expect(withJson(Buffer.from('{"model": '))).toContain('not valid JSON');
    expect(withJson([])).toContain('no "model": not a tokenizer.json');
    expect(withJson({ model: { type: 'BPE' } })).toContain('model.vocab: expected an object');
    const merges = [['a', 'c']];
    expect(withJson({ model: { type: 'BPE', vocab: { a: 0 }, merges } })).toMatch(
      /not a tokenizer that can be read: a merge needs "a?c", which is not in the vocabulary$/,
    );
    expect(withJson({ ...demoJson(), model: { ...(demoJson()['model'] as object), dropout: 0.1 } })).toContain(
      'model.dropout is 0.1',
    );
    expect(userError(() => createTokenizer({ kind: 'file', path: join(empty, 'gone.json') })).message).toContain(
      'gone.json: no such file',
    );
  });
});
