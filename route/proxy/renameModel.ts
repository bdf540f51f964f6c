/**
 * Puts the name that a client asked for where an answer names the revision that a replica holds. It looks for the bytes
 * `"model":"NAME"`: inside a text of JSON, quotes are escaped, so they stand for that field and nothing else.
 */
export class ModelRenamer {
  private readonly patterns: readonly Buffer[];
  private readonly plain: Buffer;
  private readonly longest: number;
  /** Bytes that may be the beginning of a match. */
  private kept: Buffer = Buffer.alloc(0);

  constructor(held: string, plain: string) {
    this.patterns = ['"model":', '"model": '].map((key) => Buffer.from(key + JSON.stringify(held)));
    this.plain = Buffer.from(`"model":${JSON.stringify(plain)}`);
    this.longest = Math.max(...this.patterns.map(({ length }) => length));
  }

  /** What can be sent on of all that has come. */
  push(chunk: Buffer): Buffer {
    const bytes = this.kept.length === 0 ? chunk : Buffer.concat([this.kept, chunk]);
    const parts: Buffer[] = [];
    let from = 0;
    for (;;) {
      const match = this.find(bytes, from);
      if (match === undefined) break;
      parts.push(bytes.subarray(from, match.at), this.plain);
      from = match.at + match.length;
    }
    const open = this.openTail(bytes, from);
    this.kept = bytes.subarray(bytes.length - open);
    parts.push(bytes.subarray(from, bytes.length - open));
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  /** The rest, when nothing more comes. */
  end(): Buffer {
    const rest = this.kept;
    this.kept = Buffer.alloc(0);
    return rest;
  }

  private find(bytes: Buffer, from: number): { readonly at: number; readonly length: number } | undefined {
    const found = this.patterns
      .map((pattern) => ({ at: bytes.indexOf(pattern, from), length: pattern.length }))
      .filter(({ at }) => at >= 0);
    return found.sort((a, b) => a.at - b.at)[0];
  }

  /** Bytes at the end that a match may begin with. */
  private openTail(bytes: Buffer, from: number): number {
    const most = Math.min(this.longest - 1, bytes.length - from);
    for (let length = most; length > 0; length--) {
      const tail = bytes.subarray(bytes.length - length);
      if (this.patterns.some((pattern) => length < pattern.length && pattern.subarray(0, length).equals(tail)))
        return length;
    }
    return 0;
  }
}
