/**
 * `npm run bench:routing -- --trace FILE …`: a fleet of replicas that is simulated on the requests of a trace, under
 * the router's policy and what it is compared with. The traces of docs/routing.md are Azure's public ones of 2023.
 */
import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { DEFAULT_POLICY, type PolicySettings, type Ticket } from '../route/policy.js';
import { Router } from '../route/router.js';
import { H200_8B } from '../route/simulate/callTimes.js';
import { type Baseline, baseline, BASELINES, nodeName, PolicyDispatcher } from '../route/simulate/dispatchers.js';
import { type Arrival, type FleetConfig, simulateFleet } from '../route/simulate/fleet.js';
import { capacityOf, type Figures, figuresOf } from '../route/simulate/measure.js';
import { readTrace, type TraceRow } from '../route/simulate/trace.js';
import { DEFAULT_WORKLOAD, makeWorkload } from '../route/simulate/workload.js';
import { benchCommand, decimal, list, oneOf, repeated, runProgram, text, whole } from './command.js';

export interface RoutingOptions {
  readonly trace?: readonly string[];
  readonly replicas: number;
  readonly slots: readonly number[];
  readonly maxRunning: number;
  readonly adapterMb: number;
  readonly loadGbs: number;
  readonly utilisation: readonly number[];
  readonly epsilon: readonly number[];
  readonly adapters: number;
  readonly exponent: readonly number[];
  readonly minutes: number;
  readonly seed: number;
  readonly reportMs: number;
  readonly beside?: readonly (Baseline | 'none')[];
  readonly set?: readonly string[];
}

const NUMBER = (value: number, digits: number): string => value.toFixed(digits);

interface Row {
  readonly name: string;
  readonly figures: Figures;
  readonly costUs?: number;
}

