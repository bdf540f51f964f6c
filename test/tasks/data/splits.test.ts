/** Data sets found as `datasets` finds them: clones, snapshots of the hub's cache, README files and names of files. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import type { Dict } from '../../../python/value.js';
import { readSettings } from '../../../settings.js';
import { matching } from '../../../system/read.js';
import { type DataRoots, openSplit, splitReader, splitsByName } from '../../../tasks/data/splits.js';
import { toPlain, toValue } from '../values.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-data-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

function write(path: string, text: string | Uint8Array): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

async function rows(
  roots: DataRoots,
  dataset: string,
  config: string | undefined,
  split: string,
  options?: unknown,
): Promise<unknown[]> {
  const all: unknown[] = [];
  const given = options === undefined ? undefined : (toValue(options) as Dict);
  for await (const row of openSplit(roots, dataset, config, split, given)) all.push(toPlain(row));
  return all;
}

const README = `---
license: mit
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: ["main/test.jsonl", "main/more/**/*.jsonl"]
- config_name: other
  data_dir: elsewhere
dataset_info:
- config_name: main
  features:
  - name: label
    dtype:
      class_label:
        names:
          '0': 'no'
          '1': 'yes'
  - name: x
    dtype: float32
  - name: y
    sequence: int64
  - name: z
    struct:
    - name: s
      dtype: string
