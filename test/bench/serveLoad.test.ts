/** The load of `bench:serve`: its plan, its client against a scripted server, and its figures. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import { parseOptions } from '../../bench/command.js';
import { IdleConnections } from '../../bench/load/beside.js';
import { LoadClient, type Outcome } from '../../bench/load/client.js';
import { arrivals, gamma, planLoad, type PlanOptions, readTrace } from '../../bench/load/plan.js';
import { describeReport, distributionOf, reportOf } from '../../bench/load/report.js';
import { uniform } from '../../bench/requestLengths.js';
import { measureLoad, processSeconds, serveLoadCommand, type ServeLoadOptions } from '../../bench/serveLoad.js';
import { UserError } from '../../errors.js';
import { temporaryFolder } from '../models/support.js';
import { thorough } from '../support/thorough.js';

const PLAN: PlanOptions = {
  ...{ requests: 400, seed: 1, lengths: 'fixed', spread: 1, promptTokens: 8, answerTokens: 4, rangeRatio: 0 },
  ...{ rate: 50, burstiness: 1, aborts: 0 },
};

const mean = (values: readonly number[]): number => values.reduce((sum, each) => sum + each, 0) / values.length;
const gaps = (times: readonly number[]): number[] => times.map((time, i) => time - (times[i - 1] ?? 0));

describe('the plan of a load', () => {
  it.each([0.3, 1, 4])('draws gaps whose mean is 1 and whose variance is 1 / %d', (shape) => {
    const random = uniform(7);
    const drawn = Array.from({ length: 40_000 }, () => gamma(random, shape));
    expect(mean(drawn)).toBeCloseTo(1, 1);
    expect(mean(drawn.map((each) => (each - 1) ** 2)) * shape).toBeCloseTo(1, 0);
  });

  it('lets the last request come after requests / rate seconds, at equal gaps where they are asked for', () => {
    expect(arrivals(PLAN).at(-1)).toBeCloseTo(8, 9);
    for (const gap of gaps(arrivals({ ...PLAN, burstiness: Infinity }))) expect(gap).toBeCloseTo(0.02, 9);
    expect(new Set(arrivals({ ...PLAN, rate: Infinity }))).toEqual(new Set([0]));
  });

  it.each(['linear', 'exponential'] as const)('ramps up: %s', (ramp) => {
    const own = gaps(arrivals({ ...PLAN, burstiness: Infinity, ramp, rampFrom: 5 }));
    expect(own[0]).toBeCloseTo(1 / 5, 9);
    expect(1 / own[200]!).toBeCloseTo(ramp === 'linear' ? 27.5 : Math.sqrt(250), 9);
  });

  it('reads traces as they are and packed, and says what is wrong with one', () => {
    const folder = temporaryFolder();
    const rows = ['2023-11-16 18:01:51.1628340,2162,5', '2023-11-16 18:01:53.6628340,100,50'];
    const text = ['TIMESTAMP,ContextTokens,GeneratedTokens', ...rows, ''].join('\r\n');
    writeFileSync(join(folder, 'a.csv'), text);
    writeFileSync(join(folder, 'a.csv.gz'), gzipSync(text));
    writeFileSync(join(folder, 'bad.csv'), text.replace(',50', ',x'));
    expect(readTrace(join(folder, 'a.csv'))).toEqual(readTrace(join(folder, 'a.csv.gz')));
    const plan = planLoad({ ...PLAN, lengths: join(folder, 'a.csv'), rate: 'trace', longest: 1000 });
    expect(plan).toEqual([
      { index: 0, seconds: 0, prompt: 500, answer: 5 },
      { index: 1, seconds: 2.5, prompt: 100, answer: 50 },
    ]);
    expect(() => readTrace(join(folder, 'bad.csv'))).toThrow(/bad.csv: line 3: expected a time/);
    expect(() => planLoad({ ...PLAN, rate: 'trace' })).toThrow(/of no trace/);
    expect(() => readTrace(join(folder, 'none'))).toThrow(UserError);
  });

  it('draws random lengths in their range, and the share of requests whose clients go', () => {
    const plan = planLoad({ ...PLAN, lengths: 'random', promptTokens: 100, rangeRatio: 0.5, aborts: 0.25 });
    const prompts = plan.map(({ prompt }) => prompt);
    expect([Math.min(...prompts), Math.max(...prompts)].map((each) => Math.round(each / 10))).toEqual([5, 15]);
    expect(plan.filter(({ abortAfter }) => abortAfter !== undefined).length / 400).toBeCloseTo(0.25, 1);
    expect(planLoad(PLAN)).toEqual(planLoad(PLAN));
  });
});

interface Body {
  readonly [name: string]: unknown;
  readonly max_tokens: number;
}

/** A server that answers every request with so many tokens as it asks for, by a script. */
class ScriptedServer {
  readonly bodies: Body[] = [];
  running = 0;
  most = 0;
  left = 0;
  private readonly server = http.createServer((request, response) => void this.answer(request, response));

