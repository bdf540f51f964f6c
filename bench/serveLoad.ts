/** `npm run bench:serve`: load on an OpenAI-compatible server, measured as the public benchmark of serving does. */
import { readFileSync } from 'node:fs';
import { type Command, InvalidArgumentError } from 'commander';
import { UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { isRecord } from '../system/json.js';
import { benchCommand, decimal, list, oneOf, runProgram, whole } from './command.js';
import { IdleConnections, StalledReaders } from './load/beside.js';
import { LoadClient } from './load/client.js';
import { planLoad, type PlanOptions } from './load/plan.js';
import { runLoad } from './load/processes.js';
import { describeReport, type GoodputLimits, type LoadReport, reportOf } from './load/report.js';
import { SPREAD } from './requestLengths.js';

/** Processor time of a process and all its threads, in seconds. Linux counts in hundredths. */
export function processSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** The first model of the server. Throws UserError. */
async function firstModel(client: LoadClient, baseUrl: string): Promise<string> {
  const { data } = await client.get('/v1/models').catch((error: unknown) => {
    const said = error instanceof Error ? error.message : String(error);
    throw new UserError(`${baseUrl}: ${said}`, 'start the server, and name it: --base-url URL');
  });
  const first: unknown = Array.isArray(data) ? data[0] : undefined;
  if (isRecord(first) && typeof first['id'] === 'string') return first['id'];
  throw new UserError(`${baseUrl}/v1/models names no model`, 'name one: --model NAME');
}

/** Loads with other seeds have other prompts. */
export const firstPromptOf = (seed: number): number => ((seed - 1) * 1_000_003) % 2_000_000_000;

/** What `--json` prints beside the report. */
export interface LoadResult extends LoadReport {
  readonly model: string;
  readonly serverMicrosecondsPerToken: number | null;
  readonly idleConnectionsClosed: number | null;
}

/** Throws UserError. */
export async function measureLoad(options: ServeLoadOptions): Promise<LoadResult> {
  const { baseUrl, endpoint, vocabSize, temperature, maxConcurrency = Infinity, warmUp, processes, pid } = options;
  const requests = planLoad({
    ...options,
    ...defined({ longest: options.longest, rampFrom: options.rampFrom, ramp: options.ramp }),
  });
  const server = { baseUrl, ...defined({ apiKey: options.apiKey }) };
  const client = new LoadClient(server);
  const model = options.model ?? (await firstModel(client, baseUrl).finally(() => client.close()));
  const body = {
    ...{ endpoint, model, vocabSize, isStream: options.stream, ignoreEos: options.ignoreEos === true },
    ...{ firstPrompt: firstPromptOf(options.seed), extra: options.extra ?? {}, ...defined({ temperature }) },
  };
  const idle = new IdleConnections();
  const stalled = new StalledReaders(server);
  let serverSeconds = 0;
  try {
    await idle.open(server, options.idle);
    stalled.begin(body, options.stalled, options.longest ?? 2048);
    const { outcomes, clientSeconds } = await runLoad({
      ...{ client: server, body, requests, maxConcurrency, warmUp, processes },
      onBegin: () => {
        if (pid !== undefined) serverSeconds = processSeconds(pid);
      },
    });
    const report = reportOf(outcomes, clientSeconds, {
      percentiles: options.percentiles,
      ...defined({ goodput: options.goodput }),
    });
    const used = pid === undefined ? null : processSeconds(pid) - serverSeconds;
    return {
      ...{ model, ...report },
      serverMicrosecondsPerToken: used === null ? null : (1e6 * used) / report.answerTokens,
      idleConnectionsClosed: options.idle > 0 ? idle.closed : null,
    };
  } finally {
    stalled.close();
    idle.close();
  }
}

async function main(options: ServeLoadOptions): Promise<void> {
  const result = await measureLoad(options);
  if (options.json === true) {
    console.log(JSON.stringify({ settings: { ...options, apiKey: undefined }, ...result }, undefined, 2));
    return;
  }
  console.log(describeReport(result));
  const { serverMicrosecondsPerToken: server, idleConnectionsClosed: closed } = result;
  if (server !== null) console.log(`\nthe server's process took ${server.toFixed(1)} µs of processor time a new token`);
  if (closed !== null) console.log(`\nthe server closed ${closed} of ${options.idle} idle connections`);
}

export interface ServeLoadOptions extends PlanOptions {
  readonly baseUrl: string;
  readonly model?: string;
  readonly apiKey?: string;
  readonly endpoint: 'completions' | 'chat';
  readonly maxConcurrency?: number;
  readonly vocabSize: number;
  readonly ignoreEos?: boolean;
  readonly temperature?: number;
  readonly stream: boolean;
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly warmUp: number;
  readonly processes: number;
  readonly percentiles: readonly number[];
  readonly goodput?: GoodputLimits;
  readonly idle: number;
  readonly stalled: number;
  readonly pid?: number;
  readonly json?: boolean;
}

/** `inf`, `trace` or a number. */
const rate = (given: string): number | 'trace' =>
  given === 'trace' ? given : given === 'inf' ? Infinity : decimal(1e-3, 1e6)(given);

const shape = (given: string): number => (given === 'inf' ? Infinity : decimal(0.01, 1e6)(given));

const jsonObject = (given: string): Readonly<Record<string, unknown>> => {
  try {
    const value: unknown = JSON.parse(given);
    if (isRecord(value)) return value;
  } catch {
    // Said below.
  }
  throw new InvalidArgumentError('expected a JSON object');
};

/** `ttft:200,tpot:50`, in milliseconds. */
const limits = (given: string): GoodputLimits =>
  Object.fromEntries(
    given.split(',').map((each) => {
      const [name = '', value = ''] = each.split(':');
      if (!['ttft', 'tpot', 'e2el'].includes(name))
        throw new InvalidArgumentError('expected ttft:MS, tpot:MS or e2el:MS');
      return [name, decimal(0, 1e9)(value)];
    }),
  );

export const serveLoadCommand = (): Command =>
  benchCommand(
    'bench:serve',
    'Load on an OpenAI-compatible server, from processes of its own. Prints what the public benchmark of serving ' +
      'prints: time to the first token (TTFT), time a token after it (TPOT), gaps between tokens (ITL) and the whole ' +
      'time (E2EL), with mean, median, standard deviation and percentiles; tokens as the server counts ' +
      'them; and what ' +
      'the client itself took of the processors.',
  )
    .option('--base-url <url>', 'the server', 'http://127.0.0.1:8000')
    .option('--model <name>', 'as the server names it (default: its first)')
    .option('--api-key <key>', 'sent as a bearer token')
    .option('--endpoint <name>', 'completions or chat', oneOf(['completions', 'chat']), 'completions')
    .option('--requests <n>', 'how many', whole(1, 1_000_000), 1000)
    .option('--rate <n>', 'requests a second; inf: all at once; trace: at the times of the trace', rate, Infinity)
    .option(
      '--burstiness <x>',
      'shape of the gamma distribution of gaps: 1 is a Poisson process, inf equal gaps',
      shape,
      1,
    )
    .option('--ramp <how>', 'the rate grows: linear or exponential', oneOf(['linear', 'exponential']))
    .option('--ramp-from <n>', 'requests a second at the beginning of a ramp', decimal(1e-3, 1e6), 1)
    .option('--max-concurrency <n>', 'requests side by side at most; others wait in the client', whole(1, 1_000_000))
    .option(
      '--lengths <kind>',
      'public: lognormal, means 215 and 198; fixed; random: uniform; or the path of a trace (CSV, also .gz)',
      'public',
    )
    .option('--spread <x>', 'standard deviation of the logarithm of public lengths', decimal(0.1, 2), SPREAD)
    .option('--prompt-tokens <n>', 'of fixed lengths, and the middle of random ones', whole(1, 1 << 20), 1024)
    .option('--answer-tokens <n>', 'the same', whole(1, 1 << 20), 128)
    .option('--range-ratio <x>', 'random lengths: from the middle × (1 − x) to × (1 + x)', decimal(0, 1), 0)
    .option('--longest <n>', 'most tokens of a prompt and its answer; longer ones are cut', whole(2, 1 << 20))
    .option('--vocab-size <n>', 'prompts of completions are random tokens below this', whole(2, 1 << 24), 1000)
    .option('--ignore-eos', 'answers have all their tokens')
    .option('--temperature <x>', "default: the server's", decimal(0, 2))
    .option('--no-stream', 'each answer comes as a whole')
    .option('--extra <json>', 'further fields of each body', jsonObject)
    .option('--seed <n>', 'of lengths, arrivals, prompts and aborts', whole(1, 2 ** 31 - 2), 1)
    .option('--warm-up <n>', 'requests of each process that come first and are not counted', whole(0, 10_000), 1)
    .option('--processes <n>', 'of the client', whole(1, 64), 2)
    .option('--percentiles <list>', 'to print', list(decimal(0, 100)), [99])
    .option('--goodput <limits>', 'counts requests that keep these, in ms: ttft:200,tpot:50,e2el:9000', limits)
    .option('--idle <n>', 'idle connections that are held meanwhile', whole(0, 100_000), 0)
    .option('--stalled <n>', 'streams beside the load whose readers stop', whole(0, 10_000), 0)
    .option('--aborts <share>', 'share of requests whose client goes away at a random token', decimal(0, 1), 0)
    .option(
      '--pid <n>',
      'the process of the server on this machine, whose processor time is counted',
      whole(1, 1 << 22),
    )
    .option('--json', 'the result as JSON');

await runProgram(import.meta.url, serveLoadCommand, main);
