/** What parsers of a growing text are made of. None depends on how the text is cut into parts. */

/** What an answer is read into. */
export interface AnswerSink {
  reasoning(text: string): void;
  content(text: string): void;
  /** The next call begins. `id`: the one that the model wrote. */
  call(name: string, id?: string): void;
  /** The next piece of the last call's arguments. */
  argument(text: string): void;
}

/** Where a mark was found: the text before it, and the rest of the part. */
export interface FoundMark {
  readonly before: string;
  /** Absent where the part has none. */
  readonly mark?: string;
  readonly rest: string;
}

/** Finds the first of some marks. None of them begins with another. */
export class MarkFinder {
  readonly #marks: readonly string[];
  /** The end of the text so far, which may be the beginning of a mark; shorter than the longest one. */
  #held = '';

  constructor(marks: readonly string[]) {
    this.#marks = marks;
  }

  push(part: string): FoundMark {
    const text = this.#held + part;
    let [at, mark] = [text.length, ''];
    for (const each of this.#marks) {
      const found = text.indexOf(each);
      if (found >= 0 && found < at) [at, mark] = [found, each];
    }
    if (mark !== '') {
      this.#held = '';
      return { before: text.slice(0, at), mark, rest: text.slice(at + mark.length) };
    }
    const stands = text.length - this.#begun(text);
    this.#held = text.slice(stands);
    return { before: text.slice(0, stands), rest: '' };
  }

  /** No part follows: the text that was held back. */
  end(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }

  /** The length of the longest end of the text with which a mark begins. */
  #begun(text: string): number {
    for (let length = Math.min(text.length, this.#longest - 1); length > 0; length--) {
      const end = text.slice(text.length - length);
      if (this.#marks.some((mark) => mark.startsWith(end))) return length;
    }
    return 0;
  }

  get #longest(): number {
    return this.#marks.reduce((most, { length }) => Math.max(most, length), 0);
  }
}

/** Whether a UTF-16 unit is a space, a tab or the end of a line. */
export const isSpace = (code: number): boolean => code === 0x20 || (code >= 0x09 && code <= 0x0d);

/** Passes a text on, of which spaces at its beginning and end may be left out. */
export class Edges {
  readonly #give: (text: string) => void;
  #dropsStart: boolean;
  /** Spaces behind what was passed on. */
  #held = '';

  constructor(give: (text: string) => void, dropsStart: boolean) {
    this.#give = give;
    this.#dropsStart = dropsStart;
  }

  push(text: string): void {
    let [from, end] = [0, text.length];
    while (end > 0 && isSpace(text.charCodeAt(end - 1))) end--;
    if (this.#dropsStart) {
      if (end === 0) return;
      while (isSpace(text.charCodeAt(from))) from++;
      this.#dropsStart = false;
    }
    if (end === 0) {
      this.#held += text;
      return;
    }
    this.#give(this.#held + text.slice(from, end));
    this.#held = text.slice(end);
  }

  /** Spaces at the end are left out; `dropsNext`: those before what comes next as well. */
  drop(dropsNext: boolean): void {
    this.#held = '';
    this.#dropsStart = dropsNext;
  }

  /** The text ends with its spaces. */
  end(): void {
    if (this.#held !== '') this.#give(this.#held);
    this.#held = '';
  }
}
