/** Reads the header of a GGUF file from its beginning. Nothing is allocated for a size that the file cannot hold. */
import { UserError } from '../../errors.js';

/** Several times the header of the largest published vocabulary. */
const MAX_HEADER_BYTES = 256 << 20;
const FIRST_BYTES = 1 << 20;

export const REFETCH = 'download the file again';

/** `length` bytes of a file from byte `offset` on, or fewer if it ends earlier. */
export type ReadBytes = (offset: number, length: number) => Buffer;

/** A place in a file, little endian. `at` says what is read, for messages. */
export class Cursor {
  readonly where: string;
  private readonly read: ReadBytes;
  private readonly sizeBytes: number;
  private bytes: Buffer = Buffer.alloc(0);
  private position = 0;

  constructor(read: ReadBytes, sizeBytes: number, where: string) {
    this.read = read;
    this.sizeBytes = sizeBytes;
    this.where = where;
  }

  get offset(): number {
    return this.position;
  }

  /** What has been passed so far. */
  passed(): Buffer {
    return this.bytes.subarray(0, this.position);
  }

  u32(at: string): number {
    return this.take(4, at).readUInt32LE();
  }

  u64(at: string): bigint {
    return this.take(8, at).readBigUInt64LE();
  }

  /** A count or a size of at most `most`. */
  size(at: string, most: number): number {
    const value = this.u64(at);
    if (value > BigInt(most)) this.fail(`${at} is ${value}; the limit is ${most}`);
    return Number(value);
  }

  /** The bytes of a text, behind its length. */
  text(at: string, most: number): Buffer {
    return this.take(this.size(`the length of ${at}`, most), at);
  }

  /** The next `length` bytes. */
  take(length: number, at: string): Buffer {
    const start = this.position;
    const end = start + length;
    if (end > this.sizeBytes) this.fail(`truncated: ${at} ends at byte ${end}, and the file has ${this.sizeBytes}`);
    if (end > MAX_HEADER_BYTES) this.fail(`the header is longer than the limit of ${MAX_HEADER_BYTES} bytes, at ${at}`);
    if (end > this.bytes.length) this.fill(end);
    this.position = end;
    return this.bytes.subarray(start, end);
  }

  fail(what: string): never {
    throw new UserError(`${this.where}: ${what}`, REFETCH);
  }

  /** Reads on, twice as far each time. */
  private fill(end: number): void {
    const wanted = Math.min(this.sizeBytes, Math.max(end, FIRST_BYTES, 2 * this.bytes.length));
    const more = this.read(this.bytes.length, wanted - this.bytes.length);
    this.bytes = Buffer.concat([this.bytes, more]);
    if (this.bytes.length < end) this.fail('changed while it was read');
  }
}
