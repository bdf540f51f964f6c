/** The prompt's part of an answer: its text, and the rows that are asked for of its tokens. */
import type { AllRows, RowResult } from '../../engine/request.js';
import type { TokenStream } from '../../models/tokenizer/detokenizer.js';
import { characters, logProbJson, type TokenTexts, tokenTexts } from '../tokenTexts.js';
import type { Completion, CompletionPrompt } from './body.js';
import { LogProbLists, mostLikely } from './logProbs.js';

export class AnsweredPrompt {
  readonly prompt: CompletionPrompt;
  /** The text that answers begin with: none where the prompt is not echoed. */
  readonly text: string;
  readonly #completion: Completion;
  readonly #texts: TokenTexts;
  /** Characters before each token. */
  readonly #offsets: readonly number[];
  readonly #rows: (RowResult | undefined)[] = [];
  #left: number;
  #lists: readonly LogProbLists[] | undefined;

  constructor(completion: Completion, prompt: CompletionPrompt) {
    this.#completion = completion;
    this.prompt = prompt;
    this.#texts = tokenTexts(completion.model.texts.detokenizer);
    this.#left = this.rows === undefined ? 0 : prompt.tokens.length - 1;
    if (!completion.echoes) {
      this.text = '';
      this.#offsets = [];
      return;
    }
    const stream = this.#stream();
    const offsets: number[] = [];
    let [text, length] = ['', 0];
    for (const token of prompt.tokens) {
      offsets.push(length);
      const piece = stream.push(token);
      text += piece;
      length += characters(piece);
    }
    this.text = prompt.text ?? text;
    const most = characters(this.text);
    this.#offsets = offsets.map((offset) => Math.min(offset, most));
  }

  /** What is asked of the prompt beside its continuation: the most likely token comes without a row of logits. */
  get rows(): AllRows | undefined {
    const { echoes, options } = this.#completion;
    const ofEcho = echoes ? options.topLogProbs : undefined;
    if ((ofEcho === undefined && options.promptLogProbs === undefined) || this.prompt.tokens.length === 1)
      return undefined;
    const top = Math.max(ofEcho ?? 0, options.promptLogProbs ?? 0);
    return { top: top > 1 ? top : 0 };
  }

  take(row: RowResult): void {
    if (this.#rows[row.position] === undefined) this.#left--;
    this.#rows[row.position] = row;
  }

  /** Whether all its rows have come. */
  get isComplete(): boolean {
    return this.#left === 0;
  }

  #stream(): TokenStream {
    const { model, options } = this.#completion;
    return model.texts.detokenizer.stream(options.skipsSpecial ? undefined : 'all');
  }

  /** Makes the text of an answer. Behind an echo it goes on; else it begins, as that of `generate` does. */
  openText(): TokenStream {
    const stream = this.#stream();
    if (this.#completion.echoes) for (const token of this.prompt.tokens) stream.push(token);
    return stream;
  }

  /** Log-probabilities of its own tokens, where it is echoed with some. */
  get lists(): readonly LogProbLists[] {
    const { echoes, options } = this.#completion;
    if (!echoes || options.topLogProbs === undefined) return [];
    if (this.#lists !== undefined) return this.#lists;
    const lists = new LogProbLists(this.#texts, options.namesTokens);
    this.prompt.tokens.forEach((token, at) => {
      const row = this.#rows[at - 1];
      if (row === undefined) return lists.addFirst(token);
      const top = mostLikely(row, options.topLogProbs ?? 0);
      lists.add({ token, logProb: row.logProb ?? 0 }, top, this.#offsets[at]!);
    });
    return (this.#lists = [lists]);
  }

  /** Of each token: an object of the most likely tokens in its place and of itself, by their numbers. */
  get promptLogProbsJson(): string {
    const { promptLogProbs = 0 } = this.#completion.options;
    const ofToken = (token: number, at: number): string => {
      const row = this.#rows[at - 1];
      if (row === undefined) return 'null';
      const top = mostLikely(row, promptLogProbs);
      const own = { token, logProb: row.logProb ?? 0 };
      const all = top.some((each) => each.token === token) ? top : [...top, own];
      const entries = all.map((each, rank) => {
        const { logProb } = each.token === token ? own : each;
        // How many tokens are likelier is known of the most likely ones.
        const place = rank < top.length ? rank + 1 : row.isArgmax === true ? 1 : null;
        const text = this.#texts.jsonOf(each.token);
        return `"${each.token}":{"logprob":${logProbJson(logProb)},"rank":${place},"decoded_token":${text}}`;
      });
      return `{${entries.join()}}`;
    };
    return `[${this.prompt.tokens.map(ofToken).join()}]`;
  }
}
