/** Reads the text of an answer, as it grows, into thoughts, content and calls. */
import type { CallFormat, ReasoningMarks } from '../../models/chat/answerStyles.js';
import { ReasoningReader, type ReasoningStart } from './reasoning.js';
import type { AnswerSink } from './textParts.js';
import { ToolCallReader } from './toolCalls.js';

export interface AnswerForm {
  /** Of a model that may think. */
  readonly reasoning?: { readonly marks: ReasoningMarks; readonly start: ReasoningStart } | undefined;
  /** Where calls are looked for: how they are written, and the names of the functions. */
  readonly calls?: { readonly format: CallFormat; readonly known: ReadonlySet<string> } | undefined;
}

export class AnswerReader {
  readonly #reasoning: ReasoningReader | undefined;
  readonly #calls: ToolCallReader | undefined;
  readonly #sink: AnswerSink;

  constructor({ reasoning, calls }: AnswerForm, sink: AnswerSink) {
    this.#sink = sink;
    this.#calls = calls && new ToolCallReader(calls.format, calls.known, sink);
    this.#reasoning =
      reasoning && new ReasoningReader(reasoning.marks, reasoning.start, sink, (text) => this.#answer(text));
  }

  /** Whether what comes next is a thought. */
  get isThinking(): boolean {
    return this.#reasoning?.isThinking === true;
  }

  push(text: string): void {
    if (this.#reasoning === undefined) this.#answer(text);
    else this.#reasoning.push(text);
  }

  /** No text follows. `isCut`: because it may not be longer. */
  end(isCut: boolean): void {
    this.#reasoning?.end();
    this.#calls?.end(isCut);
  }

  #answer(text: string): void {
    if (text === '') return;
    if (this.#calls === undefined) this.#sink.content(text);
    else this.#calls.push(text);
  }
}