---
# Text
`;

describe('a clone', () => {
  write('clone/o/d/README.md', README);
  write('clone/o/d/main/train-0.jsonl.gz', gzipSync('{"x": 2}\n\n{"x": 0.1, "y": [1e3], "z": {"s": "2015-05-29"}}'));
  write('clone/o/d/main/test.jsonl', '{"label": "yes"}\r\n{"label": 0}\n');
  write('clone/o/d/main/more/a/b.jsonl', '{"label": "1"}');
  write('clone/o/d/.cache/main/test.jsonl', '{"label": "hidden"}\n');
  write('clone/o/d/elsewhere/dev.json', '[{"a": "\ud83d\ude00"}, {"b": null}]');
  const roots = { root: join(root, 'clone') };

  it('has splits as its README says', async () => {
    expect(await rows(roots, 'o/d', undefined, 'train')).toEqual([
      { label: null, x: 2, y: null, z: null },
      { label: null, x: Math.fround(0.1), y: [1000], z: { s: '2015-05-29 00:00:00' } },
    ]);
    expect(await rows(roots, 'o/d', 'main', 'test')).toEqual(
      [1, 1, 0].map((label) => ({ label, x: null, y: null, z: null })),
    );
    expect(await rows(roots, 'o/d', 'other', 'validation')).toEqual([
      { a: '😀', b: null },
      { a: null, b: null },
    ]);
  });

  it('says what is missing', async () => {
    await expect(rows(roots, 'o/d', 'third', 'test')).rejects.toMatchObject({
      message: expect.stringContaining('no configuration "third"; there are main, other') as string,
      hint: `hf download --repo-type dataset o/d --local-dir ${roots.root}/o/d`,
    });
    await expect(rows(roots, 'o/d', 'main', 'dev')).rejects.toThrow('no split "dev" of main; there are train, test');
    await expect(rows(roots, 'o/e', undefined, 'test')).rejects.toMatchObject({
      message: `the data set o/e is not in ${roots.root}`,
      hint: `hf download --repo-type dataset o/e --local-dir ${roots.root}/o/e`,
    });
    await expect(rows(roots, 'o/..', undefined, 'test')).rejects.toThrow('no name of a data set');
    write('clone/o/f/README.md', '---\nconfigs:\n- config_name: c\n  data_files: c/test-*\n---\n');
    await expect(rows(roots, 'o/f', 'c', 'train')).rejects.toMatchObject({
      message: `${roots.root}/o/f: no file "c/test-*" of the split "train" of c`,
      hint: `hf download --repo-type dataset o/f --include 'c/test-*' --local-dir ${roots.root}/o/f`,
    });
  });
});

describe('the hub’s cache', () => {
  write('hub/datasets--o--d/blobs/1', '{"x": "new"}\n');
  write('hub/datasets--o--d/snapshots/old/test.jsonl', '{"x": "old"}\n');
  mkdirSync(join(root, 'hub/datasets--o--d/snapshots/new'), { recursive: true });
  symlinkSync('../../blobs/1', join(root, 'hub/datasets--o--d/snapshots/new/test.jsonl'));
  write('hub/datasets--o--d/refs/main', 'new');
  write('hub/datasets--d/snapshots/only/d_validation.jsonl', '{"x": 1}\n');

  it('is read at the revision that is asked for', async () => {
    const roots = { hubCaches: [join(root, 'hub')] };
    expect(await rows(roots, 'o/d', undefined, 'test')).toEqual([{ x: 'new' }]);
    expect(await rows(roots, 'o/d', undefined, 'test', { revision: 'old' })).toEqual([{ x: 'old' }]);
    expect(await rows(roots, 'd', undefined, 'validation')).toEqual([{ x: 1 }]);
    expect(await rows({ root }, 'd', undefined, 'validation')).toEqual([{ x: 1 }]);
    await expect(rows(roots, 'o/d', undefined, 'test', { revision: '../..' })).rejects.toThrow('no revision');
  });

  it('says that a converted copy is not read', async () => {
    write('converted/o___e/x', '');
    const roots = { hubCaches: [join(root, 'hub')], datasetsCache: join(root, 'converted') };
    await expect(rows(roots, 'o/e', undefined, 'test')).rejects.toMatchObject({
      message:
        `the data set o/e is not in ${root}/hub; ` + `${root}/converted/o___e has a converted copy, which is not read`,
      hint: 'hf download --repo-type dataset o/e',
    });
  });

  it.each([
    [{ HF_HUB_CACHE: '/a', HF_HOME: '/b' }, '/a', '/b/datasets'],
    [{ HF_HOME: '/b', XDG_CACHE_HOME: '/c' }, '/b/hub', '/b/datasets'],
    [{ XDG_CACHE_HOME: '/c', HF_DATASETS_CACHE: '/e' }, '/c/huggingface/hub', '/e'],
    [{ HOME: '/d' }, '/d/.cache/huggingface/hub', '/d/.cache/huggingface/datasets'],
  ])('is where %j says', (environment, hub, datasets) => {
    const settings = readSettings(environment);
    expect([settings.hubCaches, settings.datasetsCache]).toEqual([[hub], datasets]);
  });
});

describe('files that a task names itself', () => {
  it('are read', async () => {
    write('own/a.jsonl', '{"x": 1}\n');
    const path = join(root, 'own/a.jsonl');
    expect(await rows({}, 'json', undefined, 'test', { data_files: { test: path } })).toEqual([{ x: 1 }]);
    expect(await rows({}, join(root, 'own'), undefined, 'train')).toEqual([{ x: 1 }]);
    await expect(rows({}, 'json', undefined, 'dev', { data_files: { test: path } })).rejects.toThrow(
      'of the split "dev"',
    );
    await expect(rows({}, 'json', undefined, 'test', { data_files: '/etc/passwd' })).rejects.toThrow('only .parquet');
    await expect(rows({}, 'json', undefined, 'test', { streaming: true })).rejects.toThrow('"streaming" is not');
  });
});

describe('names of files', () => {
  it('tell splits', () => {
    const by = (...files: string[]): unknown => Object.fromEntries(splitsByName(files));
    expect(by('data/dev-00000-of-00001-abc.parquet', 'test.jsonl')).toEqual({
      dev: ['data/dev-00000-of-00001-abc.parquet'],
    });
    expect(by('x/train/a.jsonl', 'my_dev/b.jsonl', 'test.jsonl')).toEqual({
      train: ['x/train/a.jsonl'],
      validation: ['my_dev/b.jsonl'],
    });
    expect(by('piqa_validation.parquet', 'training.jsonl', 'contest.jsonl')).toEqual({
      train: ['training.jsonl'],
      validation: ['piqa_validation.parquet'],
    });
    expect(by('b.jsonl', '.x/a.jsonl')).toEqual({ train: ['b.jsonl'] });
  });

  it('match globs in time that does not explode', () => {
    const files = ['a/b/c-1.x', 'a/c-2.x', 'c-3.x', '.h/c-4.x'];
    expect(matching(['a/*'], files)).toEqual(['a/c-2.x']);
    expect(matching(['**/c-?.x'], files)).toEqual(['a/b/c-1.x', 'a/c-2.x', 'c-3.x']);
    expect(matching(['./c-[0-3].x', '.h/*'], files)).toEqual(['c-3.x', '.h/c-4.x']);
    expect(matching(['a/**', 'c-[!3].x'], files)).toEqual(['a/b/c-1.x', 'a/c-2.x']);
    expect(matching(['**'.repeat(100) + 'b', '*a'.repeat(100) + 'b'], ['a'.repeat(2000)])).toEqual([]);
    expect(() => matching(['x'.repeat(501)], files)).toThrow(RangeError);
  });
});

describe('rows of text', () => {
  it.each([
    ['{"a": 1}\n{"a": \n', /x\.jsonl:2: not valid JSON/],
    ['{"a": 1}\n[2]\n', /x\.jsonl:2: expected an object, found list/],
    ['3\n', /x\.jsonl:1: expected an object, found int/],
    ['{"a": 1}\n\u0000\n', /x\.jsonl:2: not valid JSON/],
    [Buffer.from([0x7b, 0xff, 0x7d]), /x\.jsonl:1: cannot be read: .*(encoded|invalid)/i],
    [`{"a": ${'['.repeat(300)}${']'.repeat(300)}}`, /x\.jsonl:1: not valid JSON: nested more than/],
  ])('that cannot be read are refused: %j', async (text, message) => {
    write('bad/o/d/x.jsonl', text);
    await expect(rows({ root: join(root, 'bad') }, 'o/d', undefined, 'train')).rejects.toThrow(message);
  });

  it('that are cut off, or name no class, are refused', async () => {
    write('cut/o/d/x.jsonl.gz', gzipSync('{"a": 1}\n'.repeat(1000)).subarray(0, 40));
    await expect(rows({ root: join(root, 'cut') }, 'o/d', undefined, 'train')).rejects.toThrow(UserError);
    write('label/o/d/README.md', README);
    write('label/o/d/main/test.jsonl', '{"label": 1}\n{"label": "perhaps"}\n');
    await expect(rows({ root: join(root, 'label') }, 'o/d', 'main', 'test')).rejects.toThrow(
      /test\.jsonl:2: label: no class "perhaps"; there are 2: no, yes/,
    );
    write('label/o/d/main/test.jsonl', '{"label": -1}\n{"label": 2}\n');
    await expect(rows({ root: join(root, 'label') }, 'o/d', 'main', 'test')).rejects.toThrow('no class 2; there are 2');
  });

  it('in a file that is no Parquet file are refused', async () => {
    write('parquet/o/d/data/test-00000-of-00001.parquet', 'PAR1 but not really PAR1');
    await expect(rows({ root: join(root, 'parquet') }, 'o/d', undefined, 'test')).rejects.toThrow(
      'test-00000-of-00001.parquet: not a readable Parquet file',
    );
  });

  it('are read only as far as they are taken', async () => {
    write('long/o/d/x.jsonl', `${`{"a": "${'x'.repeat(100)}"}\n`.repeat(200_000)}not JSON\n`);
    const taken: unknown[] = [];
    for await (const row of openSplit({ root: join(root, 'long') }, 'o/d', undefined, 'train'))
      if (taken.push(row) === 3) break;
    expect(taken).toHaveLength(3);
  });
});

it('a folder is described once for all splits that a run reads', async () => {
  write(
    'once/o/d/README.md',
    '---\nconfigs:\n- config_name: a\n  data_files: a.jsonl\n- config_name: b\n  data_files: b.jsonl\n---\n',
  );
  write('once/o/d/a.jsonl', '{"x": 1}\n');
  write('once/o/d/b.jsonl', '{"x": 2}\n');
  const read = splitReader({ root: join(root, 'once') });
  const first = async (config: string): Promise<unknown> => {
    for await (const row of read('o/d', config, 'train')) return toPlain(row);
    return undefined;
  };
  expect(await first('a')).toEqual({ x: 1 });
  rmSync(join(root, 'once/o/d/README.md'));
  expect(await first('b')).toEqual({ x: 2 });
  // Another run looks again.
  expect(() => splitReader({ root: join(root, 'once') })('o/d', 'b', 'train')).toThrow('no configuration');
});
