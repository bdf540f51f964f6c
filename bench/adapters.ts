/**
 * `npm run bench:adapters`: texts with adapters beside the same model without, with random weights. What adapters hold
 * is made up too, so no files are read: slots are written once, and requests name them.
 */
import type { Command } from 'commander';
import { median } from '../autotune/records.js';
import { stepFacts } from '../commands/engineModel.js';
import { deviceModelOf } from '../driver/devices/deviceModel.js';
import type { DeviceExecutor } from '../driver/executor.js';
import type { AdapterRef, DeviceModel } from '../engine/device.js';
import { Engine } from '../engine/engine.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { Generated } from '../engine/request.js';
import { STEP } from '../ir/function.js';
import { hash32 } from '../ir/gumbel.js';
import { rowMaps, slotBytes } from '../ir/packing.js';
import type { Plan } from '../ir/plan.js';
import { FORMATS } from '../ir/storage.js';
import type { CallArrays, CallResult } from '../runtime/call.js';
import { defined } from '../system/defined.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, list, oneOf, runProgram, whole } from './command.js';
import { openRandomModel } from './inputs.js';
import { promptOf } from './requestLengths.js';

interface Options {
  readonly model: string;
  readonly target: BenchTarget;
  readonly batch: readonly number[];
  readonly adapters: readonly number[];
  readonly slots: number;
  readonly rank: number;
  readonly prompt: number;
  readonly new: number;
  readonly threads: number;
  readonly rounds: number;
}

interface Ran {
  readonly texts: readonly Generated[];
  /** Milliseconds from step to step while all texts write, and those of a step on the device. */
  readonly milliseconds: number;
  readonly onDevice: number;
  /** Milliseconds of all prompts together. */
  readonly prompts: number;
}

interface Opened {
  readonly device: DeviceModel;
  readonly executor: DeviceExecutor;
  readonly vocabSize: number;
  /** Milliseconds that each step so far took on the device. */
  readonly busy: readonly number[];
}

async function open(options: Options, cacheTokens: number, hasSlots: boolean): Promise<Opened> {
  const { model: name, target, threads, slots, rank } = options;
  const { model, checkpoint, executor } = await openRandomModel({
    ...{ model: name, target, threads, cacheTokens, feeds: target === 'cuda', script: 'bench:adapters' },
    ...defined({ adapters: hasSlots ? { slots, rank } : undefined }),
  });
  if (hasSlots) await fillSlots(model.plan, executor);
  const busy: number[] = [];
  const timed = async (called: string, result: Promise<CallResult>): Promise<CallResult> => {
    const { spans = [], ...rest } = await result;
    if (called === STEP)
      busy.push(Math.max(...spans.map(({ end }) => end)) - Math.min(...spans.map(({ begin }) => begin)));
    return { ...rest, spans };
  };
  const measured: DeviceExecutor = {
    ...executor,
    capacity: executor.capacity,
    ...defined({ adapters: hasSlots ? { slots, rank } : undefined }),
    call: (called, inputs, epoch) => timed(called, executor.call(called, inputs, epoch)),
    ...(executor.callInTurn === undefined
      ? {}
      : { callInTurn: (called: string, make: () => CallArrays) => timed(called, executor.callInTurn!(called, make)) }),
  };
  const device = deviceModelOf({ executor: measured, checkpoint }, cacheTokens, stepFacts(model));
  return {
    device: hasSlots ? { ...device, adapters: { count: slots, rank, load: () => Promise.resolve() } } : device,
    ...{ executor, vocabSize: checkpoint.config.vocabSize, busy },
  };
}

/** Small numbers, another beginning of them for each slot. */
async function fillSlots({ weights }: Pick<Plan<unknown>, 'weights'>, executor: DeviceExecutor): Promise<void> {
  const columns = rowMaps();
  const pool = Float64Array.from({ length: 1 << 20 }, (_, i) => ((hash32(i, 11) >>> 8) / 2 ** 24 - 0.5) / 64);
  for (const weight of weights) {
    if (weight.slots === undefined) continue;
    const bytes = slotBytes(weight, columns(weight).length);
    const encoded = FORMATS[weight.format].encode(weight.slots.holds === 'scale' ? pool.map(() => 2) : pool);
    const source = new Uint8Array(encoded.buffer, encoded.byteOffset, encoded.byteLength);
    for (let slot = 0; slot < weight.slots.count; slot++) {
      const data = new Uint8Array(bytes);
      for (let at = 0, from = (slot * 4096) % (source.length / 2); at < bytes;) {
        const length = Math.min(bytes - at, source.length - from);
        data.set(source.subarray(from, from + length), at);
        at += length;
        from = 0;
      }
      await executor.writeSlots!([{ weight: weight.name, slot, data }]);
    }
  }
}

const adapterOf = (i: number): AdapterRef => ({ hash: i.toString(16).padStart(64, '0'), path: `/made-up/${i}` });

