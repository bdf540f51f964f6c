/**
 * Windows of documents, read and tokenised one ahead while they are small: the second while the model is loaded for the
 * first, the next as soon as the one before it is taken. Each is twice the one before, so a fast device would otherwise
 * finish a window before the next is ready.
 */
import type { TaskWindow } from '../../eval/harness/windows.js';

/**
 * What the window that is computed and the one behind it may hold, as a share of the largest, where one more is begun:
 * the three then hold no more than two of the largest.
 */
const ROOM = 1;

export class WindowsAhead<T extends { readonly window: TaskWindow }> {
  readonly #windows: AsyncIterator<TaskWindow>;
  readonly #tokenise: (window: TaskWindow) => Promise<T>;
  /** The window that was taken last. */
  #last: TaskWindow;
  #next: Promise<T> | undefined;

  /** Begins with the second window. `windows`: those after the first. What fails is thrown where it is taken. */
  constructor(first: TaskWindow, windows: AsyncIterator<TaskWindow>, tokenise: (window: TaskWindow) => Promise<T>) {
    this.#windows = windows;
    this.#tokenise = tokenise;
    this.#last = first;
    if (!first.isLast) this.#begin();
  }

  /** The next window; it must not be asked for behind the last one. */
  async take(): Promise<T> {
    const next = await (this.#next ?? this.#read());
    const { window } = next;
    const held = this.#last.fullness + window.fullness;
    this.#last = window;
    this.#next = undefined;
    if (!window.isLast && held <= ROOM) this.#begin();
    return next;
  }

  #begin(): void {
    this.#next = this.#read();
    this.#next.catch(() => undefined);
  }

  async #read(): Promise<T> {
    const { done, value } = await this.#windows.next();
    if (done === true) throw new Error('no window is left');
    return this.#tokenise(value);
  }
}
