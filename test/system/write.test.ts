import { execFileSync } from 'node:child_process';
import type * as Crypto from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { UserError } from '../../errors.js';
import { processMark } from '../../system/process.js';
import { prepareFile, prepareOutput, writeAtomically } from '../../system/write.js';

/** Temporary files have random names; a test may know one in advance. */
const { random } = vi.hoisted(() => ({ random: { next: undefined as string | undefined } }));
vi.mock('node:crypto', async (original) => {
  const crypto = await original<typeof Crypto>();
  return { ...crypto, randomUUID: () => random.next ?? crypto.randomUUID() };
});

let out: string;
beforeEach(() => {
  out = mkdtempSync(join(tmpdir(), 'tilewright-write-'));
});
afterEach(() => {
  rmSync(out, { recursive: true, force: true });
});

it('to a pipe that nobody reads are refused at once, where waiting could not be ended', () => {
  const pipe = join(out, 'pipe');
  execFileSync('mkfifo', [pipe]);
  expect(() => writeAtomically(pipe, ['text'])).toThrow(`${pipe}: is a pipe that nobody reads`);
  const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
  writeAtomically(pipe, ['text']);
  const bytes = Buffer.alloc(8);
  expect(bytes.subarray(0, readSync(reader, bytes)).toString()).toBe('text');
  closeSync(reader);
});

/** No process has this number, because it is above every kernel's limit. */
const DEAD = processMark().replace(/^\d+/, '4194305');
/** Of a process that may run on another host. */
const ELSEWHERE = '4194305-00000000';

describe('prepareOutput', () => {
  it('creates the folder, leaves nothing in it and keeps what is there', () => {
    const folder = join(out, 'a', 'b');
    prepareOutput(folder);
    expect(readdirSync(folder)).toEqual([]);
    writeFileSync(join(folder, 'kept'), 'x');
    prepareOutput(folder);
    expect(readdirSync(folder)).toEqual(['kept']);
  });

  it('follows no link under a name that it might use', () => {
    const victim = join(out, 'victim');
    writeFileSync(victim, 'precious');
    const folder = join(out, 'results');
    mkdirSync(folder);
    for (const name of [`.probe-${process.pid}`, `.probe.${processMark()}.tmp`])
      symlinkSync(victim, join(folder, name));
    prepareOutput(folder);
    expect(readFileSync(victim, 'utf8')).toBe('precious');
  });

  it('follows no link even if its random name was guessed', () => {
    const victim = join(out, 'victim');
    writeFileSync(victim, 'precious');
    random.next = '01234567-89ab-4cde-8f01-23456789abcd';
    try {
      symlinkSync(victim, join(out, `.probe.${processMark()}.01234567.tmp`));
      symlinkSync(victim, join(out, `.results.json.${processMark()}.01234567.tmp`));
      expect(() => prepareOutput(out)).toThrow(UserError);
      expect(() => writeAtomically(join(out, 'results.json'), ['{}'], 'Try again')).toThrow();
    } finally {
      random.next = undefined;
    }
    expect(readFileSync(victim, 'utf8')).toBe('precious');
  });

  it('removes what a killed process left half-written, and nothing of a living one or of another host', () => {
    const left = `.samples_x.jsonl.${DEAD}.0123abcd.tmp`,
      others = [`.results_x.json.${processMark()}.0123abcd.tmp`, `.results_x.json.${ELSEWHERE}.0123abcd.tmp`];
    for (const name of [left, ...others]) writeFileSync(join(out, name), 'half');
    prepareOutput(out);
    expect(readdirSync(out).sort()).toEqual(others.sort());
  });

  it('says why a folder cannot be used', () => {
    writeFileSync(join(out, 'file'), '');
    expect(() => {
      prepareOutput(join(out, 'file', 'x'));
    }).toThrow(/cannot write .*: part of the path is a file, not a folder/);
    expect(() => {
      prepareOutput(join(out, 'file'));
    }).toThrow(/a file of that name already exists/);
    expect(() => {
      prepareOutput(join(out, 'x'.repeat(300)));
    }).toThrow(/the name is too long/);
  });
});

describe('writeAtomically', () => {
  it('writes a file whose name is as long as names may be', () => {
    const name = `${'x'.repeat(250)}.json`;
    writeAtomically(join(out, name), ['{}']);
    expect(readdirSync(out)).toEqual([name]);
  });

  it('replaces the file whole, or leaves the old one and nothing beside it', () => {
    const path = join(out, 'file.json');
    writeAtomically(path, ['o', 'ld']);
    const failing = function* (): Generator<string> {
      yield 'x'.repeat(1 << 20);
      throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' });
    };
    expect(() => {
      writeAtomically(path, failing());
    }).toThrow(/cannot write .*file.json: the disk is full/);
    expect(readFileSync(path, 'utf8')).toBe('old');
    expect(readdirSync(out)).toEqual(['file.json']);
    writeAtomically(path, ['new']);
    expect(readFileSync(path, 'utf8')).toBe('new');
  });

  it("passes on the caller's hint", () => {
    let error: unknown;
    try {
      writeAtomically(join(out, 'none', 'x'), ['x'], 'do this');
    } catch (caught) {
      error = caught;
    }
    expect(error).toBeInstanceOf(UserError);
    expect((error as UserError).hint).toBe('do this');
    expect(existsSync(join(out, 'none'))).toBe(false);
  });
});

describe('what is no regular file', () => {
  it.skipIf(!existsSync('/dev/full'))('is written to and never replaced: a device behind a link', () => {
    const link = join(out, 'full');
    symlinkSync('/dev/full', link);
    prepareFile(link);
    expect(() => {
      writeAtomically(link, ['text']);
    }).toThrow(/cannot write .*full: the disk is full/);
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect(statSync('/dev/full').isCharacterDevice()).toBe(true);
    expect(readdirSync(out)).toEqual(['full']);
  });

  it('is written to and never replaced: a pipe', () => {
    const pipe = join(out, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const reader = openSync(pipe, 'r+');
    writeAtomically(pipe, ['te', 'xt']);
    const bytes = Buffer.alloc(10);
    expect(bytes.toString('utf8', 0, readSync(reader, bytes))).toBe('text');
    closeSync(reader);
    expect(lstatSync(pipe).isFIFO()).toBe(true);
  });

  it('is never replaced: a folder', () => {
    mkdirSync(join(out, 'folder'));
    expect(() => {
      writeAtomically(join(out, 'folder'), ['text']);
    }).toThrow(/it is a folder/);
  });

  it('is followed: a link to a file stays a link, and one to nothing is refused', () => {
    writeFileSync(join(out, 'file'), 'old');
    symlinkSync('file', join(out, 'link'));
    symlinkSync('nothing', join(out, 'dangling'));
    writeAtomically(join(out, 'link'), ['new']);
    expect(readFileSync(join(out, 'file'), 'utf8')).toBe('new');
    expect(lstatSync(join(out, 'link')).isSymbolicLink()).toBe(true);
    expect(() => {
      writeAtomically(join(out, 'dangling'), ['text']);
    }).toThrow(UserError);
  });
});
