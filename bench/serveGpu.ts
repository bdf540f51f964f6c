/**
 * `npm run bench:serve-gpu`: what HTTP costs. The same requests by an engine in this process and through
 * `tilewright serve`, in turn, in one go of less than nine minutes; both have the 8B shape on one GPU of 141 GB. From a
 * bundle, whose Node is there once ./tilewright has run:
 *
 *   ./tilewright doctor && ./node/node dist/bench/serveGpu.js --json serveGpu.json
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { at } from '../system/at.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, decimal, list, oneOf, runProgram, whole } from './command.js';
import { StalledReaders } from './load/beside.js';
import type { Outcome } from './load/client.js';
import { arrivals } from './load/plan.js';
import { runLoad } from './load/processes.js';
import { distributionOf, gapsOf, type LoadReport, percentile, reportOf } from './load/report.js';
import type { BodyOptions } from './load/runner.js';
import { OfflineSide, ServerSide } from './load/sides.js';
import { writeMadeUpFolder } from './madeUpFolder.js';
import { requestLengths, type RequestLengths } from './requestLengths.js';
import { processSeconds } from './serveLoad.js';

/** A figure beside what is wanted of it. */
interface Row {
  readonly what: string;
  readonly wanted: string;
  readonly measured: string;
}

interface Measured {
  readonly report: LoadReport;
  readonly outcomes: readonly Outcome[];
  /** Processor time of the server's process for each new token. */
  readonly microseconds: number;
  /** Events with a token, for each new token. */
  readonly chunks: number;
}

/** Lengths of a lone request, and of those that run side by side. */
const LONE: RequestLengths = { prompt: 215, answer: 128 };
const WARM_UP: RequestLengths = { prompt: 215, answer: 64 };
/** In which a reader that stopped is held back. */
const STALL_MS = 4000;
const [TTFT_MEDIAN, TTFT_P99, ITL_RATIO] = [60, 250, 3];

const median = (values: readonly number[]): number => percentile(Float64Array.from(values).sort(), 50);

class Measurement {
  readonly rows: Row[] = [];
  /** All reports, by name. */
  readonly reports: Record<string, unknown> = {};
  private readonly options: ServeGpuOptions;
  private readonly vocabSize: number;
  private readonly offline: OfflineSide;
  private readonly server: ServerSide;
  private prompts = 0;

  constructor(options: ServeGpuOptions, vocabSize: number, offline: OfflineSide, server: ServerSide) {
    this.options = options;
    this.vocabSize = vocabSize;
    this.offline = offline;
    this.server = server;
  }

  private add(what: string, wanted: string, measured: string): void {
    this.rows.push({ what, wanted, measured });
    console.error(`${what}: ${measured} (wanted: ${wanted})`);
  }

  /** Prompts that no side has seen. */
  private fresh(count: number): number {
    const first = this.prompts;
    this.prompts += count;
    return first;
  }

  private body(firstPrompt: number): BodyOptions {
    return {
      ...{ endpoint: 'completions', model: 'served', vocabSize: this.vocabSize, firstPrompt, isStream: true },
      ...{ ignoreEos: true, temperature: 0, extra: {} },
    };
  }

  private async load(
    name: string,
    lengths: readonly RequestLengths[],
    seconds: readonly number[] = [],
    isStream = true,
  ): Promise<Measured> {
    const { baseUrl, pid } = this.server;
    let before = 0;
    const { outcomes, clientSeconds } = await runLoad({
      client: { baseUrl },
      body: { ...this.body(this.fresh(lengths.length)), isStream },
      requests: lengths.map((each, index) => ({ ...each, index, seconds: seconds[index] ?? 0 })),
      ...{ maxConcurrency: Infinity, warmUp: 0, processes: this.options.processes },
      onBegin: () => (before = processSeconds(pid)),
    });
    const used = processSeconds(pid) - before;
    const report = reportOf(outcomes, clientSeconds, { percentiles: [90, 99] });
    this.reports[name] = report;
    if (report.failed > 0) console.error(`${name}: ${JSON.stringify(report.errors)}`);
    const events = outcomes.reduce((sum, { tokensMs }) => sum + tokensMs.length, 0);
    return {
      ...{ report, outcomes, microseconds: (1e6 * used) / report.answerTokens },
      chunks: events / report.answerTokens,
    };
  }

  /** Memory comes and goes in pieces, and kernels are compiled while others run: both sides have what they need. */
  async warmUp(): Promise<void> {
    const lengths = Array.from({ length: Math.min(this.options.requests, 512) }, () => WARM_UP);
    await this.offline.rate(lengths, this.fresh(lengths.length));
    await this.load('warm-up', lengths);
  }

