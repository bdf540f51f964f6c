/** Reads a call as a JSON object with a name and arguments, letter by letter. */
import { isSpace } from './textParts.js';

/** A value of JSON: where it ends. Quotes and brackets are counted; what is between them is not looked at. */
export class ValueScanner {
  readonly kind: 'nested' | 'text' | 'word';
  isDone = false;
  /** What came is no JSON. */
  hasFailed = false;
  #depth = 0;
  #isInText = false;
  #isEscaped = false;

  /** `first`: the first UTF-16 unit, which is pushed as well. */
  constructor(first: number) {
    this.kind = first === OPEN_OBJECT || first === OPEN_LIST ? 'nested' : first === QUOTE ? 'text' : 'word';
  }

  /** Reads from a place on. Returns the place behind what belongs to the value. */
  push(text: string, from: number): number {
    for (let at = from; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (this.#isInText) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (code === BACKSLASH) this.#isEscaped = true;
        else if (code === QUOTE) {
          this.#isInText = false;
          if (this.kind === 'text') return this.#end(at + 1);
        }
      } else if (code === QUOTE && this.kind !== 'word') this.#isInText = true;
      else if (code === OPEN_OBJECT || code === OPEN_LIST) {
        if (this.kind !== 'nested') return this.#fail(at);
        this.#depth++;
      } else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
        if (this.kind === 'word') return this.#end(at);
        if (--this.#depth === 0) return this.#end(at + 1);
      } else if (this.kind === 'word' && (code === COMMA || isSpace(code))) return this.#end(at);
      else if (!isOfJson(code)) return this.#fail(at);
    }
    return text.length;
  }

  #end(at: number): number {
    this.isDone = true;
    return at;
  }

  #fail(at: number): number {
    this.hasFailed = true;
    return at;
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Whether a unit may stand outside of JSON's texts: letters, digits, signs of numbers, separators. */
const isOfJson = (code: number): boolean =>
  isSpace(code) ||
  (code >= 0x30 && code <= 0x39) ||
  (code >= 0x41 && code <= 0x5a) ||
  (code >= 0x61 && code <= 0x7a) ||
  code === COMMA ||
  code === COLON ||
  code === 0x2b ||
  code === 0x2d ||
  code === 0x2e;

/** Arguments that are written as a text of JSON: what is in it. */
class TextDecoder {
  /** The beginning of an escape. */
  #escape = '';

  /** `part`: of what is between the quotes. */
  push(part: string): string {
    let text = '';
    for (const letter of part) {
      if (this.#escape === '' && letter !== '\\') text += letter;
      else {
        this.#escape += letter;
        if (this.#escape.length === (this.#escape[1] === 'u' ? 6 : 2)) text += this.#take();
      }
    }
    return text;
  }

  #take(): string {
    const escape = this.#escape;
    this.#escape = '';
    try {
      return JSON.parse(`"${escape}"`) as string;
    } catch {
      return escape;
    }
  }
}

/** Names and keys are no longer. */
const MAX_NAME = 256;
const ARGUMENT_KEYS: ReadonlySet<string> = new Set(['arguments', 'parameters']);

export interface CallReceiver {
  /** Whether this is the name of a call; if not, the object is none. */
  accepts(name: string): boolean;
  call(name: string): void;
  argument(text: string): void;
}

type State = 'before' | 'key' | 'inKey' | 'colon' | 'value' | 'inName' | 'inArguments' | 'inOther' | 'after';

/**
 * An object `{"name": …, "arguments": …}`, or with `parameters`, in any order and beside other keys. The call is told
 * when its name is known, its arguments as they come. One without arguments has `{}`.
 */
export class CallScanner {
  readonly #receiver: CallReceiver;
  #state: State = 'before';
  isDone = false;
  /** What came is no such object: nothing of it was told, or its call is broken off. */
  hasFailed = false;
  #hasName = false;
  #argumentsAre: 'missing' | 'begun' | 'complete' = 'missing';
  /** Of a key or a name, as it is written. */
  #word = '';
  #key = '';
  #scanner: ValueScanner | undefined;
  #decoder: TextDecoder | undefined;
  /** Whether the quote with which a text begins was taken. */
  #isInText = false;
  /** Arguments before the name. */
  #held = '';

  constructor(receiver: CallReceiver) {
    this.#receiver = receiver;
  }

  /** Whether the call was told. */
  get isTold(): boolean {
    return this.#hasName;
  }

  get hasAllArguments(): boolean {
    return this.#argumentsAre === 'complete';
  }

