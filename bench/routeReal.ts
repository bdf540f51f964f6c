/**
 * `npm run bench:route-real`: the simulated fleet beside a real one. Servers of one model and a router are started on
 * this machine; what their steps take is measured while all are busy; then the same requests, at the same moments, go
 * through the router and through the simulator, and their figures are printed side by side.
 */
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { PolicyDispatcher } from '../route/simulate/dispatchers.js';
import { type Arrival, type FleetConfig, simulateFleet } from '../route/simulate/fleet.js';
import { capacityOf, percentile } from '../route/simulate/measure.js';
import { Random } from '../route/simulate/random.js';
import { textTable } from '../system/text.js';
import { benchCommand, decimal, runProgram, whole } from './command.js';
import { nowMs } from './load/client.js';
import { between, calibrate, type Measured } from './routeCalibrate.js';
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

const MAX_RUNNING = 32;
/** What a server computes in a step beside texts where nothing was tuned. */
const BESIDE_TOKENS = 2048;
const REPORT_MS = 1000;
const EPSILON = 0.5;

const median = (values: readonly number[]): number => percentile(values, 0.5);

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
  readonly ttftMean: number;
  readonly ttftP50: number;
  readonly ttftP90: number;
  readonly ttftP99: number;
  readonly tpotMean: number;
}

/** A request as it was asked, and what came of it. */
interface Asked extends Moments {
  readonly arrival: Arrival;
}

const mean = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0) / values.length;

function figuresOf(found: readonly Asked[]): Figures {
  const span = Math.max(...found.map(({ arrival, endMs }) => arrival.arrivalMs + endMs)) / 1000;
  const first = found.map(({ firstMs }) => firstMs);
  return {
    requests: found.length,
    tokensPerSecond: found.reduce((sum, { tokens }) => sum + tokens, 0) / span,
    ttftMean: mean(first),
    ttftP50: percentile(first, 0.5),
    ttftP90: percentile(first, 0.9),
    ttftP99: percentile(first, 0.99),
    tpotMean: mean(found.map(({ firstMs, endMs, tokens }) => (endMs - firstMs) / (tokens - 1))),
  };
}

/** Each request with the moment at which it was really sent. */
async function runReal(fleet: RealFleet, arrivals: readonly Arrival[], vocabulary: number): Promise<readonly Asked[]> {
  const started = nowMs();
  const running: Promise<Asked>[] = [];
  for (const planned of arrivals) {
    const left = started + planned.arrivalMs - nowMs();
    if (left > 0.5) await sleep(left);
    const arrival = { ...planned, arrivalMs: nowMs() - started };
    running.push(fleet.ask(fleet.router, arrival, vocabulary).then((moments) => ({ ...moments, arrival })));
  }
  return Promise.all(running);
}

function runSimulated(arrivals: readonly Arrival[], config: FleetConfig): readonly Asked[] {
  const { requests } = simulateFleet(
    config,
    arrivals,
    (replicas) => new PolicyDispatcher(replicas, config.replica, { epsilon: EPSILON }),
  );
  return requests.map(({ arrivalMs, firstMs, endMs, generated }, i) => ({
    ...{ arrival: arrivals[i]!, firstMs: firstMs - arrivalMs, endMs: endMs - arrivalMs, tokens: generated },
  }));
}

const ROWS: readonly (readonly [name: string, key: keyof Figures, digits: number])[] = [
  ['requests', 'requests', 0],
  ['tokens a second', 'tokensPerSecond', 1],
  ['TTFT mean, ms', 'ttftMean', 1],
  ['TTFT p50, ms', 'ttftP50', 1],
  ['TTFT p90, ms', 'ttftP90', 1],
  ['TTFT p99, ms', 'ttftP99', 1],
  ['TPOT mean, ms', 'tpotMean', 2],
];

const configOf = ({ replicas }: RouteRealOptions, { times, overheadMs }: Measured): FleetConfig => ({
  replicas,
  reportMs: REPORT_MS,
  replica: {
    ...{ callTimes: times[0]!, sharedTimes: times.slice(1) },
    ...{ overheadMs, stepTokens: BESIDE_TOKENS, besideTokens: BESIDE_TOKENS },
    ...{ maxRunning: MAX_RUNNING, slots: 8, loadMs: 100, adapterStepMs: 0 },
  },
});

/** The same requests twice, so that what the machine does to equal runs is seen, and once simulated. */
interface Round {
  readonly real: Figures;
  readonly again: Figures;
  readonly simulated: Figures;
}

async function round(
  fleet: RealFleet,
  options: RouteRealOptions,
  seed: number,
  say: (line: string) => void,
): Promise<Round> {
  const { vocabulary } = options;
  const before = await calibrate(fleet, vocabulary);
  // What all give together while all compute is what the utilisation is a part of.
  const all = { ...before, times: [before.times.at(-1)!] };
  const arrivals = arrivalsOf(options, configOf(options, all), seed);
  const real = await runReal(fleet, arrivals, vocabulary);
  const measured = between(before, await calibrate(fleet, vocabulary));
  const again = await runReal(fleet, arrivals, vocabulary);
  measured.times.forEach(({ points }, i) => {
    const steps = points.map(({ tokens, ms }) => `${tokens}: ${ms.toFixed(2)}`).join(', ');
    say(`${i + 1} busy: steps, ms by tokens: ${steps}`);
  });
  say(`beside steps: ${measured.overheadMs.toFixed(2)} ms`);
  const simulated = runSimulated(
    real.map(({ arrival }) => arrival),
    configOf(options, measured),
  );
  return { real: figuresOf(real), again: figuresOf(again), simulated: figuresOf(simulated) };
}

async function main(options: RouteRealOptions): Promise<void> {
  const { replicas, model, threads, repeats, seed, json } = options;
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  if (availableParallelism() < replicas * (threads + 1))
    say(`note: ${availableParallelism()} processors for ${replicas} servers, a router and their client`);
  const fleet = await RealFleet.open(
    model,
    replicas,
    ['--threads', String(threads), '--target', 'cpu', '--draft', 'off'],
    {
      policy: { epsilon: EPSILON, running: MAX_RUNNING },
      probe: { periodSeconds: REPORT_MS / 1000, timeoutSeconds: 5 },
    },
  );
  const rounds: Round[] = [];
  try {
    for (let i = 0; i < repeats; i++) {
      rounds.push(await round(fleet, options, seed + i, say));
      if (json !== true) process.stdout.write(`${tableOf(rounds.slice(-1))}\n\n`);
    }
  } finally {
    await fleet.close();
  }
  if (json === true) process.stdout.write(`${JSON.stringify({ rounds }, null, 2)}\n`);
  else if (repeats > 1) process.stdout.write(`medians of ${repeats}\n${tableOf(rounds)}\n`);
}

/** Medians over the rounds, of figures and of ratios. */
const tableOf = (rounds: readonly Round[]): string =>
  textTable(
    [
      ['', 'real', 'again', 'simulated', 'again / real', 'simulated / real'],
      ...ROWS.map(([name, key, digits]) => {
        const of = (measure: (each: Round) => number, places: number): string =>
          median(rounds.map(measure)).toFixed(places);
        return [
          ...[name, of(({ real }) => real[key], digits), of(({ again }) => again[key], digits)],
          ...[of(({ simulated }) => simulated[key], digits), of(({ real, again }) => again[key] / real[key], 3)],
          of(({ real, again, simulated }) => simulated[key] / ((real[key] + again[key]) / 2), 3),
        ];
      }),
    ],
    new Set([1, 2, 3, 4, 5]),
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
