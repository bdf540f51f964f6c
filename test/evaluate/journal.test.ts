import fs, {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { UserError } from '../../errors.js';
import { Journal, type JournalOptions } from '../../evaluate/journal.js';
import type { Scores } from '../../evaluate/metrics.js';

let folder = '';
let path = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-journal-'));
  path = join(folder, 'journal_hellaswag.jsonl');
});
afterEach(() => rmSync(folder, { recursive: true }));

const identity = { task: 'hellaswag', dataset: 'ab12', sharing: 'tree', precision: 'f32', questions: 4 };
const choices = new Map([
  [0, 2],
  [1, 2],
  [2, 3],
  [9, 2],
]);
const entries: Scores[] = [
  { docId: 2, ll: [-1.25, -1 / 3, -1e-300], greedy: [true, false, true] },
  { docId: 0, ll: [-12345.678901234567, -2], greedy: [false, false] },
  { docId: 9, ll: [-0.1 - 0.2, 0], greedy: [true, true] },
];

const open = (options: Partial<JournalOptions> = {}): Journal =>
  new Journal({ path, identity, choices, resume: true, ...options });
/** Writes all entries one by one and returns the bytes of the file. */
function writeAll(): Buffer {
  const journal = open();
  for (const entry of entries) journal.append([entry]);
  journal.close();
  return readFileSync(path);
}

type WriteBytes = (
  fd: number,
  bytes: NodeJS.ArrayBufferView,
  offset?: number | null,
  length?: number | null,
  position?: number | null,
) => number;
/** Runs `body` while the system's write is replaced by `wrap` of the real one. */
function withWrites(wrap: (write: WriteBytes) => WriteBytes, body: () => void): void {
  const write: WriteBytes = fs.writeSync;
  const spy = vi.spyOn(fs, 'writeSync').mockImplementation(wrap(write) as typeof fs.writeSync);
  syncBuiltinESMExports();
  try {
    body();
    expect(spy).toHaveBeenCalled();
  } finally {
    spy.mockRestore();
    syncBuiltinESMExports();
  }
}