function show(rows: readonly Row[], oracle: Figures | undefined): void {
  console.log(
    '| | hits | loads/s | TTFT p50, p99 ms | of oracle p99 | TPOT p99 ms | max/mean in flight (p99) | µs a request |' +
      '\n|---|---|---|---|---|---|---|---|',
  );
  for (const { name, figures, costUs } of rows) {
    const { hits, loadsPerSecond, ttftP50, ttftP99, tpotP99, balance, balanceP99 } = figures;
    const cells = [
      name,
      NUMBER(hits, 3),
      NUMBER(loadsPerSecond, 1),
      `${NUMBER(ttftP50, 0)}, ${NUMBER(ttftP99, 0)}`,
      oracle === undefined ? '' : NUMBER(ttftP99 / oracle.ttftP99, 2),
      NUMBER(tpotP99, 1),
      `${NUMBER(balance, 2)} (${NUMBER(balanceP99, 2)})`,
      costUs === undefined ? '' : NUMBER(costUs, 1),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
}

interface Case {
  readonly config: FleetConfig;
  readonly arrivals: readonly Arrival[];
  readonly fromMs: number;
}

function runBaseline(kind: Baseline, { config, arrivals, fromMs }: Case, epsilon: number, seed: number): Row {
  const isOracle = kind === 'oracle';
  // The oracle's replicas have every adapter.
  const slots = isOracle ? 1 << 20 : config.replica.slots;
  const replica = { ...config.replica, slots, loadMs: isOracle ? 0 : config.replica.loadMs };
  const run = simulateFleet({ ...config, replica }, arrivals, (replicas) =>
    baseline(kind, replicas, { epsilon, points: DEFAULT_POLICY.points, seed }),
  );
  const name = kind === 'bounded ring' ? `${kind}, ε ${epsilon}` : kind;
  return { name, figures: figuresOf(run, fromMs) };
}

function runPolicy(each: Case, settings: Partial<PolicySettings>): Row {
  const { config, arrivals, fromMs } = each;
  const run = simulateFleet(config, arrivals, (replicas) => {
    return new PolicyDispatcher(replicas, config.replica, settings);
  });
  const costUs = costOf(each, settings, Math.round(run.meanInFlight * config.replicas));
  return { name: `policy, ε ${settings.epsilon}`, figures: figuresOf(run, fromMs), costUs };
}

/**
 * Microseconds of the processor that the policy takes for a request, reports and plans included: requests begin and end
 * as in a fleet with so many under way, in an order that needs no simulation.
 */
function costOf({ config, arrivals }: Case, settings: Partial<PolicySettings>, inFlight: number): number {
  const router = new Router(settings);
  const names = Array.from({ length: config.replicas }, (_, i) => nodeName(i));
  const held = new Map(names.map((name) => [name, new Set<string>()]));
  const { slots, maxRunning } = config.replica;
  for (const name of names) router.join(name, 0);
  const report = (now: number): void => {
    for (const name of names) {
      const adapters = [...held.get(name)!].map((each) => ({ name: each, revision: each }));
      router.report(name, { base: 'base', adapters, slots, maxRunning, running: 0, waiting: 0, queueTokens: 0 }, now);
    }
    router.plan(now);
  };
  report(0);
  const all = new Set(arrivals.map(({ adapter }) => `adapter-${adapter}`));
  for (const name of all) router.announce({ base: 'base', name, revision: name }, 0);
  const tickets: Ticket[] = [];
  let reportAt = config.reportMs;
  const begun = process.cpuUsage();
  for (const { arrivalMs, adapter, prompt } of arrivals) {
    for (; reportAt <= arrivalMs; reportAt += config.reportMs) report(reportAt);
    const request = { base: 'base', adapter: `adapter-${adapter}`, tokens: prompt };
    const route = router.choose(request, arrivalMs);
    if (route.kind !== 'route') continue;
    tickets.push(router.begin(route, request, arrivalMs));
    const at = held.get(route.replica)!;
    at.delete(request.adapter);
    at.add(request.adapter);
    if (at.size > slots) at.delete(at.values().next().value!);
    if (tickets.length > inFlight / 8) router.firstToken(tickets.at(-Math.ceil(inFlight / 8))!, arrivalMs);
    if (tickets.length > inFlight) router.finish(tickets.shift()!, 'answered', arrivalMs, 100);
  }
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / arrivals.length;
}

/** NAME=NUMBER of settings of the policy. */
function settingsOf(given: readonly string[]): Partial<PolicySettings> {
  return Object.fromEntries(
    given.map((each) => {
      const [name, value] = each.split('=');
      if (!(name! in DEFAULT_POLICY) || !Number.isFinite(Number(value)))
        throw new UsageError(`--set ${each}: expected NAME=NUMBER`, `names: ${Object.keys(DEFAULT_POLICY).join(', ')}`);
      return [name, Number(value)];
    }),
  );
}

function study(rows: readonly TraceRow[], options: RoutingOptions, utilisation: number, exponent: number): void {
  const { replicas, maxRunning, adapterMb, loadGbs, minutes, seed, reportMs, adapters } = options;
  for (const slots of options.slots) {
    const config: FleetConfig = {
      replicas,
      reportMs,
      replica: {
        callTimes: H200_8B,
        stepTokens: 8192,
        besideTokens: 2048,
        maxRunning,
        slots,
        loadMs: adapterMb / loadGbs,
        adapterStepMs: 0.028,
        overheadMs: 1,
      },
    };
    const rate = utilisation * capacityOf(rows, config);
    const durationMs = minutes * 60_000;
    const arrivals = makeWorkload(rows, { ...DEFAULT_WORKLOAD, seed, rate, durationMs, adapters, exponent });
    const each: Case = { config, arrivals, fromMs: durationMs / 10 };
    const epsilons = options.epsilon;
    const kinds = (options.beside ?? BASELINES).filter((kind) => kind !== 'none');
    const beside = kinds.map((kind) => runBaseline(kind, each, epsilons[0]!, seed));
    const policies = epsilons.map((epsilon) => runPolicy(each, { ...settingsOf(options.set ?? []), epsilon }));
    const oracle = beside.find(({ name }) => name === 'oracle')?.figures;
    console.log(
      `\nutilisation ${utilisation}, Zipf ${exponent}, ${slots} slots: ${arrivals.length} requests, ` +
        `${NUMBER(rate, 1)} a second, ${NUMBER(policies[0]!.figures.meanInFlight, 1)} in flight a replica\n`,
    );
    show([...beside, ...policies], oracle);
  }
}

function main(options: RoutingOptions): void {
  if (options.trace === undefined) throw new UsageError('--trace is missing', 'npm run bench:routing -- --trace FILE');
  for (const trace of options.trace) {
    const rows = readTrace(trace);
    console.log(
      `\n## ${basename(trace)}: ${rows.length} requests in ${NUMBER(rows.at(-1)!.atMs / 60_000, 0)} minutes; ` +
        `${options.replicas} replicas, ${options.adapters} adapters, ${availableParallelism()} cores here`,
    );
    for (const utilisation of options.utilisation)
      for (const exponent of options.exponent) study(rows, options, utilisation, exponent);
  }
}

export const routingCommand = (): Command =>
  benchCommand(
    'bench:routing',
    'Simulates a fleet on the requests of a trace: the policy of `tilewright route`, and others beside it. ' +
      'Copies of the trace, turned in time, give the rate that the utilisation asks for. The oracle knows the state ' +
      'of every replica, has every adapter everywhere and picks the earliest first token.',
  )
    .option('--trace <file>', 'CSV of TIMESTAMP, ContextTokens, GeneratedTokens, or .gz; repeatable', repeated(text))
    .option('--replicas <n>', 'replicas', whole(1, 1024), 16)
    .option('--slots <list>', 'adapters on a device', list(whole(1, 4096)), [32, 16])
    .option('--max-running <n>', 'requests of a step', whole(1, 4096), 64)
    .option('--adapter-mb <mb>', 'size of an adapter (84: rank 16 on all linear layers of 8B)', decimal(0, 1e6), 84)
    .option('--load-gbs <gb/s>', 'what adapters are loaded at (3: an SSD)', decimal(0.001, 1e4), 3)
    .option('--utilisation <list>', 'part of what full steps would give', list(decimal(0.01, 2)), [0.7])
    .option('--epsilon <list>', "the policy's bounds", list(decimal(0.01, 10)), [0.25, 0.5])
    .option('--adapters <n>', 'adapters', whole(0, 100_000), 256)
    .option('--exponent <list>', 'of Zipf', list(decimal(0, 4)), [1])
    .option('--minutes <n>', 'length', decimal(0.1, 60), 10)
    .option('--seed <n>', 'seed', whole(0, 2 ** 32 - 1), 1)
    .option('--report-ms <ms>', 'time between reports of a replica', decimal(1, 1e6), 1000)
    .option('--beside <list>', 'what to compare with', list(oneOf([...BASELINES, 'none'] as const)))
    .option('--set <name=number>', 'a setting of the policy; repeatable', repeated(text));

await runProgram(import.meta.url, routingCommand, (options: RoutingOptions) => {
  main(options);
  return Promise.resolve();
});
