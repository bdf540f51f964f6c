/** How tokens are written beside their log-probabilities. */
import { isUtf8 } from 'node:buffer';
import type { GeneratedToken, TokenLogProb } from '../engine/request.js';
import type { Detokenizer } from '../models/tokenizer/detokenizer.js';

const texts = new WeakMap<Detokenizer, TokenTexts>();

/** Of a detokenizer, for as long as that lives: filled as tokens occur. */
export function tokenTexts(detokenizer: Detokenizer): TokenTexts {
  let found = texts.get(detokenizer);
  if (found === undefined) texts.set(detokenizer, (found = new TokenTexts(detokenizer)));
  return found;
}

export class TokenTexts {
  readonly #detokenizer: Detokenizer;
  readonly #json: (string | undefined)[] = [];

  constructor(detokenizer: Detokenizer) {
    this.#detokenizer = detokenizer;
  }

  /** A special token as it is written; bytes that are no text by themselves as `bytes:\xNN\xNN`. */
  textOf(id: number): string {
    const special = this.#detokenizer.specialText(id);
    if (special !== undefined) return special;
    const bytes = this.#detokenizer.bytesOf(id);
    if (isUtf8(bytes)) return Buffer.from(bytes).toString();
    return `bytes:${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
  }

  /** The bytes that it adds to a text, or its own text where it is special. */
  bytesOf(id: number): Uint8Array {
    const special = this.#detokenizer.specialText(id);
    return special === undefined ? this.#detokenizer.bytesOf(id) : Buffer.from(special);
  }

  /** The text as JSON. */
  jsonOf(id: number): string {
    return (this.#json[id] ??= JSON.stringify(this.textOf(id)));
  }
}

/** Characters as clients count them: code points. */
export function characters(text: string): number {
  let count = text.length;
  for (let at = 1; at < text.length; at++) {
    const isLow = (text.charCodeAt(at) & 0xfc00) === 0xdc00;
    if (isLow && (text.charCodeAt(at - 1) & 0xfc00) === 0xd800) count--;
  }
  return count;
}

/** A log-probability as JSON, which has no infinity. */
export const logProbJson = (logProb: number): string => String(Math.max(logProb, -9999));

/** The most likely tokens beside a drawn one, which is the first of them where nothing else is known. */
export const mostLikelyOf = ({ token, logProb, top = [] }: GeneratedToken, count: number): readonly TokenLogProb[] =>
  top.length > 0 ? top.slice(0, count) : [{ token, logProb }].slice(0, count);
