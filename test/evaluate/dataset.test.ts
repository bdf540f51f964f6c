import { execFileSync, spawn } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { type DatasetOptions, loadDataset } from '../../evaluate/dataset.js';
import { chooseDocs, parseDocs, parseLimit, printDocs } from '../../evaluate/selection.js';
import { multipleChoice } from '../../evaluate/fileTasks.js';
import { DEFAULT_BOUNDS, type LineBounds, readLines } from '../../system/lines.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-dataset-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const file = (content: string | Uint8Array, name = 'data.jsonl'): string => {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
};
/** Does not wait for a reader. */
const openForWriting = (path: string): number => openSync(path, constants.O_RDWR);
const record = (i: number): string => JSON.stringify({ context: `q${i} é😀`, choices: ['a', 'b'], label: i % 2 });
const ten = `${Array.from({ length: 10 }, (_, i) => record(i)).join('\n')}\n`;
const load = (path: string, options: Partial<DatasetOptions> = {}): ReturnType<typeof loadDataset> =>
  loadDataset({ path, task: multipleChoice, ...options });
const ids = async (path: string, options: Partial<DatasetOptions>): Promise<number[]> =>
  (await load(path, options)).questions.map(({ docId }) => docId);

describe('loadDataset', () => {
  it('reads plain and gzip files alike, by content and not by name', async () => {
    const plain = await load(file(ten));
    expect(plain.total).toBe(10);
    expect(plain.questions.map(({ context }) => context)).toEqual(Array.from({ length: 10 }, (_, i) => `q${i} é😀`));
    expect(await load(file(gzipSync(ten), 'a.jsonl.gz'))).toEqual(plain);
    expect(await load(file(gzipSync(ten), 'misnamed.jsonl'))).toEqual(plain);
    // Several gzip members in a row are one file.
    expect(await load(file(Buffer.concat([gzipSync(ten.slice(0, 100)), gzipSync(ten.slice(100))]), 'b.gz'))).toEqual(
      plain,
    );
    expect(plain.sha256).toMatch(/^[0-9a-f]{64}$/);
    expect((await load(file(ten.replace('q3', 'q4')))).sha256).not.toBe(plain.sha256);
  });

  it('ignores blank lines, carriage returns, a byte-order mark and a missing last line break', async () => {
    const untidy = `\ufeff${record(0)}\r\n\n  \n${record(1)}\r\n${record(2)}`;
    const { questions, total } = await load(file(untidy));
    expect([questions.map(({ docId }) => docId), total]).toEqual([[0, 1, 2], 3]);
  });

  it('reads lines across chunk boundaries', async () => {
    const long = Array.from({ length: 40 }, (_, i) =>
      JSON.stringify({ context: `${i}${'é😀'.repeat(9000 + i)}`, choices: ['a'], label: 0 }),
    );
    const { questions } = await load(file(long.join('\n')));
    expect(questions.map(({ doc }) => JSON.stringify(doc))).toEqual(long);
  });

  it('selects by range, count and fraction, and still counts the whole file', async () => {
    const path = file(ten);
    expect(await ids(path, { docs: [{ first: 2, end: 5 }] })).toEqual([2, 3, 4]);
    expect(await ids(path, { docs: [{ first: 8, end: 50 }] })).toEqual([8, 9]);
    expect(await ids(path, { limit: 3 })).toEqual([0, 1, 2]);
    expect(await ids(path, { limit: 0.11 })).toEqual([0, 1]);
    expect(await ids(path, { docs: [{ first: 5 }], limit: 0.5 })).toEqual([5, 6, 7]);
    expect(await ids(path, { docs: [{ first: 4, end: 9 }], limit: 2 })).toEqual([4, 5]);
    expect((await load(path, { limit: 1 })).total).toBe(10);
    await expect(load(path, { docs: [{ first: 10 }] })).rejects.toThrow(
      /--docs 10: starts after the last question: .* has 10 \(0 to 9\)/,
    );
    await expect(load(path, { docs: parseDocs('0:3,777') })).rejects.toThrow('--docs 777 starts after');
    expect(await ids(path, { docs: parseDocs('7,0:2,9:') })).toEqual([0, 1, 7, 9]);
    expect(await ids(path, { docs: parseDocs('7,0:2,9:'), limit: 3 })).toEqual([0, 1, 7]);
    expect(await ids(path, { docs: parseDocs('7,0:2,9:'), limit: 0.5 })).toEqual([0, 1]);
    expect((await load(path, { docs: parseDocs('5:,0:2') })).docs).toEqual([
      { first: 0, end: 2 },
      { first: 5, end: 10 },
    ]);
  });

  it('reads NaN and infinities as Python writes them, in keys that no question needs', async () => {
    const { questions } = await load(file(`${record(0).slice(0, -1)}, "score": NaN, "of": [-Infinity, "NaN"]}\n`));
    expect(questions.map(({ context }) => context)).toEqual(['q0 é😀']);
    await expect(load(file(`{"context": "x", "choices": NaN, "label": 0}`))).rejects.toThrow('data.jsonl:1');
    await expect(load(file(`{"context": NaN NaN}`))).rejects.toThrow('data.jsonl:1: the line is not JSON');
  });

  it('gives file and line of a line that is not JSON', async () => {
    await expect(load(file(`${record(0)}\n\n{"context": \n${record(1)}`))).rejects.toThrow(
      /\/data\.jsonl:3: the line is not JSON/,
    );
    await expect(load(file(`${record(0)}\n{"context": "x", "choices": [], "label": 0}`))).rejects.toThrow(
      /\/data\.jsonl:2: the question has no choices$/,
    );
    // A bad line outside the selection is not examined.
    expect(await ids(file(`${record(0)}\nnonsense\n`), { limit: 1 })).toEqual([0]);
  });

  it('gives the line of text that is not UTF-8', async () => {
    await expect(
      load(file(Buffer.concat([Buffer.from(`${record(0)}\n`), Buffer.from([0x22, 0xff, 0xfe, 0x22])]))),
    ).rejects.toThrow(/data\.jsonl:2: the line is not UTF-8/);
  });

  it('refuses files that are not question sets', async () => {
    await expect(load(join(folder, 'absent.jsonl'))).rejects.toThrow(/no such dataset/);
    await expect(load(folder)).rejects.toThrow(/is a folder/);
    await expect(load(file(''))).rejects.toThrow(/holds no questions/);
    await expect(load(file('\n\n'))).rejects.toThrow(/holds no questions/);
    await expect(load(file('x'))).rejects.toThrow(UserError);
  });

  it('says that gzip data is cut off or damaged', async () => {
    const whole = gzipSync(ten);
    await expect(load(file(whole.subarray(0, whole.length - 12), 'cut.gz'))).rejects.toThrow(/truncated or damaged/);
    const damaged = Uint8Array.from(whole);
    damaged.fill(0x55, 20, 60);
    await expect(load(file(damaged, 'damaged.gz'))).rejects.toThrow(/truncated or damaged/);
  });

  it('bounds a line, the whole text, and what a small file may unpack to', async () => {
    const bounds = (change: Partial<LineBounds>): Partial<DatasetOptions> => ({
      bounds: { ...DEFAULT_BOUNDS, ...change },
    });
    await expect(load(file(ten), bounds({ maxLineBytes: 40 }))).rejects.toThrow(
      /data\.jsonl:1: the line is longer than 40 bytes/,
    );
    await expect(load(file(ten), bounds({ maxTotalBytes: 200 }))).rejects.toThrow(/more than 200 bytes of text/);
    await expect(load(file(gzipSync(ten), 'c.gz'), bounds({ maxTotalBytes: 200 }))).rejects.toThrow(
      /more than 200 bytes of text/,
    );
    // 32 MiB in 32 KiB.
    const bomb = gzipSync(Buffer.alloc(32 << 20, 10));
    await expect(load(file(bomb, 'bomb.gz'))).rejects.toThrow(/more than 200 times its size/);
    await expect(load(file(gzipSync(Buffer.alloc(32 << 20, 97)), 'line.gz'))).rejects.toThrow(/longer than 4 MiB/);
  });

  it('refuses deep nesting, even in a field that is never read, with file and line', async () => {
    const deep = '['.repeat(50_000) + ']'.repeat(50_000);
    for (const line of [
      `{"context":"x","choices":["a"],"label":0,"extra":${deep}}`,
      deep,
      `{"context":"x","choices":["a"],"label":${deep}}`,
    ])
      await expect(load(file(`${record(0)}\n${line}\n`))).rejects.toThrow(
        'data.jsonl:2: the line is nested more than 200 deep',
      );
  });

  it('closes the file when the reader stops early', async () => {
    for await (const line of readLines(file(ten), {
      noun: 'dataset',
      flag: '--data',
      item: 'question',
      command: 'run',
    })) {
      expect(line.number).toBe(1);
      break;
    }
  });
});

