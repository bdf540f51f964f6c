/** What parsers of answers are tested with. */
import type { AnswerSink } from '../../../serve/chat/textParts.js';
import { type Random } from '../../fuzz/mutate.js';

/** An answer as it is read. */
export class Gathered implements AnswerSink {
  readonly result = {
    reasoning: '',
    content: '',
    calls: [] as { name: string; id: string | undefined; arguments: string }[],
  };

  reasoning(text: string): void {
    this.result.reasoning += text;
  }

  content(text: string): void {
    this.result.content += text;
  }

  call(name: string, id?: string): void {
    this.result.calls.push({ name, id, arguments: '' });
  }

  argument(text: string): void {
    this.result.calls.at(-1)!.arguments += text;
  }
}

/** UTF-16 units: an answer comes in characters, but nothing depends on that. */
export const chars = (text: string): string[] => text.split('');

/** All ways of cutting a text in two, and every unit by itself. */
export const cutsOf = (text: string): readonly (readonly string[])[] => [
  chars(text),
  ...Array.from({ length: text.length + 1 }, (_, at) => [text.slice(0, at), text.slice(at)]),
];

/** A text in parts of random lengths, some of them empty. */
export function randomCut(random: Random, text: string): string[] {
  const parts: string[] = [];
  for (let at = 0; at < text.length;) {
    const length = Math.floor(random() * 6);
    parts.push(text.slice(at, at + length));
    at += length;
  }
  return parts;
}
