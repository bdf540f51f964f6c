/**
 * Compiled translation units on disk, one file each, shared between processes: a library that has a unit of another
 * one only links it. A file is the digest of the object code and then the code; it appears whole by rename.
 */
import { createHash, randomUUID } from 'node:crypto';
import { open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Settings } from '../../settings.js';
import { codeOf } from '../../system/process.js';
import { isTrusted, trustedFolder } from '../cacheFolder.js';
import { markUsed } from '../kernelCache.js';

const DIGEST_BYTES = 32;
const digestOf = (data: Uint8Array): Buffer => createHash('sha256').update(data).digest();

export class ObjectCache {
  private readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Throws UserError where somebody else could put code there. */
  static async open(settings: Pick<Settings, 'cacheDir'>): Promise<ObjectCache> {
    return new ObjectCache(await trustedFolder(settings, 'objects'));
  }

  private pathOf(key: string): string {
    if (!/^[0-9a-f]{64}$/.test(key)) throw new Error(`${JSON.stringify(key)} is no cache key.`);
    return join(this.folder, `${key}.two`);
  }

  /** Copies the object of a key to `path`. False where there is none, or it is damaged. */
  async copyTo(key: string, path: string): Promise<boolean> {
    let data: Buffer;
    try {
      if (!(await isTrusted(this.pathOf(key)))) return false;
      data = await readFile(this.pathOf(key));
    } catch (error) {
      if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(codeOf(error))) return false;
      throw error;
    }
    const code = data.subarray(DIGEST_BYTES);
    if (!digestOf(code).equals(data.subarray(0, DIGEST_BYTES))) return false;
    await writeFile(path, code);
    await markUsed(this.pathOf(key));
    return true;
  }

  /** Keeps the object at `path` under a key. */
  async keep(key: string, path: string): Promise<void> {
    const code = await readFile(path);
    const temporary = join(this.folder, `.tmp-${randomUUID()}`);
    try {
      const file = await open(temporary, 'wx', 0o600);
      try {
        await file.writeFile(Buffer.concat([digestOf(code), code]));
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(temporary, this.pathOf(key));
      await markUsed(this.pathOf(key));
    } finally {
      await rm(temporary, { force: true });
    }
  }
}