/** `adapters`: how many different ones the texts have; 0: none. */
async function write(
  { device, vocabSize, busy }: Opened,
  options: Options,
  batch: number,
  adapters: number,
): Promise<Ran> {
  const { prompt, new: maxNewTokens } = options;
  const steps: { at: number; busy: number }[] = [];
  const step: DeviceModel['step'] = async (message) => {
    const answer = await device.step(message);
    steps.push({ at: performance.now(), busy: busy.at(-1) ?? NaN });
    return answer;
  };
  const engine = new Engine();
  engine.load('model', { vocabSize, replicas: [{ ...device, step }] });
  const began = performance.now();
  const arrived: number[][] = Array.from({ length: batch }, () => []);
  const one = async (i: number): Promise<Generated> => {
    const handle = engine.submit({
      ...{ kind: 'generate', prompt: promptOf(i, prompt, vocabSize), maxNewTokens },
      ...defined({ adapter: adapters === 0 ? undefined : adapterOf(i % adapters) }),
    });
    for (let events = await handle.read(); events.length > 0; events = await handle.read())
      for (const { kind } of events) if (kind === 'token') arrived[i]!.push(performance.now());
    return (await handle.result())[0]!;
  };
  const texts = await Promise.all(arrived.map((_, i) => one(i)));
  await engine.close();
  const begin = Math.max(...arrived.map((times) => times[0]!));
  const end = Math.min(...arrived.map((times) => times.at(-1)!));
  const within = steps.filter(({ at }) => at > begin && at <= end);
  return {
    texts,
    milliseconds: (end - begin) / within.length,
    onDevice: median(within.map((each) => each.busy)),
    prompts: begin - began,
  };
}

const textOf = ({ tokens, reason }: Generated): string => JSON.stringify([tokens, reason]);

async function main(options: Options): Promise<void> {
  const { batch: batches, rounds, prompt, new: added } = options;
  const cacheTokens = Math.max(...batches) * Math.ceil((prompt + added) / PAGE_TOKENS + 1) * PAGE_TOKENS;
  const plain = await open(options, cacheTokens, false);
  const adapted = await open(options, cacheTokens, true);
  console.log(
    `${options.model}: prompts of ${prompt} tokens, ${added} new ones; ${options.slots} slots of rank ${options.rank}`,
  );
  for (const batch of batches) {
    const kinds = [
      { what: 'no slots', opened: plain, adapters: 0 },
      ...options.adapters
        .filter((adapters) => adapters <= batch)
        .map((adapters) => ({ what: `${adapters} adapters`, opened: adapted, adapters })),
    ].map((kind) => ({ ...kind, ran: [] as Ran[] }));
    // The first runs compile kernels, which others take the calls of meanwhile.
    const first = new Map<number, readonly string[]>();
    for (const { opened, adapters } of kinds) {
      first.set(adapters, first.get(adapters) ?? (await write(opened, options, batch, adapters)).texts.map(textOf));
      await write(opened, options, batch, adapters);
      await opened.executor.prepare?.();
    }
    for (let round = 0; round < rounds; round++)
      for (const { opened, adapters, ran } of kinds) ran.push(await write(opened, options, batch, adapters));
    const medianOf = (ran: readonly Ran[], of: (each: Ran) => number): number => median(ran.map(of));
    const base = kinds[0]!.ran;
    for (const { what, adapters, ran } of kinds) {
      const wrong = ran.flatMap(({ texts }) => texts.filter((text, i) => textOf(text) !== first.get(adapters)![i]));
      const column = (of: (each: Ran) => number): string =>
        `${medianOf(ran, of).toFixed(3).padStart(9)} (${(medianOf(ran, of) / medianOf(base, of)).toFixed(4)}×)`;
      console.log(
        `batch ${String(batch).padStart(3)}  ${what.padEnd(12)} ` +
          `ms a step ${column((each) => each.milliseconds)}, on the device ${column((each) => each.onDevice)}, ` +
          `ms of all prompts ${column((each) => each.prompts)}; ${wrong.length} texts differ`,
      );
    }
  }
  await plain.executor.close();
  await adapted.executor.close();
}

export const adaptersCommand = (): Command =>
  benchCommand(
    'bench:adapters',
    'Texts with adapters beside the same model without slots for any, of random weights and adapters. Prints ' +
      'medians of a step while all texts write, and of all prompts together, as ratios to the model without; and how ' +
      'many texts differ from the first run, which for texts without adapter is that of the model without slots.',
  )
    .option('--model <path>', 'folder of a config.json, or one below bench/models', 'llama-110m')
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cpu')
    .option('--batch <list>', 'sequences side by side', list(whole(1, 1024)), [1, 8, 64])
    .option('--adapters <list>', 'different adapters among them; 0: none', list(whole(0, 1024)), [0, 1, 8, 64])
    .option('--slots <n>', 'adapters that the device holds', whole(1, 1024), 64)
    .option('--rank <n>', 'rank of a slot', whole(1, 512), 16)
    .option('--prompt <n>', 'tokens of each prompt', whole(4, 65_536), 256)
    .option('--new <n>', 'tokens to generate after each', whole(2, 65_536), 128)
    .option('--threads <n>', 'threads that compute on a CPU', whole(1, 1024), 2)
    .option('--rounds <n>', 'runs of each kind', whole(1, 100), 3);

await runProgram(import.meta.url, adaptersCommand, main);
