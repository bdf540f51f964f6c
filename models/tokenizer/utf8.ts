/** UTF-8 byte by byte, by the rules of WHATWG's Encoding Standard: https://encoding.spec.whatwg.org/#utf-8-decoder. */

/** What stands for bytes that are no character. */
export const REPLACEMENT = '\uFFFD';

export class Utf8 {
  #code = 0;
  /** Bytes of the character that are there, and how many more it needs. */
  #seen = 0;
  #needed = 0;
  /** What the next byte of a character may be. */
  #low = 0x80;
  #high = 0xbf;
  #isBroken = false;

  /** Bytes of a character that is not complete. */
  get pending(): number {
    return this.#seen;
  }

  /** Whether a byte was no part of a character. */
  get isBroken(): boolean {
    return this.#isBroken;
  }

  /** The text that the next byte completes: none in a character, and U+FFFD before or for what is none. */
  push(byte: number): string {
    if (this.#needed === 0) return this.#begin(byte);
    if (byte < this.#low || byte > this.#high) return this.end() + this.#begin(byte);
    this.#low = 0x80;
    this.#high = 0xbf;
    this.#code = (this.#code << 6) | (byte & 0x3f);
    this.#seen++;
    if (--this.#needed > 0) return '';
    this.#seen = 0;
    return String.fromCodePoint(this.#code);
  }

  /** No byte follows: U+FFFD for a character that is not complete. */
  end(): string {
    if (this.#needed === 0) return '';
    this.#seen = this.#needed = 0;
    return this.#replacement();
  }

  #replacement(): string {
    this.#isBroken = true;
    return REPLACEMENT;
  }

  #begin(byte: number): string {
    if (byte < 0x80) return String.fromCharCode(byte);
    if (byte < 0xc2 || byte > 0xf4) return this.#replacement();
    this.#needed = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    this.#code = byte & (0x3f >> this.#needed);
    this.#seen = 1;
    // No longer form than needed, no surrogate, nothing behind U+10FFFF.
    this.#low = byte === 0xe0 ? 0xa0 : byte === 0xf0 ? 0x90 : 0x80;
    this.#high = byte === 0xed ? 0x9f : byte === 0xf4 ? 0x8f : 0xbf;
    return '';
  }
}
