/** Finds calls of tools in an answer, each as its family writes it. */
import type { CallFormat } from '../../models/chat/answerStyles.js';
import { type CallReceiver, CallScanner, ValueScanner } from './callScanner.js';
import { type AnswerSink, Edges, isSpace, MarkFinder } from './textParts.js';

const LIST = 0x5b;
const END_OF_LIST = 0x5d;
const OBJECT = 0x7b;
/** Names and ids of calls that stand outside of JSON, with the marks behind them, are no longer. */
const MAX_HEAD = 600;
const NAME = /^[\w.:/-]{1,256}$/;
const OF_HEAD = /[\w.:/[\]-]/;

/**
 * A block that is no call before its name is known is content, as it was written. Behind a name, the arguments are what
 * the model wrote up to the end of the block. Spaces before a call and behind it are left out.
 */
export class ToolCallReader implements CallReceiver {
  readonly #format: CallFormat;
  readonly #known: ReadonlySet<string>;
  readonly #sink: AnswerSink;
  #state: 'start' | 'text' | 'between' | 'object' | 'head' | 'arguments' | 'broken';
  readonly #content: Edges;
  #finder: MarkFinder;
  /** Whether calls were found. */
  #hasCalls = false;

  // State of the current block. A block begins with a mark, or with the bracket of a call without one.
  #isMarked = false;
  #isList = false;
  #hasCallInBlock = false;
  /** What was written since the block began, or since its last call. */
  #raw = '';
  /** How much of the mark that closes the block has come. */
  #closed = 0;
  #object: CallScanner | undefined;
  /** A name, and what stands between it and its arguments. */
  #head = '';
  #value: ValueScanner | undefined;
  /** Whether what follows what is no JSON is dropped up to the end of the block. */
  #dropsBroken = false;

  /** `known`: names of the functions that may be called. */
  constructor(format: CallFormat, known: ReadonlySet<string>, sink: AnswerSink) {
    this.#format = format;
    this.#known = known;
    this.#sink = sink;
    this.#state = format.isBare === true ? 'start' : 'text';
    this.#content = new Edges((text) => this.#sink.content(text), false);
    this.#finder = new MarkFinder([format.open]);
  }

  push(text: string): void {
    let at = 0;
    while (at < text.length) at = this.#take(text, at);
  }

  /** No text follows. `isCut`: because it may not be longer. */
  end(isCut: boolean): void {
    switch (this.#state) {
      case 'text':
        this.#content.push(this.#finder.end());
        break;
      case 'broken':
        this.#argue(this.#finder.end());
        break;
      case 'arguments':
        break;
      case 'object':
        if (this.#object?.isTold === true) {
          if (!isCut) this.#object.complete();
          break;
        }
        this.#content.push(this.#raw);
        break;
      case 'start':
      case 'head':
        this.#content.push(this.#raw);
        break;
      case 'between':
        if (!this.#hasCallInBlock) this.#content.push(this.#raw);
        break;
      default:
        return this.#state satisfies never;
    }
    if (this.#hasCalls) this.#content.drop(true);
    this.#content.end();
  }

  accepts(name: string): boolean {
    return this.#isMarked || this.#known.has(name);
  }

  call(name: string, id?: string): void {
    this.#content.drop(true);
    this.#hasCalls = true;
    this.#hasCallInBlock = true;
    this.#raw = '';
    this.#sink.call(name, id);
  }

  argument(text: string): void {
    this.#sink.argument(text);
  }

  /** Takes one unit or more from a place on. Returns the place behind them. */
  #take(text: string, at: number): number {
    switch (this.#state) {
      case 'start':
        return this.#start(text, at);
      case 'text':
      case 'broken':
        return this.#findMark(text, at);
      case 'between':
        return this.#between(text, at);
      case 'object':
        return this.#inObject(text, at);
      case 'head':
        return this.#inHead(text, at);
      case 'arguments':
        return this.#inArguments(text, at);
      default:
        return this.#state satisfies never;
    }
  }

  #findMark(text: string, at: number): number {
    const { before, mark, rest } = this.#finder.push(at === 0 ? text : text.slice(at));
    if (this.#state === 'text') this.#content.push(before);
    else this.#argue(before);
    if (mark === this.#format.open) this.#open(mark);
    else if (mark !== undefined) this.#close();
    return text.length - rest.length;
  }

  #start(text: string, at: number): number {
    const code = text.charCodeAt(at);
    if (isSpace(code)) {
      this.#raw += text.charAt(at);
      return at + 1;
    }
    const spaces = this.#raw;
    this.#raw = '';
    if (code === OBJECT) {
      this.#open(spaces);
      this.#isMarked = false;
    } else {
      this.#content.push(spaces);
      this.#state = 'text';
    }
    return at;
  }

  #open(raw: string): void {
    this.#state = 'between';
    this.#isMarked = true;
    this.#isList = false;
    this.#hasCallInBlock = false;
    this.#raw = raw;
    this.#closed = 0;
  }