  async listen(): Promise<string> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  private async answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    if (request.url === '/v1/models') return void response.end(JSON.stringify({ data: [{ id: 'scripted' }] }));
    let text = '';
    for await (const piece of request.setEncoding('utf8')) text += String(piece);
    const body = JSON.parse(text) as Body;
    this.bodies.push(body);
    this.most = Math.max(this.most, ++this.running);
    response.on('close', () => {
      this.running--;
      if (!response.writableFinished) this.left++;
    });
    const usage = { prompt_tokens: 7, completion_tokens: body.max_tokens };
    if (body['fail'] === 'status') {
      response.writeHead(429, { 'content-type': 'application/json' });
      return void response.end(JSON.stringify({ error: { message: 'too many' } }));
    }
    if (body['stream'] !== true) return void response.end(JSON.stringify({ choices: [{ text: 'all' }], usage }));
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    const isChat = request.url === '/v1/chat/completions';
    const events: string[] = isChat
      ? ['{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}']
      : [];
    for (let i = 0; i < body.max_tokens; i++)
      events.push(isChat ? '{"choices":[{"delta":{"content":"ä"}}]}' : '{"choices":[{"text":"ä","index":0}]}');
    if (isChat) events.push('{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}');
    if (body['fail'] === 'event') events.push('{"error":{"message":"broken"}}');
    events.push(`{"choices":[],"usage":${JSON.stringify(usage)}}`, '[DONE]');
    // Cut in the middle of events and characters.
    const bytes = Buffer.from(events.map((each) => `data: ${each}\n\n`).join(''));
    for (let from = 0; from < bytes.length; from += 37) {
      if (response.destroyed) return;
      response.write(bytes.subarray(from, from + 37));
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (body['fail'] === 'cut') response.destroy();
    else response.end();
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }
}