describe('Journal', () => {
  it('reads back what was written', () => {
    writeAll();
    const journal = open();
    journal.close();
    expect([...journal.done.values()]).toEqual(entries);
  });

  it('is one JSON object on each line, the run first', () => {
    const lines = writeAll()
      .toString()
      .trimEnd()
      .split('\n')
      .map((line): unknown => JSON.parse(line));
    expect(lines[0]).toEqual({ journal: 2, run: identity, crc32: expect.any(String) as string });
    expect(lines[1]).toEqual({
      doc_id: 2,
      ll: entries[0]?.ll,
      greedy: [true, false, true],
      crc32: expect.any(String) as string,
    });
  });

  it('preserves every double to the bit', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true, max: 0 }), (value) => {
        const journal = open({ resume: false });
        journal.append([{ docId: 0, ll: [value === 0 ? 0 : value, -1], greedy: [true, true] }]);
        journal.close();
        const again = open();
        again.close();
        expect(again.done.get(0)?.ll[0]).toBe(value === 0 ? 0 : value);
      }),
      { numRuns: 50 },
    );
  });

  it('keeps every whole line if cut off at any byte, and ends up the same when the rest is added', () => {
    const whole = writeAll();
    const lineEnds = [...whole.keys()].filter((at) => whole[at] === 10);
    for (let length = 0; length <= whole.length; length++) {
      writeFileSync(path, whole.subarray(0, length));
      const journal = open();
      const wholeEntries = Math.max(0, lineEnds.filter((at) => at < length).length - 1);
      expect([...journal.done.values()]).toEqual(entries.slice(0, wholeEntries));
      journal.append(entries.slice(wholeEntries));
      journal.close();
      expect(readFileSync(path).equals(whole), `cut at byte ${length}`).toBe(true);
    }
  });

  it('drops a damaged last line, even a finished one, and zeros after it', () => {
    const whole = writeAll();
    for (const tail of [
      '{"doc_id":1,"ll":[-1,\n',
      '\0\0\0\0\0\0',
      '{"doc_id":1,"ll":[-1,null],"greedy":[true,true]}\n',
    ]) {
      writeFileSync(path, Buffer.concat([whole, Buffer.from(tail)]));
      const journal = open();
      journal.close();
      expect(journal.done.size).toBe(3);
      expect(readFileSync(path).equals(whole)).toBe(true);
    }
  });

  it('names a damaged line in the middle', () => {
    const lines = writeAll().toString().split('\n');
    for (const damage of [
      'garbage',
      '{"doc_id":77,"ll":[],"greedy":[]}',
      '{"doc_id":0,"ll":[-1],"greedy":[true]}',
      '[]',
      '{"doc_id":0,"ll":[-1,"x"],"greedy":[true,true]}',
    ]) {
      writeFileSync(path, [lines[0], lines[1], damage, lines[3], ''].join('\n'));
      expect(() => open()).toThrow(/jsonl:3: not a finished question of this run/);
    }
  });

  it('refuses a line that was edited, including the header', () => {
    const lines = writeAll().toString().split('\n');
    const edited = (number: number, from: string, to: string): void => {
      expect(lines[number - 1]).toContain(from);
      writeFileSync(path, lines.map((line, i) => (i === number - 1 ? line.replace(from, to) : line)).join('\n'));
    };
    edited(2, '-1.25', '-0.25');
    expect(() => open()).toThrow(/jsonl:2: the line was edited or damaged: its checksum is wrong/);
    edited(3, 'false', 'true');
    expect(() => open()).toThrow(/jsonl:3: the line was edited/);
    edited(1, '"tree"', '"none"');
    expect(() => open({ identity: { ...identity, sharing: 'none' } })).toThrow(/jsonl:1: the line was edited/);
    // A line without its checksum is no better.
    writeFileSync(path, lines.join('\n').replace(/,"crc32":"[0-9a-f]{8}"\}\n\{"doc_id":9/, '}\n{"doc_id":9'));
    expect(() => open()).toThrow(/jsonl:3: the line was edited/);
  });

  it('refuses the journal of another run and says what differs', () => {
    writeAll();
    const other = { ...identity, sharing: 'none', precision: 'auto' };
    expect(() => open({ identity: other })).toThrow(UserError);
    expect(() => open({ identity: other })).toThrow(
      'it differs in precision (journal "f32", now "auto"), sharing (journal "tree", now "none")',
    );
    const { precision: _precision, ...fewer } = identity;
    expect(() => open({ identity: fewer })).toThrow('precision (journal "f32", now absent)');
    expect(() => open({ identity: { ...identity, device: 'cpu' } })).toThrow('device (journal absent, now "cpu")');
  });

  it('refuses a file that is not a journal and leaves it unchanged', () => {
    for (const text of ['some notes', 'some notes\n', '{"results":{}}\n', '{"journal":1,"run":{}}\n']) {
      writeFileSync(path, text);
      expect(() => open()).toThrow(UserError);
      expect(readFileSync(path, 'utf8')).toBe(text);
    }
  });

  it('starts a new file without resume, and keeps the old journal', () => {
    const whole = writeAll();
    const journal = open({ resume: false });
    journal.close();
    expect(journal.done.size).toBe(0);
    const kept = join(folder, 'journal_hellaswag.1.jsonl');
    expect(journal.kept).toEqual({ path: kept, questions: 3 });
    expect(readFileSync(kept).equals(whole)).toBe(true);
    // And again: what was kept is never overwritten.
    const next = open({ resume: false });
    next.append(entries.slice(0, 1));
    next.close();
    const last = open({ resume: false });
    last.close();
    expect(last.kept).toEqual({ path: join(folder, 'journal_hellaswag.3.jsonl'), questions: 1 });
    expect(readFileSync(kept).equals(whole)).toBe(true);
  });

  it('has each question on file as soon as append returns', () => {
    const journal = open();
    journal.append(entries.slice(0, 1));
    expect(readFileSync(path, 'utf8').trimEnd().split('\n')).toHaveLength(2);
    journal.close();
  });

  it('says that the disk is full, and holds only whole lines', () => {
    const writable = writeAll().length - 20;
    rmSync(path);
    // Writes what fits, then fails as the system does.
    withWrites(
      (write) =>
        (...[fd, bytes, offset, length, position]) => {
          const room = writable - (position as number);
          if (room <= 0) throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
          return write(fd, bytes, offset as number, Math.min(room, length!, 7), position);
        },
      () => {
        const journal = open();
        journal.append(entries.slice(0, 2));
        expect(() => journal.append(entries.slice(2))).toThrow(
          /cannot write .*journal_hellaswag.jsonl: the disk is full/,
        );
        journal.close();
      },
    );
    const again = open();
    again.close();
    expect([...again.done.values()]).toEqual(entries.slice(0, 2));
  });

  it.skipIf(!existsSync('/dev/full'))('reports the error of a device that is really full', () => {
    const full = openSync('/dev/full', 'w');
    withWrites(
      (write) => (_, bytes) => write(full, bytes),
      () => expect(() => open()).toThrow(/the disk is full/),
    );
    closeSync(full);
  });

  it('stops when another process writes the same journal', () => {
    const [one, other] = [open(), open()];
    other.append(entries.slice(0, 1));
    expect(() => one.append(entries.slice(1, 2))).toThrow(/another process is writing this journal/);
    other.append(entries.slice(2));
    one.close();
    other.close();
    const again = open();
    again.close();
    expect([...again.done.keys()]).toEqual([2, 9]);
  });

  it('says which folder is missing', () => {
    expect(() => open({ path: join(folder, 'no', 'journal.jsonl') })).toThrow(UserError);
  });

  it('accepts only the first of two entries for one question', () => {
    const whole = writeAll();
    const other = open({ path: join(folder, 'other.jsonl') });
    other.append([{ docId: 2, ll: [-9, -9, -9], greedy: [true, true, true] }]);
    other.close();
    const second = readFileSync(other.path, 'utf8').split('\n')[1];
    writeFileSync(path, Buffer.concat([whole, Buffer.from(`${second}\n`)]));
    const journal = open();
    journal.close();
    expect(journal.done.get(2)).toEqual(entries[0]);
    truncateSync(path, 0);
  });
});
