/**
 * Long work on a thread that also makes calls to devices, done in parts: between them the event loop turns, so that the
 * next call is made in time.
 */
import { setImmediate } from 'node:timers/promises';

/** Work that may be left for a while wherever it yields. */
export type Parts<T> = Generator<undefined, T, undefined>;

/** A call takes tens of milliseconds, and several such works may be under way. */
const PART_MS = 5;

/** Does all of it now. */
export function atOnce<T>(work: Parts<T>): T {
  for (;;) {
    const part = work.next();
    if (part.done === true) return part.value;
  }
}

/** Does all of it, with a turn of the event loop every few milliseconds. */
export async function inParts<T>(work: Parts<T>): Promise<T> {
  const pause = new Pause();
  for (;;) {
    const part = work.next();
    if (part.done === true) return part.value;
    if (pause.isDue) await pause.take();
  }
}

/** The same for a function that waits anyway: `if (pause.isDue) await pause.take()` wherever it may be left. */
export class Pause {
  #since = performance.now();

  get isDue(): boolean {
    return performance.now() - this.#since >= PART_MS;
  }

  async take(): Promise<void> {
    await setImmediate();
    this.#since = performance.now();
  }
}

/** Work that is done when it is first asked for; those who ask later get what it came to. */
export function once<T>(work: () => Parts<T>): () => Parts<T> {
  let found: { readonly value: T } | undefined;
  return function* () {
    found ??= { value: yield* work() };
    return found.value;
  };
}
