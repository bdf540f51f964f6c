import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { createTokenizer, findTokenizer, jsonOf, openTokenizer } from '../../models/tokenizer.js';
import { sentencePieceModel, toyPieces } from './sentencepieceWriter.js';
import { DEMO, temporaryFolder, userError, writeJson } from './support.js';

const demoJson = (): Record<string, unknown> =>
  JSON.parse(readFileSync(join(DEMO, 'tokenizer.json'), 'utf8')) as Record<string, unknown>;
const TOY = sentencePieceModel({ pieces: [...toyPieces, ['▁', -1], ['a', -2], ['▁a', -3]] });

function folder(files: Record<string, unknown>): string {
  const dir = temporaryFolder();
  for (const [name, content] of Object.entries(files)) {
    if (content instanceof Uint8Array) writeFileSync(join(dir, name), content);
    else writeJson(dir, name, content);
  }
  return dir;
}

describe('openTokenizer', () => {
  it('opens the bundled one', async () => {
    const tokenizer = openTokenizer(DEMO);
    expect(tokenizer.vocabSize).toBe(4096);
    expect(tokenizer.spec).toEqual({ kind: 'file', path: join(DEMO, 'tokenizer.json') });
    expect(tokenizer.hash).toMatch(/^[0-9a-f]{64}$/);
    const texts = ['A man is', '', 'éé\u{1F600}', '  '];
    const each = await Promise.all(texts.map((text) => tokenizer.encode(text)));
    expect(await tokenizer.encodeBatch(texts)).toEqual(each);
    for (const ids of each) expect(ids[0]).toBe(1);
    expect(each[1]).toEqual([1]);
    const tokens = demoJson()['model'] as { vocab: Record<string, number> };
    expect(each[0]).toEqual([1, ...['A', 'Ġman', 'Ġis'].map((token) => tokens.vocab[token])]);
  });

  it('gives the same tokens through a spec that was posted to another thread', async () => {
    for (const dir of [DEMO, folder({ 'tokenizer.model': TOY })]) {
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
          workerData: { json: jsonOf(here.spec), text, module: join(DEMO, '..', '..', 'node_modules', 'tokenizers') },
        },
      );
      const ids = await new Promise((done, fail) => worker.once('message', done).once('error', fail));
      await worker.terminate();
      expect(ids).toEqual(await here.encode(text));
    }
  });

  it('prefers tokenizer.json', () => {
    const dir = folder({ 'tokenizer.model': TOY });
    expect(findTokenizer(dir)).toBe(join(dir, 'tokenizer.model'));
    expect(openTokenizer(dir).spec.kind).toBe('sentencepiece');
    copyFileSync(join(DEMO, 'tokenizer.json'), join(dir, 'tokenizer.json'));
    expect(findTokenizer(dir)).toBe(join(dir, 'tokenizer.json'));
    expect(openTokenizer(dir).vocabSize).toBe(4096);
  });

  it('respects add_bos_token beside a tokenizer.model', async () => {
    expect(
      await openTokenizer(folder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_bos_token: false } })).encode(
        'a',
      ),
    ).toEqual([5]);
    expect(
      await openTokenizer(folder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_eos_token: true } })).encode(
        'a',
      ),
    ).toEqual([1, 5, 2]);
    expect(await openTokenizer(folder({ 'tokenizer.model': TOY, 'tokenizer_config.json': {} })).encode('a')).toEqual([
      1, 5,
    ]);
    expect(
      userError(() =>
        openTokenizer(folder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_bos_token: 'yes' } })),
      ).message,
    ).toContain('add_bos_token: expected true or false, got "yes"');
  });

  it('never truncates or pads, whatever the file asks for', async () => {
    const plain = openTokenizer(DEMO);
    const dir = folder({
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

  it('has a hash that depends on the contents', () => {
    const same = folder({});
    copyFileSync(join(DEMO, 'tokenizer.json'), join(same, 'tokenizer.json'));
    expect(openTokenizer(same).hash).toBe(openTokenizer(DEMO).hash);
    const toy = openTokenizer(folder({ 'tokenizer.model': TOY })).hash;
    expect(openTokenizer(folder({ 'tokenizer.model': TOY })).hash).toBe(toy);
    expect(
      openTokenizer(folder({ 'tokenizer.model': TOY, 'tokenizer_config.json': { add_bos_token: false } })).hash,
    ).not.toBe(toy);
  });

  it('says what is wrong', () => {
    const empty = temporaryFolder();
    expect(userError(() => openTokenizer(empty)).message).toBe(
      `${empty}: found neither tokenizer.json nor tokenizer.model`,
    );
    const withJson = (value: unknown): string =>
      userError(() => openTokenizer(folder({ 'tokenizer.json': value }))).message;
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
