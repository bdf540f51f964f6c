/**
 * Lets whole server-sent events through. What a replica had written of an event when it broke off is no event, and so
 * the client can still be told what happened by one of the router's own.
 */

/** An event that is longer goes through in parts. */
const MAX_EVENT_BYTES = 1 << 20;
const END = '\n\n';
const COLON = 0x3a;

export interface Gated {
  readonly bytes: Buffer;
  /** Whether there is more in it than comments, which say nothing of the answer. */
  readonly hasEvent: boolean;
}

export class EventGate {
  private kept: Buffer = Buffer.alloc(0);
  private isInside = false;
  private isOpened = false;
  /** Events, or comments, that have gone through. */
  count = 0;

  /** Whole events of what has come. */
  push(chunk: Buffer): Gated {
    const bytes = this.kept.length === 0 ? chunk : Buffer.concat([this.kept, chunk]);
    const end = bytes.lastIndexOf(END);
    const isLong = bytes.length - (end + 2) > MAX_EVENT_BYTES;
    const to = isLong ? bytes.length : end < 0 ? 0 : end + 2;
    this.kept = bytes.subarray(to);
    const whole = bytes.subarray(0, to);
    for (let at = whole.indexOf(END); at >= 0; at = whole.indexOf(END, at + 2)) this.count++;
    this.isOpened ||= this.isInside || hasEvent(whole);
    this.isInside = isLong;
    return { bytes: whole, hasEvent: this.isOpened };
  }

  /** What came behind the last whole event. */
  end(): Buffer {
    const rest = this.kept;
    this.kept = Buffer.alloc(0);
    return rest;
  }

  /** Whether a part of an event has gone through, so that none can follow. */
  get isBroken(): boolean {
    return this.isInside;
  }
}

/** Whether one of these events is no comment. Blank lines between them may be several. */
function hasEvent(events: Buffer): boolean {
  for (let at = 0; at < events.length;) {
    while (events[at] === 0x0a || events[at] === 0x0d) at++;
    if (at >= events.length) return false;
    if (events[at] !== COLON) return true;
    // The next line of a comment may be one of an event.
    const end = events.indexOf(0x0a, at);
    if (end < 0) return false;
    at = end + 1;
  }
  return false;
}
