/**
 * A fleet of real replicas as the simulator sees it: step times and lengths as they were measured in, throughput and
 * times to the first token out. Its results stand beside those of the processes themselves.
 */
import type { PolicySettings } from '../policy.js';
import { PolicyDispatcher } from './dispatchers.js';
import { type FleetConfig, simulateFleet } from './fleet.js';
import { type Figures, figuresOf } from './measure.js';

interface TimedStep {
  readonly tokens: number;
  readonly ms: number;
}

export interface MeasuredFleet {
  readonly replicas: number;
  /** Time of a step by the tokens in it, prompts and texts together; ascending. */
  readonly callTimes: readonly TimedStep[];
  /** Where replicas share a machine: the same while two of them compute, while three do, and so on. */
  readonly sharedTimes?: readonly (readonly TimedStep[])[];
  /** Most tokens of a step, and of one that texts go on in beside prompts (StepLimits of the engine). */
  readonly stepTokens: number;
  readonly besideTokens: number;
  /** Requests side by side. */
  readonly maxRunning: number;
  /** Adapters on a device, time to load one, and what each in a step adds. Default: none is used. */
  readonly slots?: number;
  readonly loadMs?: number;
  readonly adapterStepMs?: number;
  /** From a request's arrival at the router to where a step can take it: HTTP, tokens, queues. */
  readonly overheadMs?: number;
  readonly policy?: Partial<PolicySettings>;
  /** In order of time. `adapter`: its number; −1 or absent: none. */
  readonly arrivals: readonly {
    readonly atMs: number;
    readonly prompt: number;
    readonly generated: number;
    readonly adapter?: number;
  }[];
}

export function simulate(fleet: MeasuredFleet): Figures {
  const { callTimes: points, stepTokens, besideTokens, maxRunning, replicas } = fleet;
  const { slots = 1, loadMs = 0, adapterStepMs = 0, overheadMs = 0 } = fleet;
  const sharedTimes = fleet.sharedTimes?.map((shared) => ({ points: shared }));
  const config: FleetConfig = {
    replicas,
    reportMs: 1000,
    replica: {
      ...(sharedTimes && { sharedTimes }),
      ...{ callTimes: { points }, stepTokens, besideTokens, maxRunning },
      ...{ slots, loadMs, adapterStepMs, overheadMs },
    },
  };
  const arrivals = fleet.arrivals.map(({ atMs, prompt, generated, adapter = -1 }, session) => ({
    ...{ arrivalMs: atMs, prompt, generated, adapter, session },
  }));
  const run = simulateFleet(
    config,
    arrivals,
    (simulated) => new PolicyDispatcher(simulated, config.replica, fleet.policy ?? {}),
  );
  return figuresOf(run);
}
