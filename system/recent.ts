/** Counts what happened within the last stretch of time: a program that lives long sees any fault often. */
export class Recent {
  private readonly times: number[] = [];
  private readonly span: number;
  private readonly now: () => number;

  /** `milliseconds`: the stretch; `now`: a clock. */
  constructor(milliseconds: number, now: () => number = () => performance.now()) {
    this.span = milliseconds;
    this.now = now;
  }

  /** How often it happened within the stretch that ends now. */
  get count(): number {
    const now = this.now();
    while (this.times[0] !== undefined && now - this.times[0] >= this.span) this.times.shift();
    return this.times.length;
  }

  /** It happens now. */
  add(): void {
    this.times.push(this.now());
  }
}
