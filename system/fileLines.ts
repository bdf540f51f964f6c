/** Lines of a file one after another, with their places in it; a line is bounded before it is held. */
import { closeSync, openSync, readSync } from 'node:fs';
import { UserError } from '../errors.js';
import { codeOf, reasonOf } from './errno.js';
import { fileSize } from './read.js';

const BUFFER = 1 << 20;

export interface FileLineOptions {
  readonly maxLineBytes: number;
  /** What to do about a file that cannot be read. */
  readonly hint: string;
  /** Called with all bytes, in order. */
  readonly onBytes?: (part: Buffer) => void;
}

export interface FileLine {
  /** From 1. */
  readonly number: number;
  /** Where it begins in the file. */
  readonly offset: number;
  /** Without its end. */
  readonly bytes: Buffer;
  /** False for a last line that has no end: the file was cut off, or its writer puts none. */
  readonly isEnded: boolean;
}

export class FileLines {
  readonly path: string;
  readonly #fd: number;
  readonly #options: FileLineOptions;
  readonly #buffer = Buffer.alloc(BUFFER);
  #held = Buffer.alloc(0);
  #number = 0;
  #offset = 0;

  /** Throws UserError. */
  constructor(path: string, options: FileLineOptions) {
    this.path = path;
    this.#options = options;
    // A pipe would be waited for.
    if (fileSize(path, options.hint) === undefined) throw new UserError(`${path}: no such file`, options.hint);
    this.#fd = this.#system(() => openSync(path, 'r'));
  }

  /** Undefined at the end. Throws UserError for a line that is too long. */
  next(): FileLine | undefined {
    const { maxLineBytes, hint, onBytes } = this.#options;
    const parts = [this.#held];
    let length = this.#held.length;
    let end = this.#held.indexOf(10);
    while (end < 0) {
      const read = this.#system(() => readSync(this.#fd, this.#buffer, 0, BUFFER, null));
      if (read === 0) break;
      const part = Buffer.from(this.#buffer.subarray(0, read));
      onBytes?.(part);
      const at = part.indexOf(10);
      if (at >= 0) end = length + at;
      parts.push(part);
      length += read;
      if ((end < 0 ? length : end) > maxLineBytes)
        throw new UserError(`${this.path}:${this.#number + 1}: the line is too long`, hint);
    }
    if (end < 0 && length === 0) return undefined;
    const all = parts.length === 1 ? this.#held : Buffer.concat(parts);
    const isEnded = end >= 0;
    const bytes = isEnded ? all.subarray(0, end) : all;
    this.#held = isEnded ? all.subarray(end + 1) : Buffer.alloc(0);
    const line = { number: ++this.#number, offset: this.#offset, bytes, isEnded };
    this.#offset += bytes.length + 1;
    return line;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #system<T>(call: () => T): T {
    try {
      return call();
    } catch (error) {
      if (codeOf(error) === '') throw error;
      throw new UserError(`${this.path}: cannot be read: ${reasonOf(error)}`, this.#options.hint, { cause: error });
    }
  }
}
