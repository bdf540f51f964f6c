/** Stages that make text of the pieces of tokens: what the decoders of a tokenizer.json do to texts of pieces. */

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
export class Passing implements Stage {
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
export class Spaces extends Passing {
  #isFirst = true;

  override open(): void {
    this.next.open();
    if (!this.#isFirst) this.next.part(' ');
    this.#isFirst = false;
  }
}

/** Makes all pieces one. */
export class Fuse extends Passing {
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

export class Replace extends Passing {
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

export interface StripOptions {
  /** A character. */
  readonly content: string;
  /** Most of it that are taken. */
  readonly start: number;
  readonly stop: number;
}

/** Takes at most `start` of a character from the beginning of each piece, and `stop` from its end. */
export class Strip extends Passing {
  readonly #content: string;
  readonly #start: number;
  readonly #stop: number;
  /** How many may still be taken from the beginning, and how many are held that may be the end. */
  #left = 0;
  #held = 0;

  constructor({ content, start, stop }: StripOptions, next: Stage) {
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
export class Metaspace extends Passing {
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
export class WordPiece extends Passing {
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
export const CLEANUP: readonly (readonly [string, string])[] = [
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
export class EndOfWord extends Passing {
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