const servers: ScriptedServer[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function scripted(
  line: string,
): Promise<{ readonly server: ScriptedServer; readonly options: ServeLoadOptions }> {
  const server = new ScriptedServer();
  servers.push(server);
  const base = `--base-url ${await server.listen()} --processes 1 --lengths fixed --prompt-tokens 5 --answer-tokens 6`;
  return { server, options: parseOptions<ServeLoadOptions>(serveLoadCommand(), `${base} ${line}`.split(' '))! };
}

describe('a load on a server', () => {
  it.each(['completions', 'chat'])('counts the tokens of streamed %s', async (endpoint) => {
    const { server, options } = await scripted(
      `--endpoint ${endpoint} --requests 20 --max-concurrency 3 --ignore-eos --temperature 0 --pid ${process.pid}`,
    );
    const result = await measureLoad(options);
    expect(result).toMatchObject({ model: 'scripted', completed: 20, failed: 0, promptTokens: 140, answerTokens: 120 });
    expect([result.ttft.count, result.itl.count, result.tpot.count]).toEqual([20, 100, 20]);
    expect(result.ttft.mean).toBeLessThanOrEqual(result.e2el.mean);
    expect(result.serverMicrosecondsPerToken).toBeGreaterThanOrEqual(0);
    expect(server.most).toBe(3);
    const [warmUp, first] = server.bodies;
    expect(warmUp!.max_tokens).toBe(8);
    expect(first).toMatchObject({ model: 'scripted', max_tokens: 6, temperature: 0, ignore_eos: true, stream: true });
    expect(describeReport(result)).toMatch(/20 requests completed, 0 failed[^]*\| TTFT \| 20 \|/);
  });

  it('takes whole answers, further fields, and counts by usage', async () => {
    const { server, options } = await scripted('--requests 3 --no-stream --extra {"top_k":5}');
    const result = await measureLoad(options);
    expect(result).toMatchObject({ completed: 3, answerTokens: 18 });
    expect(result.itl.count).toBe(0);
    expect(server.bodies.at(-1)).toMatchObject({ top_k: 5 });
  });

  it.each([
    ['status', 'status 429: too many'],
    ['event', 'broken'],
    ['cut', 'aborted'],
  ])('counts what fails by %s', async (fail, error) => {
    const { options } = await scripted('--requests 4 --warm-up 0');
    const result = await measureLoad({ ...options, extra: { fail } });
    if (fail === 'cut') expect(result.completed + result.failed).toBe(4);
    else expect(result).toMatchObject({ completed: 0, failed: 4, errors: { [error]: 4 } });
  });

  thorough('goes away, stalls and idles where it is asked to', async () => {
    const { server, options } = await scripted('--requests 30 --aborts 1 --idle 5 --stalled 1 --warm-up 0');
    const result = await measureLoad({ ...options, answerTokens: 2000, longest: 5000 });
    expect(result).toMatchObject({ aborted: 30, failed: 0, completed: 0, idleConnectionsClosed: 0 });
    await expect.poll(() => server.running).toBe(0);
    expect(server.left).toBeGreaterThanOrEqual(30);
  });

  it('sees which idle connections the server closes', async () => {
    const server = new ScriptedServer();
    servers.push(server);
    const idle = new IdleConnections();
    await idle.open({ baseUrl: await server.listen() }, 70);
    server.close();
    await expect.poll(() => idle.closed).toBe(70);
    idle.close();
  });

  it('says that a server is not there', async () => {
    const { server, options } = await scripted('--requests 1');
    server.close();
    await expect(measureLoad(options)).rejects.toThrow(/ECONNREFUSED/);
    const client = new LoadClient(options);
    expect(await client.send({ path: '/', body: '{}' })).toMatchObject({ status: 0, answerTokens: 0 });
    client.close();
  });

  it('reads the processor time of a process', () => {
    const before = processSeconds(process.pid);
    const until = process.cpuUsage().user + 60_000;
    while (process.cpuUsage().user < until);
    expect(processSeconds(process.pid)).toBeGreaterThan(before);
  });
});

const outcome = (sentMs: number, tokens: readonly number[], more: Partial<Outcome> = {}): Outcome => ({
  ...{ status: 200, sentMs, tokensMs: Float64Array.from(tokens), endMs: tokens.at(-1) ?? sentMs, promptTokens: 10 },
  ...{ answerTokens: tokens.length, isAborted: false },
  ...more,
});

describe('the report of a load', () => {
  it('interpolates percentiles linearly', () => {
    const { mean: middle, median, std, percentiles } = distributionOf(Float64Array.of(4, 1, 2, 3), [25, 99]);
    expect([middle, median, std]).toEqual([2.5, 2.5, Math.sqrt(1.25)]);
    expect(percentiles['p25']).toBe(1.75);
    expect(percentiles['p99']).toBeCloseTo(3.97, 12);
  });

  it('has the measures of the public benchmark', () => {
    const report = reportOf(
      [
        outcome(0, [100, 110, 140]),
        outcome(50, [90, 130]),
        outcome(60, [80]),
        outcome(70, [75], { isAborted: true }),
        outcome(70, [], { error: 'no' }),
      ],
      0.002,
      { percentiles: [50], goodput: { ttft: 50, tpot: 30 } },
    );
    expect(report).toMatchObject({ completed: 3, failed: 1, aborted: 1, errors: { no: 1 }, promptTokens: 30 });
    expect([report.answerTokens, report.seconds]).toEqual([6, 0.14]);
    expect([report.ttft.mean, report.tpot.mean, report.e2el.mean]).toEqual([160 / 3, 30, 80]);
    expect([report.itl.count, report.itl.median]).toEqual([3, 30]);
    // One token has no time after the first.
    expect(report.goodput).toBeCloseTo(1 / 0.14, 9);
    expect(report.steadyTokensPerSecond).toBeNull();
    expect(report.clientMicrosecondsPerToken).toBeCloseTo(2000 / 7, 9);
    const steady = reportOf([outcome(0, [10, 20, 30]), outcome(0, [15, 25, 35, 45])], 0, { percentiles: [99] });
    expect(steady.steadyTokensPerSecond).toBeCloseTo(3 / 0.015, 6);
  });
});
