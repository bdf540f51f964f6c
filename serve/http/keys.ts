/** Keys that clients must show. */
import { createHash, timingSafeEqual } from 'node:crypto';

const digestOf = (text: string): Buffer => createHash('sha256').update(text).digest();

export class KeyRing {
  private readonly digests: readonly Buffer[];

  constructor(keys: readonly string[]) {
    this.digests = keys.map(digestOf);
  }

  /** Without keys everybody is let in. */
  get isOpen(): boolean {
    return this.digests.length === 0;
  }

  /** Whether an Authorization header names a key. Takes as long whichever it is, and whether it is one. */
  admits(authorization: string | undefined): boolean {
    if (this.isOpen) return true;
    const given = digestOf(/^bearer +(.*)$/is.exec(authorization ?? '')?.[1]?.trim() ?? '');
    return this.digests.map((digest) => timingSafeEqual(digest, given)).includes(true);
  }
}