  /** Requests a second of the last spread. */
  async allAtOnce(): Promise<number> {
    const { requests, spreads } = this.options;
    let saturated = 0;
    for (const spread of spreads) {
      const lengths = requestLengths(requests, spread);
      const offline = await this.offline.rate(lengths, this.fresh(requests));
      const { report, microseconds, chunks } = await this.load(`${requests} at once, spread ${spread}`, lengths);
      const rate = report.answerTokensPerSecond;
      this.reports[`offline, spread ${spread}`] = offline;
      const name = `${requests} at once, spread ${spread}`;
      this.add(
        `${name}: tokens/s over HTTP / offline`,
        '≥ 0.97',
        `${rate.toFixed(0)} / ${offline.toFixed(0)} = ${(rate / offline).toFixed(3)}`,
      );
      this.add(`${name}: chunks a token`, '1', chunks.toFixed(3));
      this.add(`${name}: server's CPU, µs a token`, '≤ 30', microseconds.toFixed(1));
      saturated = report.requestsPerSecond;
    }
    return saturated;
  }

  async steady(): Promise<void> {
    const { streams, streamTokens } = this.options;
    const lengths = Array.from({ length: streams }, () => ({ prompt: 215, answer: streamTokens }));
    const { report, microseconds } = await this.load(`${streams} steady streams`, lengths);
    this.add(
      `${streams} streams: tokens/s while all run`,
      '≥ 20,000',
      (report.steadyTokensPerSecond ?? NaN).toFixed(0),
    );
    this.add(`${streams} streams: ITL median, P99, ms`, '–', `${report.itl.median.toFixed(1)}, ${p99(report.itl)}`);
    this.add(`${streams} streams: server's CPU, µs a token`, '≤ 30', microseconds.toFixed(1));
    const whole = await this.load(`${streams} whole answers`, lengths, [], false);
    this.add(`${streams} whole answers: server's CPU, µs a token`, '≤ 8', whole.microseconds.toFixed(1));
  }

  async poisson(saturated: number): Promise<void> {
    const { share, poissonSeconds, spreads } = this.options;
    const rate = share * saturated;
    const count = Math.max(16, Math.round(rate * poissonSeconds));
    const spread = spreads[spreads.length >> 1] ?? 0.7;
    const times = arrivals({
      ...{ requests: count, seed: 1, rate, burstiness: 1, aborts: 0, lengths: 'public', spread },
      ...{ promptTokens: 1, answerTokens: 1, rangeRatio: 0 },
    });
    const name = `Poisson, ${rate.toFixed(1)} requests/s for ${poissonSeconds} s, spread ${spread}`;
    const { report } = await this.load(name, requestLengths(count, spread, 2), times);
    const { ttft, itl } = report;
    this.add(`${name}: TTFT median, ms`, `≤ ${TTFT_MEDIAN}`, ttft.median.toFixed(1));
    this.add(`${name}: TTFT P99, ms`, `≤ ${TTFT_P99}`, p99(ttft));
    this.add(`${name}: TPOT median, P99, ms`, '–', `${report.tpot.median.toFixed(1)}, ${p99(report.tpot)}`);
    const ratio = itl.percentiles['p99']! / itl.median;
    this.add(
      `${name}: ITL P99 / median`,
      `≤ ${ITL_RATIO}`,
      `${p99(itl)} / ${itl.median.toFixed(1)} = ${ratio.toFixed(2)}`,
    );
  }

  /** A lone request, in turn on both sides. */
  async alone(): Promise<void> {
    const sides: readonly Outcome[][] = [[], []];
    for (let round = 0; round < this.options.rounds; round++) {
      sides[0]!.push(await this.offline.alone(LONE, this.fresh(1)));
      const { outcomes } = await this.load(`alone ${round}`, [LONE]);
      sides[1]!.push(at(outcomes, 0));
    }
    const [offline, http] = sides.map((outcomes) => ({
      ttft: median(outcomes.map(({ tokensMs, sentMs }) => tokensMs[0]! - sentMs)),
      itl: distributionOf(gapsOf(outcomes), [99]).mean,
    }));
    const compared = (name: 'ttft' | 'itl'): string => {
      const [own, other] = [http![name], offline![name]];
      return `${own.toFixed(2)} − ${other.toFixed(2)} = ${(own - other).toFixed(2)}`;
    };
    this.reports['alone'] = { offline, http };
    this.add('alone: TTFT over HTTP − generate (medians), ms', '≤ 3', compared('ttft'));
    this.add('alone: ITL over HTTP − generate (means), ms', '≤ 0.2', compared('itl'));
  }

  /** The P99 of the gaps of streams beside a reader that stopped before, and without it, in turn. */
  async stalled(): Promise<void> {
    const { stalledStreams: count, stalledTokens: answer, rounds } = this.options;
    const lengths = Array.from({ length: count }, () => ({ prompt: 64, answer }));
    const p99s: [number[], number[]] = [[], []];
    for (let round = 0; round < rounds >> 1; round++)
      for (const isStalled of [false, true]) {
        const { baseUrl } = this.server;
        const stalled = new StalledReaders({ baseUrl });
        // So much text that the system's buffers are full soon.
        const body = { ...this.body(this.fresh(0)), extra: { n: 16, logprobs: 20 } };
        if (isStalled) {
          stalled.begin(body, 1, this.options.longest);
          await sleep(STALL_MS);
        }
        const { outcomes } = await this.load(`stalled ${isStalled} ${round}`, lengths);
        p99s[isStalled ? 1 : 0].push(distributionOf(steadyGapsOf(outcomes), [99]).percentiles['p99']!);
        stalled.close();
      }
    const [without, beside] = p99s.map(median);
    this.add(
      `${count} streams: P99 ITL beside a stalled reader / without`,
      '≤ 1.02',
      `${beside!.toFixed(2)} / ${without!.toFixed(2)} = ${(beside! / without!).toFixed(3)}`,
    );
  }
}

