/** Digests of whole files, and copies that are either whole or absent. */
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { digestFile } from '../../system/digest.js';

describe('the digest of a file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-digest-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'file');
  // More than two blocks.
  const data = Buffer.from({ length: 9_000_001, 0: 1, 5_000_000: 2, 9_000_000: 3 } as ArrayLike<number>);
  writeFileSync(path, data);

  it('covers every byte, and copies them', async () => {
    let counted = 0;
    const copyTo = join(folder, 'copy');
    const digest = await digestFile(path, { sizeBytes: data.length, copyTo, onBytes: (count) => (counted += count) });
    expect(digest).toBe(createHash('sha256').update(data).digest('hex'));
    expect(readFileSync(copyTo).equals(data)).toBe(true);
    expect(counted).toBe(data.length);
  });

  it.each([-1, 1])('is refused if the file is %d bytes longer than it was', async (more) => {
    await expect(digestFile(path, { sizeBytes: data.length - more })).rejects.toThrow(/changed while it was read/);
  });

  it('never overwrites a file', async () => {
    const copyTo = join(folder, 'there');
    writeFileSync(copyTo, 'mine');
    await expect(digestFile(path, { sizeBytes: data.length, copyTo })).rejects.toThrow(/cannot write/);
    expect(readFileSync(copyTo, 'utf8')).toBe('mine');
  });

  it('stops when told to', async () => {
    const signal = AbortSignal.abort(new Error('stopped'));
    await expect(digestFile(path, { sizeBytes: data.length, signal })).rejects.toThrow('stopped');
  });
});
