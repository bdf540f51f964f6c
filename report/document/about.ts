/** What a page says of itself. */
export interface About {
  readonly title: string;
  /** What is in it, in a line. */
  readonly subtitle: string;
  /** The program and its version. */
  readonly writer: string;
  /** When the page was written: an ISO date in UTC. */
  readonly written: string;
  /** What was amiss with files, and left out or cut: a line each. */
  readonly notes: readonly string[];
}
