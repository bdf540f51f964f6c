/** How requests over HTTP were answered, by endpoint, method and status. */

/** The client had gone before its answer ended. */
export const CLIENT_GONE = 499;

export interface HttpCount {
  /** The path of the endpoint, as routes have it; `none` where there is no such path. */
  readonly handler: string;
  readonly method: string;
  readonly status: number;
  count: number;
}

export class HttpCounts {
  private readonly counts = new Map<string, HttpCount>();

  /** A request is over. `handler` is a route's path, so that clients cannot make up others. */
  add(handler: string | undefined, method: string | undefined, status: number): void {
    const known = method === 'GET' || method === 'POST' ? method : 'other';
    const name = `${handler ?? 'none'} ${known} ${status}`;
    const count = this.counts.get(name);
    if (count === undefined) this.counts.set(name, { handler: handler ?? 'none', method: known, status, count: 1 });
    else count.count++;
  }

  get all(): Iterable<HttpCount> {
    return this.counts.values();
  }
}
