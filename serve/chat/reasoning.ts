/** Splits an answer into what the model thinks and what it says. */
import type { ReasoningMarks } from '../../models/chat/answerStyles.js';
import { type AnswerSink, Edges, isSpace, MarkFinder } from './textParts.js';

/** Whether the model begins to think without a mark, may begin with one, or does not think in this answer. */
export type ReasoningStart = 'opened' | 'possible' | 'closed';

/** Spaces around thoughts, and those before what is said after them, are left out. */
export class ReasoningReader {
  readonly #marks: ReasoningMarks;
  readonly #sink: AnswerSink;
  /** Takes what is said. */
  readonly #answer: (text: string) => void;
  #state: 'start' | 'thoughts' | 'between' | 'answer';
  /** What may be the mark with which thoughts begin, and spaces before it. */
  #held = '';
  #spaces = '';
  readonly #finder: MarkFinder;
  readonly #thoughts: Edges;

  constructor(marks: ReasoningMarks, start: ReasoningStart, sink: AnswerSink, answer: (text: string) => void) {
    this.#marks = marks;
    this.#sink = sink;
    this.#answer = answer;
    this.#state = start === 'opened' ? 'thoughts' : start === 'possible' ? 'start' : 'answer';
    this.#finder = new MarkFinder([marks.close]);
    this.#thoughts = new Edges((text) => this.#sink.reasoning(text), true);
  }

  get isThinking(): boolean {
    return this.#state === 'thoughts';
  }

  push(text: string): void {
    if (text === '') return;
    switch (this.#state) {
      case 'start':
        return this.#begin(text);
      case 'thoughts': {
        const { before, mark, rest } = this.#finder.push(text);
        this.#thoughts.push(before);
        if (mark === undefined) return;
        this.#state = 'between';
        return this.push(rest);
      }
      case 'between': {
        const from = firstLetter(text);
        if (from === text.length) return;
        this.#state = 'answer';
        return this.#answer(text.slice(from));
      }
      case 'answer':
        return this.#answer(text);
      default:
        return this.#state satisfies never;
    }
  }

  /** No text follows. */
  end(): void {
    if (this.#state === 'start') this.#answer(this.#spaces + this.#held);
    if (this.#state === 'thoughts') this.#thoughts.push(this.#finder.end());
  }

  #begin(text: string): void {
    const { open } = this.#marks;
    const from = this.#held === '' ? firstLetter(text) : 0;
    this.#spaces += text.slice(0, from);
    this.#held += text.slice(from);
    if (this.#held.startsWith(open)) {
      this.#state = 'thoughts';
      return this.push(this.#held.slice(open.length));
    }
    if (open.startsWith(this.#held)) return;
    this.#state = 'answer';
    this.#answer(this.#spaces + this.#held);
  }
}

/** Where a text has its first unit that is no space. */
function firstLetter(text: string): number {
  let from = 0;
  while (from < text.length && isSpace(text.charCodeAt(from))) from++;
  return from;
}

/** Whether an answer begins with thoughts. `continued`: the part of it that the conversation ends with. */
export function reasoningStart(
  { open, close }: ReasoningMarks,
  prompt: string,
  continued: string | undefined,
): ReasoningStart {
  if (continued !== undefined && continued.trim() !== '')
    return continued.lastIndexOf(open) > continued.lastIndexOf(close) ? 'opened' : 'closed';
  const end = prompt.trimEnd();
  if (end.endsWith(open)) return 'opened';
  return end.endsWith(close) ? 'closed' : 'possible';
}
