/**
 * What steps of real servers take on this machine, while one of them computes, while two do, and so on: servers that
 * share processors take longer. Measured apart from the run that is compared with.
 */
import type { CallTimes } from '../route/simulate/callTimes.js';
import { stepMs } from '../route/simulate/callTimes.js';
import { percentile } from '../route/simulate/measure.js';
import type { LoadClient } from './load/client.js';
import type { Moments, RealFleet } from './routeFleet.js';

export interface Measured {
  /** While one server computes, while two do, …, while all do. */
  readonly times: readonly CallTimes[];
  /** What a request takes beside its steps, through the router. */
  readonly overheadMs: number;
}

/** Texts side by side whose steps are measured, and tokens of prompts. */
const DECODING = [1, 2, 4, 8, 16, 32];
const PROMPTS = [64, 128, 256, 384];
const MEASURED_TOKENS = 32;
/** Requests of a server, one after the other, of each length of prompts; and of the shortest. */
const PROBES = 7;
const SHORT_PROBES = 25;
/** Tokens of the prompts of texts that are measured. */
const FEW = 4;

const mean = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0) / values.length;
const median = (values: readonly number[]): number => percentile(values, 0.5);

class Calibration {
  private readonly fleet: RealFleet;
  private readonly vocabulary: number;

  constructor(fleet: RealFleet, vocabulary: number) {
    this.fleet = fleet;
    this.vocabulary = vocabulary;
  }

  private ask(client: LoadClient, prompt: number, generated: number): Promise<Moments> {
    return this.fleet.ask(client, { prompt, generated }, this.vocabulary);
  }

  /** The first calls compile and allocate. */
  async warm(): Promise<void> {
    for (const client of [...this.fleet.servers, this.fleet.router]) await this.ask(client, PROMPTS.at(-1)!, 8);
  }

  /** Time of a step of so many texts at each of the servers at once. */
  async decodeMs(servers: readonly LoadClient[], texts: number): Promise<number> {
    const found = await Promise.all(
      servers.flatMap((client) => Array.from({ length: texts }, () => this.ask(client, FEW, MEASURED_TOKENS))),
    );
    return median(found.map(({ firstMs, endMs, tokens }) => (endMs - firstMs) / (tokens - 1)));
  }

  /** Time to the first token of prompts that each of the servers gets one after the other. */
  async firstMs(servers: readonly LoadClient[], prompt: number, probes: number): Promise<number> {
    const found = await Promise.all(
      servers.map(async (client) => {
        const each: number[] = [];
        for (let i = 0; i < probes; i++) each.push((await this.ask(client, prompt, 1)).firstMs);
        return each;
      }),
    );
    return median(found.flat());
  }
}

export async function calibrate(fleet: RealFleet, vocabulary: number): Promise<Measured> {
  const measure = new Calibration(fleet, vocabulary);
  await measure.warm();
  const times: CallTimes[] = [];
  let beside = 0;
  for (let busy = 1; busy <= fleet.servers.length; busy++) {
    const servers = fleet.servers.slice(0, busy);
    const points: { tokens: number; ms: number }[] = [];
    for (const texts of DECODING) points.push({ tokens: texts, ms: await measure.decodeMs(servers, texts) });
    const least = points[0]!.ms;
    if (busy === 1) beside = Math.max(0, (await measure.firstMs(servers, 1, SHORT_PROBES)) - least);
    for (const prompt of PROMPTS) {
      const ms = (await measure.firstMs(servers, prompt, PROBES)) - beside;
      points.push({ tokens: prompt, ms });
    }
    times.push({ points });
  }
  const routed = (await measure.firstMs([fleet.router], 1, SHORT_PROBES)) - stepMs(times[0]!, 1);
  return { times: inOrder(times), overheadMs: Math.max(beside, routed) };
}

/** More tokens, and more servers that compute, take no less time. */
function inOrder(times: readonly CallTimes[]): CallTimes[] {
  let fewer: readonly number[] = [];
  return times.map(({ points }) => {
    let least = 0;
    const ordered = points.map(({ tokens, ms }, i) => ({ tokens, ms: (least = Math.max(least, ms, fewer[i] ?? 0)) }));
    fewer = ordered.map(({ ms }) => ms);
    return { points: ordered };
  });
}

/** Of measurements before and after a run: what others do on the machine changes. */
export const between = (a: Measured, b: Measured): Measured => ({
  overheadMs: mean([a.overheadMs, b.overheadMs]),
  times: a.times.map(({ points }, i) => ({
    points: points.map(({ tokens, ms }, j) => ({ tokens, ms: mean([ms, b.times[i]!.points[j]!.ms]) })),
  })),
});
