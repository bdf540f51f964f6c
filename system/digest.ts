/** SHA-256 of files of any size, read in pieces, and copied on the way where that is asked for. */
import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { UserError } from '../errors.js';
import { codeOf, diskProblem, reasonOf } from './process.js';

const PIECE_BYTES = 4 << 20;

export interface DigestOptions {
  /** The file must still have the size that was read before. */
  readonly sizeBytes: number;
  /** A copy to write, forced to disk. There must be no file of this name yet. */
  readonly copyTo?: string;
  /** After each piece. */
  readonly onBytes?: (count: number) => void;
  /** Aborted: its reason is thrown after the present piece. */
  readonly signal?: AbortSignal | undefined;
  readonly hint?: string;
}

const problem = (path: string, error: unknown, hint: string | undefined): unknown =>
  error instanceof UserError || codeOf(error) === ''
    ? error
    : new UserError(`${path}: cannot be read: ${reasonOf(error)}`, hint, { cause: error });

async function writePiece(copy: FileHandle, path: string, bytes: Uint8Array): Promise<void> {
  try {
    for (let at = 0; at < bytes.length;) at += (await copy.write(bytes, at)).bytesWritten;
  } catch (error) {
    throw diskProblem(path, error, 'free some space, or give another folder');
  }
}

async function readPieces(
  source: FileHandle,
  path: string,
  options: DigestOptions,
  hash: Hash,
  write: (bytes: Uint8Array) => Promise<void>,
): Promise<void> {
  const { sizeBytes, signal, onBytes, hint } = options;
  // One more than is expected: a file that has grown is not the one that was looked at.
  const piece = Buffer.alloc(Math.min(PIECE_BYTES, sizeBytes + 1));
  let done = 0;
  for (;;) {
    signal?.throwIfAborted();
    const { bytesRead } = await source.read(piece, 0, piece.length, done);
    if (bytesRead === 0) break;
    done += bytesRead;
    if (done > sizeBytes) break;
    const bytes = piece.subarray(0, bytesRead);
    hash.update(bytes);
    await write(bytes);
    onBytes?.(bytesRead);
  }
  if (done !== sizeBytes) throw new UserError(`${path}: it had ${sizeBytes} bytes and changed while it was read`, hint);
}

/** Digest of a file, hexadecimal. Throws UserError where it cannot be read, is of another size, or cannot be copied. */
export async function digestFile(path: string, options: DigestOptions): Promise<string> {
  const { copyTo, hint } = options;
  const hash = createHash('sha256');
  let copy: FileHandle | undefined;
  let source: FileHandle | undefined;
  try {
    source = await open(path, 'r');
    if (copyTo !== undefined)
      copy = await open(copyTo, 'wx').catch((error: unknown) => {
        throw diskProblem(copyTo, error, 'give another folder');
      });
    await readPieces(source, path, options, hash, async (bytes) => {
      if (copy !== undefined) await writePiece(copy, copyTo!, bytes);
    });
    await copy?.sync();
    return hash.digest('hex');
  } catch (error) {
    throw problem(path, error, hint);
  } finally {
    await copy?.close();
    await source?.close();
  }
}
