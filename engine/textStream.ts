/** The text of a growing list of tokens, and where a stop string ends it. */

/** Makes text of tokens, one after the other. */
export interface TokenText {
  /** The text that a token adds. */
  push(id: number): string;
  /** No token follows: the text that was not complete. */
  end(): string;
  /** Whether the text of a token is never shown in parts, as that of a mark is not. */
  isWhole(id: number): boolean;
}

export class TextStream {
  /** Text that stands: none of it may be the start of a stop string. */
  text = '';
  /** The stop string that has ended the text: it came behind it, and is no part of it. */
  stop: string | undefined;
  readonly #tokens: TokenText;
  readonly #stops: readonly Finder[];
  /** Text behind that which stands. */
  #held = '';
  /** Texts in `#held` that are shown as a whole: where they begin and end, from the first on. */
  #whole: (readonly [from: number, to: number])[] = [];

  /** `stops`: none of them empty. */
  constructor(tokens: TokenText, stops: readonly string[] = []) {
    this.#tokens = tokens;
    this.#stops = stops.map((stop) => new Finder(stop));
  }

  /**
   * Takes the next token. Returns the text that it adds, and whether a stop string has ended the text. `mayStop`: stop
   * strings that are complete with this token end nothing.
   */
  push(id: number, mayStop = true): { readonly added: string; readonly isStopped: boolean } {
    const added = this.#tokens.push(id);
    if (added === '') return { added, isStopped: false };
    const from = this.#held.length;
    this.#held += added;
    if (this.#stops.length === 0) return this.#going(this.#held.length);
    if (this.#tokens.isWhole(id)) this.#whole.push([from, this.#held.length]);
    const stop = this.#firstStop(added);
    if (stop === undefined) return this.#going(this.#held.length - this.#begun());
    if (mayStop) {
      this.stop = stop.text;
      return { added: this.#cut(stop.from), isStopped: true };
    }
    for (const each of this.#stops) each.restart();
    return this.#going(this.#held.length);
  }

  #going(place: number) {
    return { added: this.#show(place), isStopped: false };
  }

  /** No token follows. Returns the text that was held back. */
  end(): string {
    this.#held += this.#tokens.end();
    return this.#show(this.#held.length);
  }

  /** Shows the held text up to a place, or up to the beginning of what is not shown in parts. */
  #show(place: number): string {
    const length = this.#whole.find(([from, to]) => from < place && place < to)?.[0] ?? place;
    if (this.#whole.length > 0)
      this.#whole = this.#whole.flatMap(([from, to]) => (from < length ? [] : [[from - length, to - length] as const]));
    return this.#cut(length);
  }

  #cut(length: number): string {
    const added = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    this.text += added;
    return added;
  }

  /**
   * Where the text ends: it is cut at one stop string after the other, as the public harness does. So of two that
   * overlap, the first of the list counts, and the other is not whole any more.
   */
  #firstStop(added: string): { readonly from: number; readonly text: string } | undefined {
    const before = this.#held.length - added.length;
    let first: { readonly from: number; readonly text: string } | undefined;
    for (const stop of this.#stops) {
      const found = stop.find(added);
      if (found !== undefined && before + found <= (first?.from ?? Infinity))
        first = { from: before + found - stop.text.length, text: stop.text };
    }
    return first;
  }

  /** How many UTF-16 units at the end may be the start of a stop string. */
  #begun(): number {
    return this.#stops.reduce((most, { begun }) => Math.max(most, begun), 0);
  }
}

/** Finds a string in a text that comes in parts, each unit of which it looks at once (Knuth, Morris and Pratt). */
class Finder {
  readonly #string: string;
  /** For each length of its beginning: the longest shorter one that this ends with. */
  readonly #shorter: Int32Array;
  /** UTF-16 units at the end of the text that are the string's beginning. */
  #begun = 0;

  constructor(string: string) {
    this.#string = string;
    this.#shorter = new Int32Array(string.length + 1);
    for (let at = 1, begun = 0; at < string.length; at++) {
      begun = this.#after(begun, string.charCodeAt(at));
      this.#shorter[at + 1] = begun;
    }
  }

  get text(): string {
    return this.#string;
  }

  get begun(): number {
    return this.#begun;
  }

  /** The end, in the next part of the text, of the first occurrence that ends there; undefined where none does. */
  find(part: string): number | undefined {
    let end: number | undefined;
    for (let at = 0; at < part.length; at++) {
      this.#begun = this.#after(this.#begun, part.charCodeAt(at));
      if (this.#begun === this.#string.length) {
        end ??= at + 1;
        this.#begun = this.#shorter[this.#begun]!;
      }
    }
    return end;
  }

  /** What is there already is no part of an occurrence any more. */
  restart(): void {
    this.#begun = 0;
  }

  #after(begun: number, unit: number): number {
    let length = begun;
    while (length > 0 && this.#string.charCodeAt(length) !== unit) length = this.#shorter[length]!;
    return this.#string.charCodeAt(length) === unit ? length + 1 : length;
  }
}
