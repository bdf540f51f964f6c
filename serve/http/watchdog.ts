/** Whether the engine comes on: by the steps that its devices answer, not by its being busy. */
import type { EngineProgress } from '../../engine/engine.js';

export interface Watched {
  /** Requests in work. */
  readonly active: number;
  /** A moment later; never, where the engine's thread hangs. */
  progress(): Promise<EngineProgress>;
}

const EVERY_MS = 1000;

/**
 * An engine hangs where there is work, and no step was answered for a long time. An idle one is healthy, and so is one
 * whose readers are all behind. One that has lost a device for good is not.
 */
export class Watchdog {
  private readonly watched: Watched;
  private readonly hangMs: number;
  private readonly tell: (isAlive: boolean) => void;
  private readonly timer: NodeJS.Timeout;
  private steps = -1;
  private lastProgress = performance.now();
  private isLost = false;
  private isAsking = false;

  /** `tell` is called at every look. */
  constructor(watched: Watched, hangMs: number, tell: (isAlive: boolean) => void) {
    this.watched = watched;
    this.hangMs = hangMs;
    this.tell = tell;
    this.timer = setInterval(() => this.look(), Math.min(EVERY_MS, hangMs / 4));
    this.timer.unref();
  }

  close(): void {
    clearInterval(this.timer);
  }

  private look(): void {
    const { watched } = this;
    if (watched.active === 0) this.lastProgress = performance.now();
    if (!this.isAsking) void this.ask();
    this.tell(!this.isLost && performance.now() - this.lastProgress < this.hangMs);
  }

  private async ask(): Promise<void> {
    this.isAsking = true;
    try {
      const { busy, steps, isLost } = await this.watched.progress();
      this.isLost = isLost;
      if (busy === 0 || steps !== this.steps) this.lastProgress = performance.now();
      this.steps = steps;
    } catch {
      // The engine has ended: requests say so.
    } finally {
      this.isAsking = false;
    }
  }
}
