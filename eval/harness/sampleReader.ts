/** Reads samples_*.jsonl of a part of a run line by line. The file is untrusted: what is read is checked and hashed. */
import { createHash } from 'node:crypto';
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import type { Item } from '../../tasks/scores/aggregate.js';
import type { Values } from '../../tasks/scores/ofDocument.js';

const MAX_LINE = 256 << 20;
const BUFFER = 1 << 20;
const AGAIN = 'Move the file away and run the shard again with --resume';
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const LINE = z.looseObject({
  ...{ doc_id: z.int().min(0), filter: z.string().max(300), doc_hash: hash, prompt_hash: hash, target_hash: hash },
});
const ITEM = z.union([z.number(), z.array(z.number()).max(10_000)]);

export interface SampleLine {
  readonly docId: number;
  readonly filter: string;
  /** With its line end. */
  readonly line: string;
  /** Of document, prompt and target. */
  readonly hashes: string;
  readonly values: Values;
}

export class SampleReader {
  readonly path: string;
  /** The line that is to be taken; undefined at the end. */
  next: SampleLine | undefined;
  readonly #fd: number;
  readonly #expected: string;
  readonly #metrics: readonly string[];
  readonly #hash = createHash('sha256');
  readonly #buffer = Buffer.alloc(BUFFER);
  #held = Buffer.alloc(0);
  #number = 0;

  /** `expected`: SHA-256 of the whole file. Throws UserError. */
  constructor(path: string, expected: string, metrics: readonly string[]) {
    if (!existsSync(path)) throw new UserError(`${path} is missing beside its results`, AGAIN);
    this.path = path;
    this.#expected = expected;
    this.#metrics = metrics;
    this.#fd = openSync(path, 'r');
    this.advance();
  }

  advance(): void {
    const bytes = this.#line();
    if (bytes === undefined) {
      this.next = undefined;
      return;
    }
    this.#number++;
    const line = bytes.toString('utf8');
    const parsed = LINE.safeParse(this.#parsed(line));
    if (!parsed.success) throw new UserError(`${this.path}:${this.#number}: not a sample`, AGAIN);
    const { doc_id: docId, filter, doc_hash, prompt_hash, target_hash, ...rest } = parsed.data;
    const values = new Map<string, Item>();
    for (const name of this.#metrics) {
      const value = ITEM.safeParse(rest[name]);
      if (value.success) values.set(name, value.data);
      else if (rest[name] !== undefined)
        throw new UserError(`${this.path}:${this.#number}: ${name} is no number`, AGAIN);
    }
    this.next = { docId, filter, line, hashes: doc_hash + prompt_hash + target_hash, values };
  }

  /** Call at the end. Throws UserError where the file is not the one that the results were made from. */
  check(): void {
    if (this.#hash.digest('hex') !== this.#expected)
      throw new UserError(`${this.path} does not hold the samples that its results were computed from`, AGAIN);
  }

  close(): void {
    closeSync(this.#fd);
  }

  #parsed(line: string): unknown {
    try {
      return JSON.parse(line);
    } catch {
      return undefined;
    }
  }

  /** The next line with its end; undefined after the last. */
  #line(): Buffer | undefined {
    const parts = [this.#held];
    let length = this.#held.length;
    let end = this.#held.indexOf(10);
    while (end < 0) {
      const read = readSync(this.#fd, this.#buffer, 0, BUFFER, null);
      if (read === 0) {
        if (length > 0) throw new UserError(`${this.path}:${this.#number + 1}: the line was cut off`, AGAIN);
        return undefined;
      }
      const part = Buffer.from(this.#buffer.subarray(0, read));
      this.#hash.update(part);
      const at = part.indexOf(10);
      if (at >= 0) end = length + at;
      parts.push(part);
      length += read;
      if (length > MAX_LINE) throw new UserError(`${this.path}:${this.#number + 1}: the line is too long`, AGAIN);
    }
    const all = parts.length === 1 ? this.#held : Buffer.concat(parts);
    this.#held = all.subarray(end + 1);
    return all.subarray(0, end + 1);
  }
}
