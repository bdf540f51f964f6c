/**
 * How much of an adapter is asked for, and how many holders that needs. Demand is a mean of tokens a period, in which
 * each period counts for half of what the next one does.
 */

/** The demand of one adapter. */
export interface Demand {
  /** Tokens since the period began. */
  now: number;
  /** Mean of the periods before. */
  mean: number;
  /** Holders that it has a right to. */
  holders: number;
  /** Periods in a row in which fewer would have done. */
  quiet: number;
}

export const noDemand = (): Demand => ({ now: 0, mean: 0, holders: 1, quiet: 0 });

export interface DemandRules {
  readonly smoothing: number;
  readonly holderShare: number;
  readonly quietPeriods: number;
}

/** Below this many tokens a period nothing is left of a demand. */
const NOTHING = 1;

/**
 * Ends a period for all adapters of a base. Holders are as many that each has at most `holderShare` of what a replica
 * has on the average: an adapter grows at once, and loses one holder after `quietPeriods` in which fewer would have
 * done.
 */
export function endPeriod(demands: Iterable<Demand>, replicas: number, rules: DemandRules): void {
  const all = [...demands];
  let total = 0;
  for (const demand of all) {
    // A demand that grows counts as it is: it has to be served now.
    demand.mean += (demand.now > demand.mean ? 1 : rules.smoothing) * (demand.now - demand.mean);
    if (demand.mean < NOTHING) demand.mean = 0;
    demand.now = 0;
    total += demand.mean;
  }
  for (const demand of all) {
    const needed = holdersFor(demand.mean, total, replicas, rules.holderShare);
    if (needed >= demand.holders) {
      demand.holders = needed;
      demand.quiet = 0;
    } else if (++demand.quiet >= rules.quietPeriods) {
      demand.holders--;
      demand.quiet = 0;
    }
  }
}

/** From 1 to `replicas`. */
export function holdersFor(demand: number, total: number, replicas: number, holderShare: number): number {
  if (replicas === 0 || demand <= 0 || total <= 0) return 1;
  return Math.min(replicas, Math.max(1, Math.ceil((demand * replicas) / (total * holderShare) - 1e-9)));
}