/** Gaps between tokens from the moment on at which all streams have begun. */
function steadyGapsOf(outcomes: readonly Outcome[]): Float64Array {
  const begun = Math.max(...outcomes.map(({ tokensMs }) => tokensMs[0]!));
  return gapsOf(
    outcomes.map((outcome) => ({ ...outcome, tokensMs: outcome.tokensMs.filter((moment) => moment >= begun) })),
  );
}

const p99 = ({ percentiles }: LoadReport['itl']): string => (percentiles['p99'] ?? NaN).toFixed(1);

async function main(options: ServeGpuOptions): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-serve-gpu-'));
  const started = performance.now();
  let [offline, server]: [OfflineSide | undefined, ServerSide | undefined] = [undefined, undefined];
  try {
    const served = join(folder, 'served');
    const vocabSize = writeMadeUpFolder(options.model, served);
    offline = await OfflineSide.open(served, vocabSize, options);
    server = await ServerSide.open(served, options);
    const measurement = new Measurement(options, vocabSize, offline, server);
    const secondsLeft = (): number => options.limit - (performance.now() - started) / 1000;
    console.error(`both sides are open after ${(options.limit - secondsLeft()).toFixed(0)} s`);
    try {
      await measurement.warmUp();
      const saturated = await measurement.allAtOnce();
      // What comes last may have to be left out.
      const rest = [
        () => measurement.steady(),
        () => measurement.poisson(saturated),
        () => measurement.alone(),
        () => measurement.stalled(),
      ];
      for (const measure of rest)
        if (secondsLeft() > 0) await measure();
        else console.error('no time is left for the rest');
    } finally {
      const { rows, reports } = measurement;
      const lines = rows.map(({ what, wanted, measured }) => `| ${what} | ${wanted} | ${measured} |`);
      console.log(['| what | wanted | measured |', '|---|---:|---:|', ...lines].join('\n'));
      if (options.json !== undefined)
        writeFileSync(options.json, JSON.stringify({ options, rows, reports }, undefined, 1));
    }
  } finally {
    await server?.close();
    await offline?.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

export interface ServeGpuOptions {
  readonly model: string;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly cacheTokens: number;
  readonly requests: number;
  readonly spreads: readonly number[];
  readonly streams: number;
  readonly streamTokens: number;
  readonly share: number;
  readonly poissonSeconds: number;
  readonly rounds: number;
  readonly stalledStreams: number;
  readonly stalledTokens: number;
  readonly longest: number;
  readonly processes: number;
  readonly limit: number;
  readonly json?: string;
}

export const serveGpuCommand = (): Command =>
  benchCommand(
    'bench:serve-gpu',
    'What HTTP costs: a model with made-up weights in an engine of this process, as generate has it, and in a ' +
      'server beside it, on one device. Prints, beside what is wanted of each: new tokens a second of requests that ' +
      'come all at once, over HTTP with one token a chunk and offline, in turn; steady streams; Poisson ' +
      'arrivals at a ' +
      'share of what the server can do; a lone request beside generate; what a reader that stops does to the others; ' +
      "and the processor time of the server's process, whose devices have a process of their own, for each token.",
  )
    .option('--model <path>', 'folder of a config.json, or one below bench/models', 'llama-8b')
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cuda')
    .option('--threads <n>', 'threads of each side on a CPU', whole(1, 1024), 1)
    .option('--cache-tokens <n>', 'room for keys and values of each side', whole(256, 1 << 24), 300_000)
    .option('--requests <n>', 'that come at once', whole(1, 100_000), 1000)
    .option('--spreads <list>', 'of their lengths, as in bench:generate', list(decimal(0.1, 2)), [0.5, 0.7, 1.1])
    .option('--streams <n>', 'steady streams', whole(1, 10_000), 256)
    .option('--stream-tokens <n>', 'of each', whole(2, 65_536), 256)
    .option('--share <x>', 'Poisson arrivals: share of the requests a second that came at once', decimal(0.01, 2), 0.7)
    .option('--poisson-seconds <n>', 'for so long', whole(1, 600), 25)
    .option('--rounds <n>', 'lone requests; half as many rounds with a stalled reader', whole(2, 1000), 10)
    .option('--stalled-streams <n>', 'streams beside a reader that stops', whole(2, 10_000), 128)
    .option('--stalled-tokens <n>', 'of each', whole(2, 65_536), 300)
    .option('--longest <n>', 'tokens that a stalled reader asks for', whole(2, 1 << 20), 7000)
    .option('--processes <n>', 'of the client', whole(1, 64), 4)
    .option('--limit <seconds>', 'after so many nothing more is begun', whole(10, 10_000), 420)
    .option('--json <file>', 'where all reports go');

await runProgram(import.meta.url, serveGpuCommand, main);
