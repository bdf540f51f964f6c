/** Large tokenizers are checked once. What is kept of them is by the bytes of their files, and worth nothing alone. */
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as scanner from '../../models/tokenizer/scan.js';
import { openTokenizer, type OpenTokenizer } from '../../models/tokenizer/tokenizer.js';
import { temporaryFolder, userError, writeJson } from './support.js';

vi.mock('../../models/tokenizer/scan.js', async (original) => {
  const module = await original<typeof scanner>();
  return { ...module, scanTokenizer: vi.fn(module.scanTokenizer) };
});
const scans = vi.mocked(scanner.scanTokenizer);

const LETTERS = [...'abcdefghijklmnopqrstuvwxyz', '<s>', '</s>', 'ab'];
const json = (changes: object = {}): object => ({
  added_tokens: [],
  pre_tokenizer: { type: 'WhitespaceSplit' },
  model: { type: 'BPE', vocab: Object.fromEntries(LETTERS.map((letter, id) => [letter, id])), merges: [['a', 'b']] },
  ...changes,
});

let cache = '';
let dir = '';
const entries = (): string[] => readdirSync(join(cache, 'tokenizers')).sort();
/** Writes the file of the tokenizer, with spaces that make it large. */
function write(value: object, megabytes = 1): void {
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(value) + ' '.repeat(megabytes << 20));
}
/** Opens it, and says how often the file was scanned for that. */
function open(): { readonly tokenizer: OpenTokenizer; readonly scanned: number } {
  scans.mockClear();
  const tokenizer = openTokenizer(dir);
  return { tokenizer, scanned: scans.mock.calls.length };
}

beforeEach(() => {
  cache = temporaryFolder();
  dir = temporaryFolder();
  vi.stubEnv('TILEWRIGHT_CACHE', cache);
});
afterEach(() => vi.unstubAllEnvs());

describe('a large tokenizer', () => {
  it('is checked once, and gives the same tokens and the same description afterwards', async () => {
    write(json());
    writeJson(dir, 'tokenizer_config.json', { bos_token: '<s>', add_bos_token: true, pad_token: '[PAD]' });
    const first = open();
    expect(first.scanned).toBe(1);
    const again = open();
    expect(again.scanned).toBe(0);
    const described = ({ spec, hash, vocabSize, bos, eos }: OpenTokenizer): object => ({
      spec,
      hash,
      vocabSize,
      bos,
      eos,
    });
    expect(described(again.tokenizer)).toEqual(described(first.tokenizer));
    const text = 'ab c[PAD]<s>';
    expect(await again.tokenizer.encode(text)).toEqual(await first.tokenizer.encode(text));
    expect(await again.tokenizer.encode(text)).toEqual([26, 28, 2, 29, 26]);
    expect(entries()).toHaveLength(3);
    for (const name of entries()) expect(statSync(join(cache, 'tokenizers', name)).mode & 0o022).toBe(0);
    // The same without a cache.
    vi.stubEnv('TILEWRIGHT_CACHE', join(dir, 'tokenizer.json', 'no folder'));
    const plain = open();
    expect(plain.scanned).toBe(2);
    expect(described(plain.tokenizer)).toEqual(described(first.tokenizer));
  });

  it('is checked again where its file or what lies beside it is another', async () => {
    write(json());
    expect(open().scanned).toBe(1);
    writeJson(dir, 'tokenizer_config.json', { eos_token: '</s>' });
    const named = open();
    // The file itself is known: what it says of </s> is not.
    expect(named.scanned).toBe(1);
    expect(await named.tokenizer.encode('</s>')).toEqual([27]);
    write(json({ added_tokens: [{ id: 29, content: '<x>' }] }));
    const other = open();
    expect(other.scanned).toBe(1);
    expect(await other.tokenizer.encode('<x>')).toEqual([29]);
    expect(open().scanned).toBe(0);
  });

  it('is refused each time where it is refused', () => {
    write(json({ normalizer: { type: 'Replace', pattern: { String: '' }, content: 'b' } }));
    for (let round = 0; round < 2; round++) expect(userError(open).message).toContain('normalizer.pattern');
    expect(entries()).toEqual([]);
    write(json({ model: { type: 'BPE', vocab: { a: 0 }, merges: [['a', 'c']] } }));
    for (let round = 0; round < 2; round++) expect(userError(open).message).toContain('a merge needs');
  });

  it.each<[string, (bytes: Buffer) => Buffer]>([
    ['cut', (bytes) => bytes.subarray(0, bytes.length / 2)],
    ['empty', () => Buffer.alloc(0)],
    ['changed', (bytes) => Buffer.from(bytes.toString().replaceAll('"ab":28', '"ab":27').replaceAll(':29}', ':-1}'))],
    // JSON of the same form, with other ids.
    ['of other digits', (bytes) => Buffer.from(bytes.toString().replaceAll('29', '31').replaceAll('28', '26'))],
    ['of another version', (bytes) => Buffer.from(`{"version":0,${bytes.toString().slice(1)}`)],
    ['no JSON', () => Buffer.from('}')],
    ['nested', () => Buffer.from('['.repeat(1000) + ']'.repeat(1000))],
  ])('is checked again where its entries are %s', async (_, damage) => {
    write(json());
    open();
    for (const name of entries()) {
      const path = join(cache, 'tokenizers', name);
      writeFileSync(path, damage(readFileSync(path)));
    }
    const { tokenizer, scanned } = open();
    expect(scanned).toBeGreaterThan(0);
    expect(await tokenizer.encode('abc')).toEqual([28, 2]);
    expect(open().scanned).toBe(0);
  });

  it('is not taken from where others can write', () => {
    write(json());
    open();
    for (const path of [cache, join(cache, 'tokenizers')]) {
      chmodSync(path, 0o777);
      expect(open().scanned).toBe(2);
      chmodSync(path, 0o700);
      expect(open().scanned).toBe(0);
    }
    for (const name of entries()) chmodSync(join(cache, 'tokenizers', name), 0o666);
    expect(open().scanned).toBe(1);
  });

  it('needs no cache that can be written', () => {
    write(json());
    rmSync(cache, { recursive: true });
    writeFileSync(cache, 'a file');
    expect(open().scanned).toBe(2);
    rmSync(cache);
    mkdirSync(cache);
    expect(open().scanned).toBe(1);
  });
});

it('a small tokenizer is not kept', () => {
  write(json(), 0);
  expect(open().scanned).toBe(2);
  expect(readdirSync(cache)).toEqual([]);
});

it('what merges whole texts is not kept, and opened without the library’s cache', async () => {
  write(json({ pre_tokenizer: null, model: { ...(json() as { model: object }).model, unk_token: 'z' } }));
  open();
  const { tokenizer, scanned } = open();
  expect(scanned).toBe(1);
  expect(entries()).toHaveLength(1);
  expect(await tokenizer.encode('abc')).toEqual([28, 2]);
});
