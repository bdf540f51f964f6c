/** The text of a growing list of tokens, and where a stop string ends it. */

/** The text of tokens; bytes that are no character yet become U+FFFD. */
export type Decode = (ids: readonly number[]) => Promise<string>;

/** Tokens before the new ones that are decoded with them: a token's text may depend on those before it. */
const CONTEXT = 8;

export class TextStream {
  /** Text that stands: whole characters, none of which may be the start of a stop string. */
  text = '';
  private readonly decode: Decode;
  private readonly stops: readonly string[];
  private readonly ids: number[] = [];
  /** Tokens whose text is complete, and that text. */
  private settled = 0;
  private complete = '';

  /** `stops`: none of them empty. */
  constructor(decode: Decode, stops: readonly string[] = []) {
    this.decode = decode;
    this.stops = stops;
  }

  /**
   * Takes the next token. Returns the text that it adds, and whether a stop string has ended the text. `mayStop`: stop
   * strings that are complete with this token end nothing.
   */
  async push(id: number, mayStop = true): Promise<{ readonly added: string; readonly isStopped: boolean }> {
    this.ids.push(id);
    const from = Math.max(0, this.settled - CONTEXT);
    const [before, after] = await Promise.all([
      this.decode(this.ids.slice(from, this.settled)),
      this.decode(this.ids.slice(from)),
    ]);
    // A character whose bytes lie in several tokens is not there before the last of them.
    if (after.endsWith('\uFFFD')) return { added: '', isStopped: false };
    this.complete += after.slice(before.length);
    this.settled = this.ids.length;
    const stop = this.firstStop();
    if (stop !== undefined && !mayStop) return { added: this.showTo(this.complete.length), isStopped: false };
    return { added: this.showTo(stop ?? this.complete.length - this.held()), isStopped: stop !== undefined };
  }

  /** No token follows. Returns the text that was held back. */
  async end(): Promise<string> {
    const from = Math.max(0, this.settled - CONTEXT);
    const before = await this.decode(this.ids.slice(from, this.settled));
    this.complete += (await this.decode(this.ids.slice(from))).slice(before.length);
    this.settled = this.ids.length;
    return this.showTo(this.complete.length);
  }

  private showTo(length: number): string {
    const added = this.complete.slice(this.text.length, length);
    this.text += added;
    return added;
  }

  /**
   * Where the text ends: it is cut at one stop string after the other, as the public harness does. So of two that
   * overlap, the first of the list counts, and the other is not whole any more.
   */
  private firstStop(): number | undefined {
    let end: number | undefined;
    for (const stop of this.stops) {
      const at = this.complete.indexOf(stop, this.text.length);
      if (at >= 0 && at + stop.length <= (end ?? Infinity)) end = at;
    }
    return end;
  }

  /** Characters at the end that may be the start of a stop string. */
  private held(): number {
    let most = 0;
    for (const stop of this.stops)
      for (let n = Math.min(stop.length - 1, this.complete.length - this.text.length); n > most; n--)
        if (this.complete.endsWith(stop.slice(0, n))) most = n;
    return most;
  }
}