  /** Nothing follows, and it is not because the text was cut: a call without arguments has empty ones. */
  complete(): void {
    if (this.#hasName && this.#argumentsAre === 'missing') this.#receiver.argument('{}');
    this.#argumentsAre = 'complete';
  }

  /** Reads from a place on. Returns the place behind what belongs to the object. */
  push(text: string, from: number): number {
    let at = from;
    while (at < text.length && !this.isDone && !this.hasFailed) at = this.#step(text, at);
    return at;
  }

  /** Takes one unit or more. */
  #step(text: string, at: number): number {
    const code = text.charCodeAt(at);
    switch (this.#state) {
      case 'before':
        return code === OPEN_OBJECT ? this.#go('key', at) : this.#fail(at);
      case 'key':
        if (isSpace(code)) return at + 1;
        if (code === CLOSE_OBJECT) return this.#end(at);
        this.#word = '"';
        return code === QUOTE ? this.#go('inKey', at) : this.#fail(at);
      case 'inKey':
        return this.#takeWord(text, at, (key) => {
          this.#key = key;
          this.#state = 'colon';
        });
      case 'colon':
        if (isSpace(code)) return at + 1;
        return code === COLON ? this.#go('value', at) : this.#fail(at);
      case 'value':
        return isSpace(code) ? at + 1 : this.#beginValue(code, at);
      case 'inName':
        return this.#takeWord(text, at, (name) => this.#tell(name));
      case 'inArguments':
      case 'inOther':
        return this.#takeValue(text, at);
      case 'after':
        if (isSpace(code)) return at + 1;
        if (code === COMMA) return this.#go('key', at);
        return code === CLOSE_OBJECT ? this.#end(at) : this.#fail(at);
      default:
        return this.#state satisfies never;
    }
  }

  #go(state: State, at: number): number {
    this.#state = state;
    return at + 1;
  }

  #fail(at: number): number {
    this.hasFailed = true;
    return at;
  }

  #end(at: number): number {
    if (!this.#hasName) return this.#fail(at);
    this.complete();
    this.isDone = true;
    return at + 1;
  }

  #takeWord(text: string, at: number, take: (word: string) => void): number {
    const letter = text.charAt(at);
    this.#word += letter;
    if (this.#word.length > MAX_NAME) return this.#fail(at);
    if (letter === '"' && !isEscaped(this.#word)) {
      const word = parsed(this.#word);
      if (typeof word !== 'string') return this.#fail(at);
      take(word);
    }
    return at + 1;
  }

  #tell(name: string): void {
    if (name === '' || !this.#receiver.accepts(name)) {
      this.hasFailed = true;
      return;
    }
    this.#state = 'after';
    this.#hasName = true;
    this.#receiver.call(name);
    if (this.#held !== '') this.#receiver.argument(this.#held);
    this.#held = '';
  }

  #beginValue(code: number, at: number): number {
    if (this.#key === 'name' && !this.#hasName) {
      this.#word = '"';
      return code === QUOTE ? this.#go('inName', at) : this.#fail(at);
    }
    if (code === COMMA || code === CLOSE_OBJECT) return this.#fail(at);
    const isArguments = ARGUMENT_KEYS.has(this.#key) && this.#argumentsAre === 'missing';
    this.#state = isArguments ? 'inArguments' : 'inOther';
    this.#scanner = new ValueScanner(code);
    if (!isArguments) return at;
    // Null is what some models write for none.
    this.#argumentsAre = this.#scanner.kind === 'word' && code === 0x6e ? 'missing' : 'begun';
    this.#decoder = this.#scanner.kind === 'text' ? new TextDecoder() : undefined;
    return at;
  }

  #takeValue(text: string, at: number): number {
    const scanner = this.#scanner!;
    const isFirst = scanner.kind === 'text' && !this.#isInText;
    const end = scanner.push(text, at);
    if (this.#state === 'inArguments' && this.#argumentsAre === 'begun') {
      const part = text.slice(isFirst ? at + 1 : at, scanner.isDone && scanner.kind === 'text' ? end - 1 : end);
      this.#give(this.#decoder?.push(part) ?? part);
    }
    this.#isInText = scanner.kind === 'text' && !scanner.isDone;
    if (scanner.hasFailed) return this.#fail(end);
    if (!scanner.isDone) return end;
    if (this.#state === 'inArguments' && this.#argumentsAre === 'begun') this.#argumentsAre = 'complete';
    this.#state = 'after';
    return end;
  }

  #give(text: string): void {
    if (text === '') return;
    if (this.#hasName) this.#receiver.argument(text);
    else this.#held += text;
  }
}

/** Whether the quote at the end of a word is part of it. */
function isEscaped(word: string): boolean {
  let from = word.length - 1;
  while (word[from - 1] === '\\') from--;
  return (word.length - 1 - from) % 2 === 1;
}

function parsed(word: string): unknown {
  try {
    return JSON.parse(word);
  } catch {
    return undefined;
  }
}
