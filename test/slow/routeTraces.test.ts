/**
 * The routing policy on whole traces of two services, an hour each: what docs/routingPolicy.md says it gives, in a
 * fleet half as large, with half as many adapters.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { hashText } from '../../route/hash.js';
import { place } from '../../route/placement.js';
import { Ring } from '../../route/ring.js';
import { H200_8B } from '../../route/simulate/callTimes.js';
import { baseline, PolicyDispatcher } from '../../route/simulate/dispatchers.js';
import { type Arrival, type FleetConfig, simulateFleet } from '../../route/simulate/fleet.js';
import { capacityOf, type Figures, figuresOf } from '../../route/simulate/measure.js';
import { readTrace } from '../../route/simulate/trace.js';
import { DEFAULT_WORKLOAD, makeWorkload } from '../../route/simulate/workload.js';
import { ROOT } from '../e2e/support.js';

const TRACES = join(ROOT, '..', 'shared', 'data', 'traces');
const isAbsent = !existsSync(TRACES);
if (isAbsent) process.stderr.write(`SKIPPED test/slow/routeTraces: ${TRACES} is absent\n`);

const EPSILON = 0.25;
const ADAPTERS = 128;
const WARM_MS = 60_000;
const config: FleetConfig = {
  replicas: 8,
  reportMs: 1000,
  replica: {
    ...{ callTimes: H200_8B, stepTokens: 8192, besideTokens: 2048, maxRunning: 64 },
    ...{ slots: 32, loadMs: 28, adapterStepMs: 0.028, overheadMs: 1 },
  },
};

function workload(name: string): readonly Arrival[] {
  const rows = readTrace(join(TRACES, name));
  const rate = 0.7 * capacityOf(rows, config);
  return makeWorkload(rows, { ...DEFAULT_WORKLOAD, rate, durationMs: 3_600_000, adapters: ADAPTERS });
}

/** The oracle has every adapter on every replica, and knows their state. */
function oracle(arrivals: readonly Arrival[]): Figures {
  const replica = { ...config.replica, slots: 1 << 20, loadMs: 0 };
  const run = simulateFleet({ ...config, replica }, arrivals, (replicas) =>
    baseline('oracle', replicas, { epsilon: EPSILON, points: 128, seed: 1 }),
  );
  return figuresOf(run, WARM_MS);
}

const policy = (arrivals: readonly Arrival[]): Figures =>
  figuresOf(
    simulateFleet(config, arrivals, (replicas) => new PolicyDispatcher(replicas, config.replica, { epsilon: EPSILON })),
    WARM_MS,
  );

/** Who holds which adapter first, by the tokens that are asked of each. */
function holders(arrivals: readonly Arrival[], nodes: readonly string[]): readonly (string | undefined)[] {
  const demand = new Array<number>(ADAPTERS).fill(0);
  for (const { adapter, prompt } of arrivals) demand[adapter]! += prompt;
  const ring = new Ring(128);
  for (const node of nodes) ring.add(node);
  const items = demand.map((each, i) => ({
    ...{ order: hashText(`adapter-${i}`), walk: ring.walk(`adapter-${i}`), holders: 1, demand: each },
  }));
  const rooms = new Map(nodes.map((node) => [node, { slots: 32, part: 1 / nodes.length }]));
  const placed = place(items, rooms, EPSILON);
  return items.map((item) => placed.get(item)![0]);
}

describe.skipIf(isAbsent)('the policy on a whole trace', () => {
  it.each([
    // Few requests with long prompts: a bound of ⌈1.25 · 9⌉ is 1.33 of the mean, and none holds below 8.
    ['azure_llm_2023_conv.csv.gz', { hits: 0.98, balance: 1.25, first: 1.15 }],
    ['azure_llm_2023_code.csv.gz', { hits: 0.93, balance: 1.5, first: 1.1 }],
  ])('%s: hits, load and the first token beside an oracle', { timeout: 1_200_000 }, (name, least) => {
    const arrivals = workload(name);
    expect(arrivals.length).toBeGreaterThan(200_000);
    const [best, found] = [oracle(arrivals), policy(arrivals)];
    process.stderr.write(`${name}: ${JSON.stringify({ oracle: best.ttftP99, ...found })}\n`);
    expect(found.hits).toBeGreaterThan(least.hits);
    expect(found.balance).toBeLessThan(least.balance);
    expect(found.ttftP99 / best.ttftP99).toBeLessThan(least.first);
  });

  it.each(['azure_llm_2023_conv.csv.gz', 'azure_llm_2023_code.csv.gz'])(
    '%s: few adapters move when a replica joins or leaves',
    (name) => {
      const arrivals = workload(name);
      const nodes = Array.from({ length: 9 }, (_, i) => `replica-${i}`);
      const all = holders(arrivals, nodes);
      for (const gone of nodes) {
        const rest = nodes.filter((each) => each !== gone);
        const moved = holders(arrivals, rest).filter((holder, i) => holder !== all[i]).length;
        // Its own, at most its bound, and those that bounds push on.
        expect(moved).toBeGreaterThan(0);
        expect(moved).toBeLessThanOrEqual((1 + EPSILON) * (ADAPTERS / 8) + 2 / EPSILON ** 2);
      }
    },
  );
});
