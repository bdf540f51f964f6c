/**
 * Sets of questions that are computed one behind another on the same devices. As soon as a set has made its last call
 * on a device, the next one makes its first there: the device goes on, while the answers to the former's last calls are
 * on their way. A device has one set at a time that makes calls, so walks do not mix in its memory for keys and values.
 */

/** A lane of a PathScorer, or all devices together. */
export type Place = number | 'all';

/** The turn of one set. It begins by wanting every place. */
export class Turn {
  readonly #turns: Turns;
  /** Where it has made all its calls. */
  readonly #left = new Set<Place>();
  readonly #inFlight = new Map<Place, number>();
  #place: Set<Place> = new Set();
  #begin: number | undefined;

  /** Use Turns.next(). */
  constructor(turns: Turns) {
    this.#turns = turns;
  }

  /** Seconds since it was first entered, or since the set before ended, if that was later. */
  get seconds(): number {
    if (this.#begin === undefined) return 0;
    return (performance.now() - Math.max(this.#begin, this.#turns.ended)) / 1000;
  }

  /** Waits until it may make calls there. Also after leaving, for more work. */
  async enter(place: Place): Promise<void> {
    this.#left.delete(place);
    await this.#turns.until(() => this.#turns.isFree(this, place));
    this.#place.add(place);
    this.#begin ??= performance.now();
  }

  /** It makes no more calls there, unless it enters again. */
  leave(place: Place): void {
    this.#place.delete(place);
    this.#left.add(place);
    this.#turns.wake();
  }

  /** Waits until fewer calls than `most` are in flight there, those of other sets included. */
  room(place: Place, most: number): Promise<void> {
    return this.#turns.until(() => this.hasRoom(place, most));
  }

  hasRoom(place: Place, most: number): boolean {
    return this.#turns.inFlight(place) < most;
  }

  /** Settles when something may have changed: a call has settled, or a set has left a place. */
  change(): Promise<void> {
    return this.#turns.change();
  }

  /** Counts a call that was made, until it has settled. */
  made(place: Place, call: Promise<unknown>): void {
    const count = (by: number): void => void this.#inFlight.set(place, (this.#inFlight.get(place) ?? 0) + by);
    const settle = (): void => {
      count(-1);
      this.#turns.wake();
    };
    count(1);
    call.then(settle, settle);
  }

  /** All is done, or nothing more will be. */
  close(): void {
    this.#turns.close(this);
  }

  /** Whether a set before this one has come back to a place, which should be left to it soon. */
  isAwaited(place: Place): boolean {
    return this.#turns.isWanted(this, place);
  }

  /** Whether it keeps later turns from a place. */
  wants(place: Place): boolean {
    return !this.#left.has('all') && !this.#left.has(place);
  }

  /** Whether it is making calls there. */
  holds(place: Place): boolean {
    return place === 'all' ? this.#place.size > 0 : this.#place.has('all') || this.#place.has(place);
  }

  /** Calls in flight at a place; those to all devices may be anywhere. */
  inFlight(place: Place): number {
    const all = this.#inFlight.get('all') ?? 0;
    if (place !== 'all') return all + (this.#inFlight.get(place) ?? 0);
    return [...this.#inFlight.values()].reduce((sum, count) => sum + count, 0);
  }
}

export class Turns {
  #open: Turn[] = [];
  #waiting: (() => void)[] = [];
  #ended = 0;

  /** When the last set ended, on the clock of `performance.now()`. */
  get ended(): number {
    return this.#ended;
  }

  /** The turn behind all others. It must be closed. */
  next(): Turn {
    const turn = new Turn(this);
    this.#open.push(turn);
    return turn;
  }

  /** Sets before this one want the place no more, and nobody is there. */
  isFree(turn: Turn, place: Place): boolean {
    return !this.isWanted(turn, place) && this.#open.every((other) => other === turn || !other.holds(place));
  }

  isWanted(by: Turn, place: Place): boolean {
    return this.#open.slice(0, this.#open.indexOf(by)).some((before) => before.wants(place));
  }

  inFlight(place: Place): number {
    return this.#open.reduce((sum, turn) => sum + turn.inFlight(place), 0);
  }

  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await this.change();
  }

  /** Settles when a set has left a place or ended, or a call has settled. */
  change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  close(turn: Turn): void {
    if (!this.#open.includes(turn)) return;
    this.#open = this.#open.filter((other) => other !== turn);
    this.#ended = performance.now();
    this.wake();
  }
}
