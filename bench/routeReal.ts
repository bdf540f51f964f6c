/**
 * `npm run bench:route-real`: the simulated fleet beside a real one. Servers of one model and a router are started on
 * this machine; what their steps take is measured while all are busy; then the same requests, at the same moments, go
 * through the router and through the simulator, and their figures are printed side by side.
 */
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import type { CallTimes } from '../route/simulate/callTimes.js';
import { stepMs } from '../route/simulate/callTimes.js';
import { PolicyDispatcher } from '../route/simulate/dispatchers.js';
import { type Arrival, type FleetConfig, simulateFleet } from '../route/simulate/fleet.js';
import { capacityOf, percentile } from '../route/simulate/measure.js';
import { Random } from '../route/simulate/random.js';
import { textTable } from '../system/text.js';
import { benchCommand, decimal, runProgram, whole } from './command.js';
import { nowMs } from './load/client.js';
import { type Lengths, type Moments, RealFleet } from './routeFleet.js';

export interface RouteRealOptions {
  readonly model: string;
  readonly replicas: number;
  readonly threads: number;
  readonly seconds: number;
  readonly utilisation: number;
  readonly repeats: number;
  readonly seed: number;
  readonly vocabulary: number;
  readonly json?: boolean;
}

/** Texts side by side whose steps are measured, and tokens of prompts. */
const DECODING = [1, 2, 4, 8, 16, 32];
const PROMPTS = [64, 128, 256, 384];
const MEASURED_TOKENS = 24;
const PROBES = 5;
const MAX_RUNNING = 32;
/** What a server computes in a step beside texts where nothing was tuned. */
const BESIDE_TOKENS = 2048;
const REPORT_MS = 1000;
const EPSILON = 0.5;

const mean = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0) / values.length;
const median = (values: readonly number[]): number => percentile(values, 0.5);

/** What steps take while all servers are busy with as many tokens, and what a request takes beside its steps. */
async function calibrate(fleet: RealFleet, vocabulary: number): Promise<Measured> {
  const everywhere = <T>(work: (client: RealFleet['router']) => Promise<T>): Promise<T[]> =>
    Promise.all(fleet.servers.map(work));
  const points: { tokens: number; ms: number }[] = [];
  // The first calls compile and allocate.
  await everywhere((client) => fleet.ask(client, { prompt: PROMPTS.at(-1)!, generated: MEASURED_TOKENS }, vocabulary));
  for (const texts of DECODING) {
    const ask = (client: RealFleet['router']): Promise<Moments[]> =>
      Promise.all(
        Array.from({ length: texts }, () => fleet.ask(client, { prompt: 4, generated: MEASURED_TOKENS }, vocabulary)),
      );
    await everywhere(ask);
    const found = (await everywhere(ask)).flat();
    points.push({
      tokens: texts,
      ms: median(found.map(({ firstMs, endMs, tokens }) => (endMs - firstMs) / (tokens - 1))),
    });
  }
  const alone = async (client: RealFleet['router'], prompt: number): Promise<number> => {
    const found: number[] = [];
    for (let i = 0; i < PROBES; i++)
      found.push((await fleet.ask(client, { prompt, generated: 1 }, vocabulary)).firstMs);
    return median(found);
  };
  const least = stepMs({ points }, 1);
  const direct = Math.max(0, mean(await everywhere((client) => alone(client, 1))) - least);
  const routed = Math.max(direct, (await alone(fleet.router, 1)) - least);
  for (const prompt of PROMPTS)
    points.push({
      tokens: prompt,
      ms: Math.max(least, mean(await everywhere((client) => alone(client, prompt))) - direct),
    });
  return { callTimes: { points }, overheadMs: routed };
}

/** Of two measurements, one before and one after; a step of more tokens takes no less. */
function meanTimes(before: CallTimes, after: CallTimes): CallTimes {
  let least = 0;
  return {
    points: before.points.map(({ tokens, ms }, i) => {
      least = Math.max(least, (ms + (after.points[i]?.ms ?? ms)) / 2);
      return { tokens, ms: least };
    }),
  };
}

const lengthsOf = (random: Random): Lengths => ({
  prompt: 16 + random.below(112),
  generated: 8 + random.below(40),
});

/** Requests whose times apart are exponential. */
function arrivalsOf({ seconds, utilisation }: RouteRealOptions, config: FleetConfig, seed: number): Arrival[] {
  const random = new Random(seed);
  const sample = Array.from({ length: 2000 }, () => lengthsOf(random));
  const rate = utilisation * capacityOf(sample, config);
  const arrivals: Arrival[] = [];
  let at = 0;
  for (;;) {
    at += (-Math.log(1 - random.next()) * 1000) / rate;
    if (at > 1000 * seconds) return arrivals;
    arrivals.push({ arrivalMs: at, ...lengthsOf(random), adapter: -1, session: arrivals.length });
  }
}

interface Figures {
  readonly requests: number;
  readonly tokensPerSecond: number;
  readonly ttftP50: number;
  readonly ttftP99: number;
  readonly tpotP99: number;
}

/** Of requests, each with the time of its arrival. */
function figuresOf(found: readonly (Moments & { readonly arrivalMs: number })[]): Figures {
  const span = Math.max(...found.map(({ arrivalMs, endMs }) => arrivalMs + endMs)) / 1000;
  const first = found.map(({ firstMs }) => firstMs);
  return {
    requests: found.length,
    tokensPerSecond: found.reduce((sum, { tokens }) => sum + tokens, 0) / span,
    ttftP50: percentile(first, 0.5),
    ttftP99: percentile(first, 0.99),
    tpotP99: percentile(
      found.map(({ firstMs, endMs, tokens }) => (endMs - firstMs) / (tokens - 1)),
      0.99,
    ),
  };
}

