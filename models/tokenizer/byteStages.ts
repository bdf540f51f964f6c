/** Stages for pieces that stand for bytes: by themselves, or letter by letter. */
import { isUtf8 } from 'node:buffer';
import { BYTE_LETTERS } from './byteLevel.js';
import { Fuse, Passing, type Stage } from './pieceStages.js';
import { REPLACEMENT, Utf8 } from './utf8.js';

const BYTE_PIECE = /^<0x(?:[0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>$/;
/** UTF-16 units of a piece that stands for a byte. */
const BYTE_PIECE_LENGTH = 6;

/** The byte that a piece stands for by itself. */
export const byteOfPiece = (piece: string): number | undefined =>
  piece.length === BYTE_PIECE_LENGTH && BYTE_PIECE.test(piece) ? Number.parseInt(piece.slice(3, 5), 16) : undefined;

/**
 * A run of pieces that stand for bytes becomes one piece of text. Of a run that is no UTF-8, every byte becomes a piece
 * of U+FFFD. `isStreamed`: characters are passed on when they are complete, and stand, so that only bytes behind them
 * become U+FFFD.
 */
export class ByteFallback extends Passing {
  readonly #isStreamed: boolean;
  /** The beginning of a piece, as long as it may stand for a byte. */
  #held: string | undefined;
  /** Bytes of a run that are not passed on yet, and whether others were. */
  readonly #run: number[] = [];
  #isShown = false;
  #isBroken = false;
  #utf8 = new Utf8();

  constructor(isStreamed: boolean, next: Stage) {
    super(next);
    this.#isStreamed = isStreamed;
  }

  override open(): void {
    this.#held = '';
  }

  override part(text: string): void {
    if (this.#held === undefined) return super.part(text);
    this.#held += text;
    if (this.#held.length > BYTE_PIECE_LENGTH || !this.#held.startsWith('<0x'.slice(0, this.#held.length)))
      this.#pass(this.#held);
  }

  #pass(text: string): void {
    this.#held = undefined;
    this.#endRun();
    this.next.open();
    super.part(text);
  }

  override close(): void {
    const byte = this.#held === undefined ? undefined : byteOfPiece(this.#held);
    if (byte !== undefined) {
      this.#held = undefined;
      return this.#takeByte(byte);
    }
    if (this.#held !== undefined) this.#pass(this.#held);
    this.next.close();
  }

  override end(): void {
    this.#endRun();
    this.next.end();
  }

  #takeByte(byte: number): void {
    this.#run.push(byte);
    if (!this.#isStreamed) return;
    const text = this.#isBroken ? '' : this.#utf8.push(byte);
    this.#isBroken ||= this.#utf8.isBroken;
    if (this.#isBroken) this.#replaceBytes();
    else if (text !== '') this.#show(text);
  }

  /** Passes on characters of a run that are complete. */
  #show(text: string): void {
    if (!this.#isShown) this.next.open();
    this.#isShown = true;
    super.part(text);
    this.#run.length = 0;
  }

  #replaceBytes(): void {
    this.#closeShown();
    for (const _ of this.#run) {
      this.next.open();
      super.part(REPLACEMENT);
      this.next.close();
    }
    this.#run.length = 0;
  }

  #closeShown(): void {
    if (this.#isShown) this.next.close();
    this.#isShown = false;
  }

  #endRun(): void {
    if (this.#run.length === 0 && !this.#isShown && !this.#isBroken) return;
    if (this.#run.length > 0) {
      const bytes = Buffer.from(this.#run);
      if (isUtf8(bytes)) this.#show(bytes.toString());
      else this.#replaceBytes();
    }
    this.#closeShown();
    this.#isBroken = false;
    this.#utf8 = new Utf8();
  }
}

const BYTE_OF_LETTER: ReadonlyMap<string, number> = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));

/** The bytes of a piece whose characters all stand for bytes, else those of its text. */
export function bytesOfLetters(piece: string): Uint8Array {
  const bytes = new Uint8Array(piece.length);
  for (let i = 0; i < piece.length; i++) {
    const byte = BYTE_OF_LETTER.get(piece[i]!);
    if (byte === undefined) return Buffer.from(piece);
    bytes[i] = byte;
  }
  return bytes;
}

/** Pieces are bytes, which become one piece of text: parts of it that are no UTF-8 become U+FFFD, as WHATWG says. */
export class ByteLevel extends Fuse {
  readonly #utf8 = new Utf8();
  #piece = '';

  override part(text: string): void {
    this.#piece += text;
  }

  override close(): void {
    const bytes = bytesOfLetters(this.#piece);
    this.#piece = '';
    this.takeBytes(bytes);
  }

  /** The bytes of a piece, in place of its text. */
  takeBytes(bytes: Uint8Array): void {
    this.open();
    let text = '';
    for (const byte of bytes) text += this.#utf8.push(byte);
    super.part(text);
  }

  /** A piece whose bytes are this text, in place of it. */
  takeText(text: string): void {
    this.open();
    super.part(this.#utf8.pending === 0 ? text : this.#utf8.end() + text);
  }

  override end(): void {
    this.open();
    super.part(this.#utf8.end());
    super.end();
  }
}