describe('selection', () => {
  it('parses --docs', () => {
    for (const long of ['99999999999999999999', '1234567890123', '0:9999999999999', '5::6'])
      expect(() => parseDocs(long)).toThrow(`--docs ${long}: is not a range of question numbers`);
    expect(parseDocs('2:5')).toEqual([{ first: 2, end: 5 }]);
    expect(parseDocs('2:')).toEqual([{ first: 2 }]);
    expect(parseDocs(':5')).toEqual([{ first: 0, end: 5 }]);
    expect(parseDocs('0:100,500:600,777')).toEqual([
      { first: 0, end: 100 },
      { first: 500, end: 600 },
      { first: 777, end: 778 },
    ]);
    for (const bad of ['', ':', '5:5', '5:2', '-1:2', '1.5:2', 'a:b', '1:2:3', '3:0', '1,', ',1', '1,,2', '1:2;3'])
      expect(() => parseDocs(bad), bad).toThrow(UserError);
    expect(() => parseDocs('0:2,x')).toThrow('--docs 0:2,x: "x" is not a range');
  });

  it('prints what it parses', () => {
    for (const text of ['0:100,500:600,777', '5:', '0:1000']) expect(printDocs(parseDocs(text))).toBe(text);
    expect(printDocs(chooseDocs({ docs: parseDocs('7,0:3,2:5,5:6') }, 100))).toBe('0:6,7');
  });

  it('parses --limit', () => {
    expect(parseLimit('100')).toBe(100);
    expect(parseLimit('0.25')).toBe(0.25);
    expect(['1e3', '1_000', ' 2.', '.5', '25e-2'].map(parseLimit)).toEqual([1000, 1000, 2, 0.5, 0.25]);
    for (const bad of ['0', '-3', '1.5', 'all', '', '1e', '1__0', 'NaN', '.'])
      expect(() => parseLimit(bad), bad).toThrow(UserError);
  });

  it('rounds a fraction up', () => {
    expect(chooseDocs({ limit: 0.001 }, 10_042)).toEqual([{ first: 0, end: 11 }]);
    expect(chooseDocs({ limit: 0.5, docs: [{ first: 3, end: 100 }] }, 10)).toEqual([{ first: 3, end: 7 }]);
  });
});

