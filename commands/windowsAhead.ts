/**
 * Windows of documents, read and tokenized ahead while they are small: for a GPU from the second on while the model is
 * loaded for the first. Each is twice the one before, so a fast device would otherwise finish a window before the next
 * is ready.
 */
import type { TaskWindow } from '../evaluate/windows.js';

/**
 * What the windows that are ahead and the two that were taken last may hold, as a share of the largest, where one more
 * is begun: with it they then hold no more than two of the largest.
 */
const ROOM = 1;

export class WindowsAhead<T extends { readonly window: TaskWindow }> {
  readonly #windows: AsyncIterator<TaskWindow>;
  readonly #tokenize: (window: TaskWindow) => Promise<T>;
  /** In order: those that are tokenized, or will be. */
  readonly #ahead: { readonly window: TaskWindow; readonly tokenized: Promise<T> }[] = [];
  /** Fullness of the two windows that were taken last. */
  #taken: readonly number[];
  /** The window that was read last. */
  #last: TaskWindow;
  /** Settles when the window that is being read is ahead. Where that fails, it rejects and nothing more is read. */
  #reading: Promise<void> | undefined;

  /** Begins with the second window. `windows`: those after the first. What fails is thrown where it is taken. */
  constructor(first: TaskWindow, windows: AsyncIterator<TaskWindow>, tokenize: (window: TaskWindow) => Promise<T>) {
    this.#windows = windows;
    this.#tokenize = tokenize;
    this.#last = first;
    this.#taken = [first.fullness];
    this.#fill();
  }

  /** The next window; it must not be asked for behind the last one. */
  async take(): Promise<T> {
    if (this.#ahead.length === 0) await (this.#reading ?? this.#read());
    const { window, tokenized } = this.#ahead.shift()!;
    const next = await tokenized;
    this.#taken = [this.#taken.at(-1)!, window.fullness];
    this.#fill();
    return next;
  }

  /** Begins to read where there is room. */
  #fill(): void {
    const held = [...this.#taken, ...this.#ahead.map(({ window }) => window.fullness)];
    const isFull = held.reduce((sum, each) => sum + each, 0) > ROOM;
    if (this.#reading === undefined && !this.#last.isLast && !isFull) void this.#read();
  }

  #read(): Promise<void> {
    const read = async (): Promise<void> => {
      const { done, value } = await this.#windows.next();
      if (done === true) throw new Error('no window is left');
      const tokenized = this.#tokenize(value);
      tokenized.catch(() => undefined);
      this.#last = value;
      this.#ahead.push({ window: value, tokenized });
      this.#reading = undefined;
      this.#fill();
    };
    this.#reading = read();
    this.#reading.catch(() => undefined);
    return this.#reading;
  }
}
