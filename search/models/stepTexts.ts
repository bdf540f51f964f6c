/** Texts of steps, of their tokens: characters that lie in two steps belong to the second. */
import type { TokenStream } from '../../models/tokenizer/detokenizer.js';
import type { Step } from '../path.js';

/** Texts of tokens whose number grows. */
export interface TextStreams {
  stream(): Pick<TokenStream, 'push' | 'end'>;
}

export class StepTexts {
  private readonly detokenizer: TextStreams;
  /** Steps whose tokens end within a character, or whose text is none: what follows is read with them. */
  private readonly unfinished = new WeakSet<Step>();

  constructor(detokenizer: TextStreams) {
    this.detokenizer = detokenizer;
  }

  /**
   * A step behind `before`, the steps of its path. `shown`: how many of its tokens have text. `isLast`: nothing
   * follows, so that what was not complete is shown too.
   */
  make(before: readonly Step[], step: Omit<Step, 'text'>, shown: number, isLast: boolean): Step {
    const stream = this.detokenizer.stream();
    for (let at = this.replayFrom(before); at < before.length; at++)
      for (const token of before[at]!.tokens) stream.push(token);
    let text = '';
    for (let at = 0; at < shown; at++) text += stream.push(step.tokens[at]!);
    const rest = stream.end();
    if (isLast) text += rest;
    const made: Step = { ...step, text };
    if (rest !== '' || text === '') this.unfinished.add(made);
    return made;
  }

  /**
   * The step from which a stream gives the text of what follows all: it begins with whole characters, and has a text
   * itself, because a stream gives the first token of a text another one.
   */
  private replayFrom(before: readonly Step[]): number {
    for (let at = before.length - 1; at > 0; at--)
      if (!this.unfinished.has(before[at]!) && !this.unfinished.has(before[at - 1]!)) return at;
    return 0;
  }
}
