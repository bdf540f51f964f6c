/** How often a process may end. A run of days sees faults now and then; one after another are something else. */

/** Most ends within the window; after one more, no process is started before some of them lie behind it. */
export const MAX_RESTARTS = 5;
/** Its length, in milliseconds. */
const WINDOW_MS = 10 * 60_000;

export class Restarts {
  private readonly times: number[] = [];
  private readonly now: () => number;

  /** `now`: a clock in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.now = now;
  }

  /** Whether another process may be started, which counts. */
  admit(): boolean {
    const now = this.now();
    while (this.times[0] !== undefined && now - this.times[0] >= WINDOW_MS) this.times.shift();
    if (this.times.length >= MAX_RESTARTS) return false;
    this.times.push(now);
    return true;
  }
}