describe('pipes', () => {
  const fifo = (name: string): string => {
    const path = join(folder, name);
    execFileSync('mkfifo', [path]);
    return path;
  };

  /**
   * Connects the output of a shell command, which gets `bytes`, to a pipe that ends with it. The shell opens the pipe,
   * and so begins when there is a reader: what is written before is lost with the last writer.
   */
  const writing = (path: string, command: string, bytes: Uint8Array): void => {
    spawn('sh', ['-c', `{ ${command}; } > "$0"`, path], { stdio: ['pipe', 'ignore', 2] }).stdin!.end(bytes);
  };

  it('are read as a stream, plain or compressed, however they are written', async () => {
    const expected = await load(file(ten));
    for (const [i, bytes] of [Buffer.from(ten), gzipSync(ten)].entries()) {
      const path = fifo(`pipe${i}`);
      writing(path, 'head -c 1; sleep 0.05; cat', bytes);
      expect(await load(path)).toEqual(expected);
      // A fraction needs the number of questions, and a pipe is read only once.
      writing(path, 'cat', bytes);
      expect(await ids(path, { limit: 0.2 })).toEqual([0, 1]);
    }
  }, 60_000);

  it('are bounded if they never end, and end when told to stop', async () => {
    const endless = fifo('endless');
    const writer = spawn('yes', [record(0)], { stdio: ['ignore', openForWriting(endless), 'ignore'] });
    await expect(load(endless, { bounds: { ...DEFAULT_BOUNDS, maxTotalBytes: 1 << 20 } })).rejects.toThrow(
      /holds more than 1 MiB of text/,
    );
    writer.kill();

    const silent = fifo('silent');
    const hold = openForWriting(silent);
    const controller = new AbortController();
    const reading = load(silent, { signal: controller.signal });
    setTimeout(() => {
      controller.abort();
    }, 50);
    await expect(reading).rejects.toThrow(/stopped/);
    // Told while the pipe is being opened.
    const early = new AbortController();
    const opening = load(silent, { signal: early.signal });
    early.abort();
    await expect(opening).rejects.toThrow(/stopped/);
    closeSync(hold);
  });

  it('are told apart from devices', async () => {
    await expect(load('/dev/zero')).rejects.toThrow('/dev/zero is neither a file nor a pipe');
  });
});
