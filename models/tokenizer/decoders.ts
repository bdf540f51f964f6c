/**
 * The decoder of a tokenizer.json, which makes text of the pieces of tokens: known components with bounds, and a stage
 * for each that takes pieces as they come. What the stages give for a list of pieces is what the tokenizer library
 * gives for it.
 */
import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { isGiven, isRecord } from '../../system/json.js';
import { BYTE_LETTERS } from './byteLevel.js';
import { REPLACEMENT, Utf8 } from './utf8.js';
import { short } from './vocabulary.js';

const MAX_DECODERS = 16;
const count = z.int().min(0).max(256);
const flag = z.boolean().optional();

const decoder = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ByteFallback') }),
  z.object({ type: z.literal('Fuse') }),
  z.object({ type: z.literal('ByteLevel'), add_prefix_space: flag, trim_offsets: flag, use_regex: flag }),
  z.object({ type: z.literal('Strip'), content: short, start: count, stop: count }),
  z.object({ type: z.literal('Replace'), pattern: z.strictObject({ String: short }), content: z.string().max(256) }),
  z.object({ type: z.literal('WordPiece'), prefix: short, cleanup: z.boolean() }),
  z.object({ type: z.literal('BPEDecoder'), suffix: short }),
  z.object({
    type: z.literal('Metaspace'),
    replacement: z.string().refine((text) => [...text].length === 1, 'expected one character'),
    add_prefix_space: flag,
    prepend_scheme: z.enum(['always', 'never', 'first']).optional(),
    split: flag,
  }),
]);
export const decoderList = z.array(decoder).max(MAX_DECODERS);

/** A checked decoder, ready to be written into a tokenizer.json. */
export type Decoder = z.infer<typeof decoder>;

/**
 * The components of `value`, a decoder as a tokenizer.json has it; undefined where one is not known or out of bounds.
 * Encoding needs no decoder, so that is no fault of the file.
 */
export function parseDecoders(value: unknown): readonly Decoder[] | undefined {
  if (!isGiven(value)) return [];
  const members: unknown = isRecord(value) && value['type'] === 'Sequence' ? value['decoders'] : [value];
  return decoderList.safeParse(members).data;
}

export const writeDecoders = (decoders: readonly Decoder[] | undefined): unknown =>
  decoders === undefined || decoders.length === 0 ? null : { type: 'Sequence', decoders };

/** Takes pieces in order, each in one part or in several of whole characters, and passes on what they become. */
export interface Stage {
  /** A piece begins. */
  open(): void;
  part(text: string): void;
  /** The piece is complete. */
  close(): void;
  /** No piece follows. */
  end(): void;
}

/** The last stage: pieces are text now. */
export class TextSink implements Stage {
  #text = '';

  open(): void {}

  part(text: string): void {
    this.#text += text;
  }

  close(): void {}

  end(): void {}

  /** The text since this was last called. */
  take(): string {
    const text = this.#text;
    this.#text = '';
    return text;
  }
}

/** Passes pieces on as they are. */
class Passing implements Stage {
  protected readonly next: Stage;

  constructor(next: Stage) {
    this.next = next;
  }

  open(): void {
    this.next.open();
  }

  part(text: string): void {
    if (text !== '') this.next.part(text);
  }

  close(): void {
    this.next.close();
  }

  end(): void {
    this.next.end();
  }
}

/** Without a decoder there is a space between any two pieces. */
class Spaces extends Passing {
  #isFirst = true;

  override open(): void {
    this.next.open();
    if (!this.#isFirst) this.next.part(' ');
    this.#isFirst = false;
  }
}

/** Makes all pieces one. */
class Fuse extends Passing {
  #isOpen = false;

  override open(): void {
    if (!this.#isOpen) this.next.open();
    this.#isOpen = true;
  }

  override close(): void {}

  override end(): void {
    this.open();
    this.next.close();
    this.next.end();
  }
}

/** How many UTF-16 units at the end of `text`, from `from` on, may be the beginning of `pattern`. */
function begun(text: string, from: number, pattern: string): number {
  for (let n = Math.min(pattern.length - 1, text.length - from); n > 0; n--)
    if (text.endsWith(pattern.slice(0, n))) return n;
  return 0;
}

class Replace extends Passing {
  readonly #pattern: string;
  readonly #content: string;
  #held = '';

  constructor(pattern: string, content: string, next: Stage) {
    super(next);
    this.#pattern = pattern;
    this.#content = content;
  }

