/** How far a search is: problems, tokens a second, and the time left. */
import type { Ui } from '../driver/requests.js';
import type { Problem } from '../search/path.js';
import type { StepWriter } from '../search/ports.js';
import { count, duration } from '../system/text.js';

const SHOW_MS = 500;

/** Watches the steps of problems. A problem that ends early counts as whole. */
export class SearchProgress {
  readonly #ui: Pick<Ui, 'step'>;
  readonly #total: number;
  readonly #iterations: number;
  /** Tokens that the models have computed so far. */
  readonly #tokens: () => number;
  readonly #begun = performance.now();
  /** Iterations that problems have begun. */
  readonly #running = new Map<Problem, number>();
  #ended = 0;
  #resumed = 0;
  #shown = -Infinity;

  constructor(ui: Pick<Ui, 'step'>, total: number, iterations: number, tokens: () => number) {
    this.#ui = ui;
    this.#total = total;
    this.#iterations = Math.max(1, iterations);
    this.#tokens = tokens;
  }

  /** A writer that tells of the steps that it is asked for. */
  watch(writer: StepWriter): StepWriter {
    return {
      write: (ask) => {
        const { problem } = ask.path;
        this.#running.set(problem, Math.max(ask.iteration, this.#running.get(problem) ?? 0));
        this.#show();
        return writer.write(ask);
      },
    };
  }

  /** `isResumed`: an earlier run had searched it. */
  end(problem: Problem, isResumed: boolean): void {
    this.#running.delete(problem);
    this.#ended++;
    if (isResumed) this.#resumed++;
    this.#show(true);
  }

  #show(isDue = false): void {
    const now = performance.now();
    if (!isDue && now - this.#shown < SHOW_MS) return;
    this.#shown = now;
    let done = this.#ended - this.#resumed;
    for (const iteration of this.#running.values()) done += Math.min(1, iteration / this.#iterations);
    const own = this.#total - this.#resumed;
    const seconds = (now - this.#begun) / 1000;
    const rate = seconds > 0 ? `${count(this.#tokens() / seconds)} tokens/s` : '';
    const left = done > 0 && done < own ? `${duration((seconds * (own - done)) / done)} left` : '';
    const words = [`${count(this.#ended)} of ${count(this.#total)} problems`, rate, left];
    this.#ui.step(own === 0 ? 1 : done / own, words.filter((word) => word !== '').join(', '));
  }
}
