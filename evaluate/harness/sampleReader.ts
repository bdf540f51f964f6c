/** Reads samples_*.jsonl of a part of a run line by line. The file is untrusted: what is read is checked and hashed. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { FileLines } from '../../system/lines.js';
import type { Item } from '../../tasks/scores/aggregate.js';
import type { Values } from '../../tasks/scores/ofDocument.js';

const MAX_LINE = 256 << 20;
const AGAIN = 'Move the file away and run the shard again with --resume';
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const LINE = z.looseObject({
  doc_id: z.int().min(0),
  filter: z.string().max(300),
  doc_hash: hash,
  prompt_hash: hash,
  target_hash: hash,
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
  readonly #lines: FileLines;
  readonly #expected: string;
  readonly #metrics: readonly string[];
  readonly #hash = createHash('sha256');

  /** `expected`: SHA-256 of the whole file. Throws UserError. */
  constructor(path: string, expected: string, metrics: readonly string[]) {
    if (!existsSync(path)) throw new UserError(`${path} is missing beside its results`, AGAIN);
    this.path = path;
    this.#expected = expected;
    this.#metrics = metrics;
    this.#lines = new FileLines(path, {
      maxLineBytes: MAX_LINE,
      hint: AGAIN,
      onBytes: (part) => this.#hash.update(part),
    });
    this.advance();
  }

  advance(): void {
    const found = this.#lines.next();
    if (found === undefined) {
      this.next = undefined;
      return;
    }
    const where = `${this.path}:${found.number}`;
    if (!found.isEnded) throw new UserError(`${where}: the line was cut off`, AGAIN);
    const line = `${found.bytes.toString('utf8')}\n`;
    const parsed = LINE.safeParse(this.#parsed(line));
    if (!parsed.success) throw new UserError(`${where}: not a sample`, AGAIN);
    const { doc_id: docId, filter, doc_hash, prompt_hash, target_hash, ...rest } = parsed.data;
    const values = new Map<string, Item>();
    for (const name of this.#metrics) {
      // Where nothing is measured, nothing is what the line says.
      const value = ITEM.safeParse(name === 'bypass' && rest[name] === null ? 0 : rest[name]);
      if (value.success) values.set(name, value.data);
      else if (rest[name] !== undefined) throw new UserError(`${where}: ${name} is no number`, AGAIN);
    }
    this.next = { docId, filter, line, hashes: doc_hash + prompt_hash + target_hash, values };
  }

  /** Call at the end. Throws UserError where the file is not the one that the results were made from. */
  check(): void {
    if (this.#hash.digest('hex') !== this.#expected)
      throw new UserError(`${this.path} does not hold the samples that its results were computed from`, AGAIN);
  }

  close(): void {
    this.#lines.close();
  }

  #parsed(line: string): unknown {
    try {
      return JSON.parse(line);
    } catch {
      return undefined;
    }
  }
}