async function runReal(fleet: RealFleet, arrivals: readonly Arrival[], vocabulary: number): Promise<Figures> {
  const started = nowMs();
  const running: Promise<Moments & { readonly arrivalMs: number }>[] = [];
  for (const arrival of arrivals) {
    const left = started + arrival.arrivalMs - nowMs();
    if (left > 0.5) await sleep(left);
    const arrivalMs = nowMs() - started;
    running.push(fleet.ask(fleet.router, arrival, vocabulary).then((moments) => ({ ...moments, arrivalMs })));
  }
  return figuresOf(await Promise.all(running));
}

function runSimulated(arrivals: readonly Arrival[], config: FleetConfig): Figures {
  const { requests } = simulateFleet(
    config,
    arrivals,
    (replicas) => new PolicyDispatcher(replicas, config.replica, { epsilon: EPSILON }),
  );
  return figuresOf(
    requests.map(({ arrivalMs, firstMs, endMs, generated }) => ({
      ...{ arrivalMs, firstMs: firstMs - arrivalMs, endMs: endMs - arrivalMs, tokens: generated },
    })),
  );
}

const ROWS: readonly (readonly [name: string, key: keyof Figures, digits: number])[] = [
  ['requests', 'requests', 0],
  ['tokens a second', 'tokensPerSecond', 0],
  ['TTFT p50, ms', 'ttftP50', 1],
  ['TTFT p99, ms', 'ttftP99', 1],
  ['TPOT p99, ms', 'tpotP99', 2],
];

interface Measured {
  readonly callTimes: CallTimes;
  readonly overheadMs: number;
}

const configOf = ({ replicas }: RouteRealOptions, { callTimes, overheadMs }: Measured): FleetConfig => ({
  replicas,
  reportMs: REPORT_MS,
  replica: {
    ...{ callTimes, overheadMs, stepTokens: BESIDE_TOKENS, besideTokens: BESIDE_TOKENS },
    ...{ maxRunning: MAX_RUNNING, slots: 8, loadMs: 100, adapterStepMs: 0 },
  },
});

async function main(options: RouteRealOptions): Promise<void> {
  const { replicas, model, threads, vocabulary, repeats, seed, json } = options;
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  if (availableParallelism() < replicas * (threads + 1))
    say(`note: ${availableParallelism()} processors for ${replicas} servers: what one takes, others lack`);
  const fleet = await RealFleet.open(
    model,
    replicas,
    ['--threads', String(threads), '--target', 'cpu', '--draft', 'off'],
    {
      policy: { epsilon: EPSILON, running: MAX_RUNNING },
      probe: { periodSeconds: REPORT_MS / 1000, timeoutSeconds: 5 },
    },
  );
  const pairs: { real: Figures; simulated: Figures }[] = [];
  try {
    for (let i = 0; i < repeats; i++) {
      // Before and after, each time anew: what others do on the machine changes.
      const before = await calibrate(fleet, vocabulary);
      const arrivals = arrivalsOf(options, configOf(options, before), seed + i);
      const real = await runReal(fleet, arrivals, vocabulary);
      const after = await calibrate(fleet, vocabulary);
      const overheadMs = (before.overheadMs + after.overheadMs) / 2;
      const callTimes = meanTimes(before.callTimes, after.callTimes);
      const steps = callTimes.points.map(({ tokens, ms }) => `${tokens}: ${ms.toFixed(2)}`).join(', ');
      say(`steps, ms by tokens: ${steps}; beside them ${overheadMs.toFixed(2)}`);
      const simulated = runSimulated(arrivals, configOf(options, { callTimes, overheadMs }));
      pairs.push({ real, simulated });
      if (json !== true) process.stdout.write(`${tableOf(real, simulated)}\n\n`);
    }
  } finally {
    await fleet.close();
  }
  const ratio = (key: keyof Figures): number => median(pairs.map(({ real, simulated }) => simulated[key] / real[key]));
  if (json === true) process.stdout.write(`${JSON.stringify({ pairs }, null, 2)}\n`);
  else
    process.stdout.write(
      `median of ${repeats}: simulated over real: ` +
        `tokens a second ${ratio('tokensPerSecond').toFixed(3)}, TTFT p99 ${ratio('ttftP99').toFixed(3)}\n`,
    );
}

const tableOf = (real: Figures, simulated: Figures): string =>
  textTable(
    [
      ['', 'real', 'simulated', 'ratio'],
      ...ROWS.map(([name, key, digits]) => [
        ...[name, real[key].toFixed(digits), simulated[key].toFixed(digits)],
        (simulated[key] / real[key]).toFixed(3),
      ]),
    ],
    new Set([1, 2, 3]),
  ).join('\n');

const command = (): Command =>
  benchCommand('bench:route-real', 'The simulated fleet of a router beside real servers on this machine.')
    .option('--model <folder>', 'what the servers serve', 'models/demo')
    .option('--replicas <n>', 'servers', whole(1, 64), 4)
    .option('--threads <n>', 'of each', whole(1, 64), 1)
    .option('--seconds <n>', 'for which requests come', whole(1, 3600), 60)
    .option('--utilisation <x>', 'of what the servers can do', decimal(0.01, 2), 0.6)
    .option('--repeats <n>', 'each with its own requests and call times', whole(1, 100), 3)
    .option('--seed <n>', 'of requests', whole(0, 1_000_000), 1)
    .option('--vocabulary <n>', 'tokens are drawn below this', whole(200, 1_000_000), 4000)
    .option('--json', 'print all figures as JSON');

await runProgram<RouteRealOptions>(import.meta.url, command, main);