  override part(text: string): void {
    const all = this.#held + text;
    let from = 0;
    let done = '';
    for (let at = all.indexOf(this.#pattern); at >= 0; at = all.indexOf(this.#pattern, from)) {
      done += all.slice(from, at) + this.#content;
      from = at + this.#pattern.length;
    }
    const end = all.length - begun(all, from, this.#pattern);
    this.#held = all.slice(end);
    super.part(done + all.slice(from, end));
  }

  override close(): void {
    super.part(this.#held);
    this.#held = '';
    this.next.close();
  }
}

/** Takes at most `start` of a character from the beginning of each piece, and `stop` from its end. */
class Strip extends Passing {
  readonly #content: string;
  readonly #start: number;
  readonly #stop: number;
  /** How many may still be taken from the beginning, and how many are held that may be the end. */
  #left = 0;
  #held = 0;

  constructor({ content, start, stop }: Decoder & { readonly type: 'Strip' }, next: Stage) {
    super(next);
    this.#content = content;
    this.#start = start;
    this.#stop = stop;
  }

  override open(): void {
    this.#left = this.#start;
    this.next.open();
  }

  override part(text: string): void {
    let from = 0;
    for (; this.#left > 0 && text.startsWith(this.#content, from); this.#left--) from += this.#content.length;
    if (from < text.length) this.#left = 0;
    if (this.#stop === 0) return super.part(text.slice(from));
    const all = this.#content.repeat(this.#held) + text.slice(from);
    let end = all.length;
    for (this.#held = 0; this.#held < this.#stop && all.endsWith(this.#content, end); this.#held++)
      end -= this.#content.length;
    super.part(all.slice(0, end));
  }

  override close(): void {
    this.#held = 0;
    this.next.close();
  }
}

/** Marks of spaces; those of the first piece stand for none, unless nothing puts a space before a text. */
class Metaspace extends Passing {
  readonly #mark: string;
  #space: '' | ' ';

  constructor(mark: string, isPrepended: boolean, next: Stage) {
    super(next);
    this.#mark = mark;
    this.#space = isPrepended ? '' : ' ';
  }

  override part(text: string): void {
    super.part(text.replaceAll(this.#mark, this.#space));
  }

  override close(): void {
    this.#space = ' ';
    this.next.close();
  }
}

/** A piece that goes on with a word has a prefix, and a space is before any other but the first. */
class WordPiece extends Passing {
  readonly #prefix: string;
  #isFirst = true;
  /** The beginning of a piece, as long as it may be that of the prefix. */
  #held: string | undefined;

  constructor(prefix: string, next: Stage) {
    super(next);
    this.#prefix = prefix;
  }

  override open(): void {
    this.#held = this.#isFirst ? undefined : '';
    this.#isFirst = false;
    this.next.open();
  }

  override part(text: string): void {
    if (this.#held === undefined) return super.part(text);
    this.#held += text;
    if (this.#held.length >= this.#prefix.length || !this.#prefix.startsWith(this.#held)) this.#begin(this.#held);
  }

  #begin(text: string): void {
    this.#held = undefined;
    super.part(text.startsWith(this.#prefix) ? text.slice(this.#prefix.length) : ` ${text}`);
  }

  override close(): void {
    if (this.#held !== undefined) this.#begin(this.#held);
    this.next.close();
  }
}

/** What WordPiece's `cleanup` replaces in each piece, one after the other. */
const CLEANUP: readonly (readonly [string, string])[] = [
  [' .', '.'],
  [' ?', '?'],
  [' !', '!'],
  [' ,', ','],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [' do not', " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];

/** The mark at the end of a word becomes a space, and nothing in the last piece, which is held until it is known. */
class EndOfWord extends Passing {
  readonly #mark: string;
  /** The last piece from the first mark on. */
  #held: string | undefined;

  constructor(mark: string, next: Stage) {
    super(next);
    this.#mark = mark;
  }

  override open(): void {
    this.#finish(' ');
    this.#held = '';
    this.next.open();
  }

  override part(text: string): void {
    const all = (this.#held ?? '') + text;
    const at = all.indexOf(this.#mark);
    const end = at < 0 ? all.length - begun(all, 0, this.#mark) : at;
    this.#held = all.slice(end);
    super.part(all.slice(0, end));
  }

  override close(): void {}

  override end(): void {
    this.#finish('');
    this.next.end();
  }

  #finish(space: string): void {
    if (this.#held === undefined) return;
    super.part(this.#held.replaceAll(this.#mark, space));
    this.next.close();
  }
}

const BYTE_PIECE = /^<0x(?:[0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>$/;
/** UTF-16 units of a piece that stands for a byte. */
const BYTE_PIECE_LENGTH = 6;

/** The byte that a piece stands for by itself. */
export const byteOfPiece = (piece: string): number | undefined =>
  piece.length === BYTE_PIECE_LENGTH && BYTE_PIECE.test(piece) ? Number.parseInt(piece.slice(3, 5), 16) : undefined;

/**
 * A run of pieces that stand for bytes becomes one piece of text; of one that is no UTF-8, every byte becomes a piece of
 * U+FFFD. `isStreamed`: characters are passed on when they are complete, and stand, so that only bytes behind them
 * become U+FFFD.
 */
class ByteFallback extends Passing {
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

/** Whether what the decoder makes of a piece depends only on it and on whether it is the first. */
export const isOfPiece = ({ type }: Decoder): boolean =>
  type === 'Replace' || type === 'Strip' || type === 'Metaspace' || type === 'WordPiece';

function stageOf(of: Decoder, isStreamed: boolean, next: Stage): Stage {
  switch (of.type) {
    case 'ByteFallback':
      return new ByteFallback(isStreamed, next);
    case 'Fuse':
      return new Fuse(next);
    case 'ByteLevel':
      return new ByteLevel(next);
    case 'Strip':
      return new Strip(of, next);
    case 'Replace':
      return new Replace(of.pattern.String, of.content, next);
    case 'WordPiece': {
      const cleanup = of.cleanup ? CLEANUP : [];
      return new WordPiece(
        of.prefix,
        cleanup.reduceRight<Stage>((later, [from, to]) => new Replace(from, to, later), next),
      );
    }
    case 'BPEDecoder':
      return new EndOfWord(of.suffix, next);
    case 'Metaspace':
      return new Metaspace(of.replacement, of.prepend_scheme !== 'never', next);
    default:
      return of satisfies never;
  }
}

/** The stages of these decoders before `next`. `isStreamed`: text is shown before a run of bytes is complete. */
export const stagesOf = (decoders: readonly Decoder[], isStreamed: boolean, next: Stage): Stage =>
  decoders.reduceRight<Stage>((later, each) => stageOf(each, isStreamed, later), next);

/** A stage that puts a space between pieces, as there is where a tokenizer has no decoder. */
export const spacesBefore = (next: Stage): Stage => new Spaces(next);
