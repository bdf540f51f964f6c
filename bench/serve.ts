/** All requests of a service at once: their rate, and which calls the time goes to. */
import { Engine } from '../engine/engine.js';
import type { SamplingOptions } from '../engine/options.js';
import type { DeviceModel } from '../engine/device.js';
import { promptOf, requestLengths } from './requestLengths.js';

/** A call, as the report groups calls. */
interface ServedCall {
  readonly tokens: number;
  readonly rows: number;
  readonly keys: number;
  readonly milliseconds: number;
}

/** Largest number of tokens of each group of calls that only continue sequences. */
const GROUPS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, Infinity] as const;

/** What a call must do at least, in terms of its size. */
export interface ServiceWork {
  readonly weightBytes: number;
  /** Keys and values of a token. */
  readonly keyBytes: number;
  readonly flopsPerToken: number;
  /** Of a row whose next token is asked for, besides. */
  readonly flopsPerRow: number;
}

/** Rates that contractions and kernels that only read reached on an H100 (docs/performance.md). */
const ROOFLINE = { flopsPerSecond: 7e14, bytesPerSecond: 3.08e12 } as const;

/** Seconds of a call whose arithmetic and reading overlap, at those rates. */
const minSeconds = ({ tokens, rows, keys }: ServedCall, work: ServiceWork): number =>
  Math.max(
    (tokens * work.flopsPerToken + rows * work.flopsPerRow) / ROOFLINE.flopsPerSecond,
    (work.weightBytes + keys * work.keyBytes) / ROOFLINE.bytesPerSecond,
  );

const sum = (values: readonly number[]): number => values.reduce((all, each) => all + each, 0);

export interface Service {
  readonly model: DeviceModel;
  /** Milliseconds on the device of each call that has ended. */
  readonly busy: readonly number[];
  readonly vocabSize: number;
  readonly work: ServiceWork;
  /** Standard deviation of the logarithm of a length. */
  readonly spread: number;
  /** How tokens are chosen. */
  readonly sampling: SamplingOptions;
}

/** Serves `count` requests, as many side by side as there are pages for, and reports on it. */
export async function serve(
  { model, busy, vocabSize, work, spread, sampling }: Service,
  count: number,
): Promise<string> {
  const calls: ServedCall[] = [];
  let ended = performance.now();
  const generator = Engine.of({
    ...model,
    step: async (message) => {
      const outputs = await model.step(message);
      const now = performance.now();
      calls.push({
        tokens: message.tokens.length,
        rows: message.row.length,
        keys: sum([...message.from, ...message.count]),
        milliseconds: now - ended,
      });
      ended = now;
      return outputs;
    },
  });
  const lengths = requestLengths(count, spread);
  const [before, started] = [busy.length, performance.now()];
  await Promise.all(
    lengths.map(({ prompt, answer }, i) =>
      generator.generate({ prompt: promptOf(i, prompt, vocabSize), maxNewTokens: answer, sampling }),
    ),
  );
  const seconds = (performance.now() - started) / 1000;
  const onDevice = sum(busy.slice(before)) / 1000;
  const [prompts, answers] = [sum(lengths.map(({ prompt }) => prompt)), sum(lengths.map(({ answer }) => answer))];
  const floor = sum(calls.map((call) => minSeconds(call, work)));
  const rate = (of: number): string => `${(answers / of).toFixed(0)} new tokens/s`;
  return (
    `${count} requests, ${prompts} tokens of prompts and ${answers} new ones: ${seconds.toFixed(2)} s ` +
    `(${onDevice.toFixed(2)} on the device), ${rate(seconds)} in ${calls.length} calls\n` +
    `at the roofline of an H100 these calls take ${floor.toFixed(2)} s, ${rate(floor)}: ` +
    `a share of ${(floor / seconds).toFixed(3)}\n` +
    table(calls, busy.slice(before))
  );
}

/** One line for each group of calls. */
function table(calls: readonly ServedCall[], busy: readonly number[]): string {
  const measured = calls.map((call, i) => ({ ...call, onDevice: busy[i] ?? NaN }));
  const groups = [
    ...GROUPS.map((max, i) => ({
      name: `up to ${max} sequences`,
      calls: measured.filter(({ tokens, rows }) => tokens === rows && tokens <= max && tokens > (GROUPS[i - 1] ?? 0)),
    })),
    { name: 'with prompts', calls: measured.filter(({ tokens, rows }) => tokens !== rows) },
  ];
  return groups
    .filter((group) => group.calls.length > 0)
    .map(({ name, calls: of }) => {
      const mean = (value: (call: (typeof of)[number]) => number): number => sum(of.map(value)) / of.length;
      return (
        `  ${name.padEnd(24)} ${String(of.length).padStart(5)} calls of ${mean(({ tokens }) => tokens).toFixed(0)} ` +
        `tokens over ${mean(({ keys }) => keys).toFixed(0)} keys: ` +
        `${(sum(of.map(({ milliseconds }) => milliseconds)) / 1000).toFixed(2)} s, ` +
        `${mean(({ milliseconds }) => milliseconds).toFixed(2)} ms a call, ` +
        `${mean(({ onDevice }) => onDevice).toFixed(2)} on the device`
      );
    })
    .join('\n');
}
