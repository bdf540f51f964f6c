/** How far texts are: in tokens, since texts that are made together also end together. */
import { stepTo, type Ui } from '../driver/requests.js';

/** Counts tokens of all that can still come. A prompt whose texts end early lowers it. */
export class TextProgress {
  #done = 0;
  #total: number;
  readonly #most: readonly number[];
  readonly #made: number[];
  readonly #ui: Pick<Ui, 'step'>;
  #onFirst: (() => void) | undefined;

  /**
   * `most`: for each prompt, the most tokens that its texts can have together. `onFirst`: called once, when the first
   * token or text is here.
   */
  constructor(most: readonly number[], ui: Pick<Ui, 'step'>, onFirst?: () => void) {
    this.#onFirst = onFirst;
    this.#most = most;
    this.#made = most.map(() => 0);
    this.#total = most.reduce((sum, tokens) => sum + tokens, 0);
    this.#ui = ui;
  }

  /** A token of this prompt came. */
  add(prompt: number): void {
    this.#done++;
    this.#made[prompt]!++;
    this.#tell();
  }

  /** No more tokens of this prompt come. */
  end(prompt: number): void {
    this.#total -= this.#most[prompt]! - this.#made[prompt]!;
    this.#tell();
  }

  #tell(): void {
    const onFirst = this.#onFirst;
    this.#onFirst = undefined;
    onFirst?.();
    stepTo(this.#ui, { done: this.#done, total: this.#total, unit: 'tokens' });
  }
}
