/** Log-probabilities of a text's tokens as completions write them: four lists, an element a token. */
import type { RowResult, TokenLogProb } from '../../engine/request.js';
import { logProbJson, type TokenTexts } from '../tokenTexts.js';

/** The first of the most likely tokens. One is known without a row of logits. */
export const mostLikely = ({ argmax, top = [] }: Pick<RowResult, 'argmax' | 'top'>, count: number) =>
  count === 1 ? [argmax] : top.slice(0, count);

export class LogProbLists {
  readonly #texts: TokenTexts;
  /** Whether tokens are written as their numbers. */
  readonly #namesTokens: boolean;
  readonly #tokens: string[] = [];
  readonly #logProbs: string[] = [];
  readonly #tops: string[] = [];
  readonly #offsets: number[] = [];

  constructor(texts: TokenTexts, namesTokens: boolean) {
    this.#texts = texts;
    this.#namesTokens = namesTokens;
  }

  /** The first token of all, before which there is nothing. */
  addFirst(token: number): void {
    this.#tokens.push(this.#nameOf(token));
    this.#logProbs.push('null');
    this.#tops.push('null');
    this.#offsets.push(0);
  }

  /** `top`: the most likely tokens in its place. `offset`: characters of the text before it. */
  add({ token, logProb }: TokenLogProb, top: readonly TokenLogProb[], offset: number): void {
    this.#tokens.push(this.#nameOf(token));
    this.#logProbs.push(logProbJson(logProb));
    this.#tops.push(this.#mapOf(token, logProb, top));
    this.#offsets.push(offset);
  }

  /** One behind the other. */
  static json(lists: readonly LogProbLists[]): string {
    const all = (of: (each: LogProbLists) => readonly (string | number)[]): string =>
      (lists.length === 1 ? of(lists[0]!) : lists.flatMap(of)).join();
    const offsets = all((each) => each.#offsets);
    const logProbs = all((each) => each.#logProbs);
    const tokens = all((each) => each.#tokens);
    const tops = all((each) => each.#tops);
    return `{"text_offset":[${offsets}],"token_logprobs":[${logProbs}],"tokens":[${tokens}],"top_logprobs":[${tops}]}`;
  }

  #nameOf(token: number): string {
    return this.#namesTokens ? `"token_id:${token}"` : this.#texts.jsonOf(token);
  }

  /**
   * By text: the most likely tokens and the token itself. Its number is the one in the list of log-probabilities, to
   * the bit. Of tokens with one text the likeliest counts.
   */
  #mapOf(token: number, logProb: number, top: readonly TokenLogProb[]): string {
    const own = this.#nameOf(token);
    const numbers = new Map<string, number>();
    const isIn = top.some((each) => each.token === token);
    for (const each of isIn ? top : [...top, { token, logProb }]) {
      const name = each.token === token ? own : this.#nameOf(each.token);
      const number = each.token === token ? logProb : each.logProb;
      numbers.set(name, Math.max(number, numbers.get(name) ?? -Infinity));
    }
    return `{${Array.from(numbers, ([name, number]) => `${name}:${logProbJson(number)}`).join()}}`;
  }
}
