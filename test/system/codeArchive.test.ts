/** V8's code between runs: what is kept comes back, and what is damaged or may be somebody else's does not. */
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { archivePath, CodeArchive, packArchive } from '../../system/codeArchive.js';
import { keepCode } from '../../system/keepCode.js';
import { thorough } from '../support/thorough.js';

const BUILD = '0123456789abcdef';
const root = mkdtempSync(join(tmpdir(), 'tilewright-code-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

let path = '';
let counter = 0;
beforeEach(() => {
  path = archivePath(join(root, `cache${counter++}`), BUILD);
});

const bytes = (text: string): Uint8Array => Buffer.from(text);
const keep = (use: string, chunks: Record<string, string>): void =>
  keepCode(path, { use, chunks: new Map(Object.entries(chunks).map(([name, code]) => [name, bytes(code)])) });

/** All that can be had of the archive; undefined where it is refused as a whole. */
function contents(): { uses: string[]; chunks: Record<string, string | undefined> } | undefined {
  const archive = CodeArchive.open(path);
  if (archive === undefined) return undefined;
  const names = [...archive.names];
  const chunks = Object.fromEntries(names.map((name) => [name, archive.codeOf(name)?.toString()]));
  archive.close();
  return { uses: [...archive.uses], chunks };
}

describe('an archive of code', () => {
  it('has what was kept, of all commands together', () => {
    expect(contents()).toBeUndefined();
    keep('run', { a: 'code of a', b: 'code of b' });
    keep('generate', { b: 'more code of b', c: '' });
    expect(contents()).toEqual({
      uses: ['run', 'generate'],
      chunks: { a: 'code of a', b: 'more code of b', c: '' },
    });
    expect(CodeArchive.open(path)?.codeOf('d')).toBeUndefined();
    expect(readdirSync(dirname(path))).toHaveLength(1);
  });

  it('is this user’s alone, and so are its folders', () => {
    keep('run', { a: 'x' });
    expect([path, dirname(path), dirname(dirname(path))].map((each) => statSync(each).mode & 0o777)).toEqual([
      0o600, 0o700, 0o700,
    ]);
  });

  it('has a name of its own for other flags of Node, and one that the limit of the caches knows', () => {
    expect(archivePath('/c', BUILD, '--stack-size=2000')).not.toBe(archivePath('/c', BUILD));
    expect(archivePath('/c', BUILD)).toMatch(/^\/c\/code\/[0-9a-f]{24}\.code$/);
  });

  it('gives nothing that was changed or cut, whichever byte it is', () => {
    keep('run', { a: 'code of a', b: 'code of b' });
    const whole = readFileSync(path);
    for (let at = 0; at < whole.length; at++) {
      const changed = Buffer.from(whole);
      changed[at]! ^= 1;
      writeFileSync(path, changed);
      const { a, b } = contents()?.chunks ?? {};
      expect([undefined, 'code of a'], `byte ${at}`).toContain(a);
      expect([undefined, 'code of b'], `byte ${at}`).toContain(b);
      expect(a === undefined || b === undefined, `byte ${at}`).toBe(true);
      writeFileSync(path, whole.subarray(0, at));
      expect(contents(), `cut at ${at}`).toBeUndefined();
    }
  });

  it('is not read where its index names places outside', () => {
    mkdirSync(dirname(path), { recursive: true });
    const [head, , code] = packArchive(['run'], new Map([['a', bytes('code')]]))!;
    const lie = Buffer.from('{"uses":[],"chunks":{"a":[0,1e9,""]}}');
    writeFileSync(path, Buffer.concat([head!, lie, code!]), { mode: 0o600 });
    expect(contents()).toBeUndefined();
  });

  it('is neither read nor written where others may write', () => {
    keep('run', { a: 'x' });
    for (const [each, mode] of [
      [path, 0o600],
      [dirname(path), 0o700],
      [dirname(dirname(path)), 0o700],
    ] as const) {
      chmodSync(each, mode | 0o020);
      expect(contents(), each).toBeUndefined();
      chmodSync(each, mode);
    }
    chmodSync(dirname(path), 0o770);
    keep('generate', { a: 'y' });
    chmodSync(dirname(path), 0o700);
    expect(contents()?.uses).toEqual(['run']);
  });

  it('is no link', () => {
    keep('run', { a: 'x' });
    renameSync(path, `${path}.moved`);
    symlinkSync(`${path}.moved`, path);
    expect(contents()).toBeUndefined();
  });

  it('is left out, without a word, where it cannot be written', () => {
    path = archivePath('/proc/tilewright', BUILD);
    keep('run', { a: 'x' });
    expect(contents()).toBeUndefined();
  });

  thorough('is begun anew where it names more commands than there are, and is bounded', () => {
    for (let i = 0; i < 65; i++) keep(`c${i}`, { a: 'x' });
    expect(contents()?.uses).toEqual(['c64']);
    expect(packArchive([], new Map([['a', new Uint8Array(64 << 20)]]))).toBeUndefined();
  });
});