  /** The block is over: content follows. */
  #close(): void {
    this.#state = 'text';
    this.#raw = '';
    this.#finder = new MarkFinder([this.#format.open]);
  }

  /** The block is no call, or ends with something else: what was written of it is content. */
  #giveBack(): void {
    const raw = this.#raw;
    const { close } = this.#format;
    if (close === undefined || !this.#hasCallInBlock) {
      this.#close();
      return this.#content.push(raw);
    }
    // A bracket too many, say, which is of no use to anybody; or the mark of another block.
    this.#break(true);
    this.#finder.push(close.slice(0, this.#closed));
  }

  /** Up to the end of the block, nothing is JSON any more. `isComplete`: the arguments were. */
  #break(isComplete: boolean): void {
    this.#state = 'broken';
    this.#dropsBroken = isComplete;
    const { open, close } = this.#format;
    this.#finder = new MarkFinder(close === undefined ? [open] : isComplete ? [close, open] : [close]);
  }

  #argue(text: string): void {
    if (!this.#dropsBroken && text !== '') this.#sink.argument(text);
  }

  #between(text: string, at: number): number {
    const code = text.charCodeAt(at);
    const letter = text.charAt(at);
    const { close, beforeArguments } = this.#format;
    if (this.#closed > 0 || (close !== undefined && letter === close[0])) return this.#closing(letter, at);
    const isFirst = !this.#hasCallInBlock && !this.#isList;
    const isSeparator = isSpace(code) || (this.#hasCallInBlock && (letter === ',' || letter === ';'));
    if (isSeparator || (isFirst && this.#isMarked && code === LIST)) {
      this.#isList ||= code === LIST;
      this.#raw += letter;
      return at + 1;
    }
    if (this.#isList && code === END_OF_LIST) {
      if (!this.#hasCallInBlock) this.#content.push(this.#raw + letter);
      if (close === undefined) this.#close();
      else this.#isList = false;
      return at + 1;
    }
    if (code === OBJECT) {
      this.#state = 'object';
      this.#object = new CallScanner(this);
    } else if (beforeArguments !== undefined && isFirst) {
      this.#state = 'head';
      this.#head = '';
    } else this.#giveBack();
    return at;
  }

  #closing(letter: string, at: number): number {
    const close = this.#format.close!;
    if (letter !== close[this.#closed]) {
      this.#giveBack();
      return at;
    }
    this.#raw += letter;
    this.#closed++;
    if (this.#closed === close.length) {
      if (!this.#hasCallInBlock) this.#content.push(this.#raw);
      this.#close();
    }
    return at + 1;
  }

  #inObject(text: string, at: number): number {
    const object = this.#object!;
    const end = object.push(text, at);
    if (!object.isTold) this.#raw += text.slice(at, end);
    if (object.isDone) this.#state = 'between';
    else if (object.hasFailed && object.isTold) this.#break(object.hasAllArguments);
    else if (object.hasFailed) this.#giveBack();
    return end;
  }

  /** `name[ARGS]`, `name[CALL_ID]id[ARGS]`, or a name before a brace. */
  #inHead(text: string, at: number): number {
    const { beforeArguments = '', beforeId = beforeArguments } = this.#format;
    const letter = text.charAt(at);
    const isMarked = this.#head.endsWith(beforeArguments);
    if (letter !== '{' && !isMarked) {
      if (this.#head.length === MAX_HEAD || !OF_HEAD.test(letter)) {
        this.#giveBack();
        return at;
      }
      this.#head += letter;
      this.#raw += letter;
      return at + 1;
    }
    if (isMarked && isSpace(text.charCodeAt(at))) {
      this.#raw += letter;
      return at + 1;
    }
    const [name = '', id] = (isMarked ? this.#head.slice(0, -beforeArguments.length) : this.#head).split(beforeId);
    if (letter !== '{' || !NAME.test(name) || (id !== undefined && !NAME.test(id))) {
      this.#giveBack();
      return at;
    }
    this.call(name, id);
    this.#value = new ValueScanner(OBJECT);
    this.#state = 'arguments';
    return at;
  }

  #inArguments(text: string, at: number): number {
    const value = this.#value!;
    const end = value.push(text, at);
    if (end > at) this.argument(text.slice(at, end));
    if (value.hasFailed) this.#break(false);
    else if (value.isDone) this.#close();
    return end;
  }
}
