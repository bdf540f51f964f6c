/** Figures of a simulated run. */
import { stepMs } from './callTimes.js';
import type { Arrival, FleetConfig, FleetRun } from './fleet.js';

export interface Figures {
  readonly requests: number;
  /** Part of requests whose adapter was in a slot of their replica, or on its way there. */
  readonly hits: number;
  readonly loadsPerSecond: number;
  readonly ttftP50: number;
  readonly ttftP99: number;
  /** Time between two tokens of one answer, mean of each answer. */
  readonly tpotP99: number;
  /** Largest over mean requests in flight: mean and 99th percentile over time. */
  readonly balance: number;
  readonly balanceP99: number;
  readonly meanInFlight: number;
  /** Tokens of answers a second, from the first arrival to the last end. */
  readonly tokensPerSecond: number;
}

/** The value below which the part `part` of the values lies; 0 for none. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted.length === 0 ? 0 : sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)]!;
}

/** `fromMs`: requests that came before are left out: fleets begin empty. */
export function figuresOf(run: FleetRun, fromMs = 0): Figures {
  const requests = run.requests.filter(({ arrivalMs }) => arrivalMs >= fromMs);
  const first = requests.map(({ firstMs, arrivalMs }) => firstMs - arrivalMs);
  const between = requests.flatMap(({ firstMs, endMs, generated }) =>
    generated > 1 ? [(endMs - firstMs) / (generated - 1)] : [],
  );
  const span = Math.max(1, run.endMs) / 1000;
  return {
    requests: requests.length,
    hits: requests.filter(({ wasHit }) => wasHit).length / Math.max(1, requests.length),
    loadsPerSecond: run.loads / span,
    ttftP50: percentile(first, 0.5),
    ttftP99: percentile(first, 0.99),
    tpotP99: percentile(between, 0.99),
    balance: run.balance.reduce((sum, each) => sum + each, 0) / Math.max(1, run.balance.length),
    balanceP99: percentile(run.balance, 0.99),
    meanInFlight: run.meanInFlight,
    tokensPerSecond: run.requests.reduce((sum, { generated }) => sum + generated, 0) / span,
  };
}

/**
 * Requests a second that a fleet could answer with full steps: a prompt costs what its tokens add to a step, an answer
 * its part of the steps of a full batch.
 */
export function capacityOf(arrivals: readonly Pick<Arrival, 'prompt' | 'generated'>[], config: FleetConfig): number {
  const { callTimes, maxRunning, besideTokens } = config.replica;
  const full = stepMs(callTimes, maxRunning);
  const most = Math.max(maxRunning + 1, besideTokens);
  const promptMs = (stepMs(callTimes, most) - full) / (most - maxRunning);
  let sum = 0;
  for (const { prompt, generated } of arrivals) sum += prompt * promptMs + (generated * full) / maxRunning;
  return (config.replicas * 1000 * arrivals.length) / sum;
}
