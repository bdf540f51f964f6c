/**
 * `npm run bench:speculation`: texts with drafts beside the same texts without, with random weights. Drafts are made of
 * the texts themselves: each is right with a probability of one's choice, as those of a trained drafter are.
 */
import type { Command } from 'commander';
import { median } from '../autotune/records.js';
import { stepFacts } from '../commands/engineModel.js';
import { deviceModelOf } from '../driver/devices/deviceModel.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { type Precision, QUANTIZED } from '../driver/precision.js';
import { UserError } from '../errors.js';
import { drafterOf } from '../draft/drafter.js';
import { MAX_DRAFTS } from '../draft/limits.js';
import type { DeviceModel, StepAnswer, StepMessage } from '../engine/device.js';
import { Engine } from '../engine/engine.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { Generated } from '../engine/request.js';
import type { ModelDrafts } from '../engine/speculation.js';
import { STEP } from '../ir/function.js';
import { hash32 } from '../ir/gumbel.js';
import type { CallArrays, CallResult } from '../runtime/call.js';
import { defined } from '../system/defined.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, decimal, list, oneOf, runProgram, whole } from './command.js';
import { openRandomModel } from './inputs.js';
import { promptOf } from './requestLengths.js';

interface Options {
  readonly model: string;
  readonly target: BenchTarget;
  readonly batch: readonly number[];
  readonly prompt: number;
  readonly new: number;
  readonly acceptance: readonly number[];
  readonly draftTokens: readonly (number | 'auto')[];
  readonly draftModel?: string;
  readonly temperature: number;
  readonly threads: number;
  readonly rounds: number;
  readonly quantize?: Precision;
}

/** A run of all sequences: what they wrote, and how fast while all of them did. */
interface Ran {
  readonly texts: readonly Generated[];
  readonly tokensPerSecond: number;
  /** Tokens that a sequence has of a step, and tokens that a step computes, while all go on. */
  readonly tokensOfStep: number;
  readonly rows: number;
  /** Milliseconds from step to step, and those of one on the device. */
  readonly milliseconds: number;
  readonly onDevice: number;
}

/** Whether the draft for place `at` of text `i` is right: a property of the place, so that all runs agree. */
const isRight = (i: number, at: number, acceptance: number): boolean =>
  (hash32(hash32(i, 7), at) >>> 8) / 2 ** 24 < acceptance;

/** What is proposed behind the first `done` tokens of a text: its own tokens, some of them replaced by others. */
function replay({ tokens }: Generated, i: number, done: number, acceptance: number, vocabSize: number): number[] {
  return tokens
    .slice(done, done + MAX_DRAFTS)
    .map(({ token }, at) => (isRight(i, done + at, acceptance) ? token : (token + 1) % vocabSize));
}

/** A step that was answered: when, of how many sequences, with how many new tokens; milliseconds on the device. */
interface Answered {
  readonly at: number;
  readonly busy: number;
  readonly sequences: number;
  readonly tokens: number;
}

/**
 * The function `draft` of a model, whose cost is its own and whose tokens are those of a replay. Sequences are known by
 * their prompts.
 */
class ReplayedDraft {
  private readonly numbers = new Map<number, number>();
  private readonly texts: readonly Generated[];
  private readonly prompts: ReadonlyMap<string, number>;
  private readonly acceptance: number;
  private readonly prompt: number;
  private readonly vocabSize: number;

  constructor(texts: readonly Generated[], { prompt }: Options, acceptance: number, vocabSize: number) {
    this.texts = texts;
    this.prompt = prompt;
    this.acceptance = acceptance;
    this.vocabSize = vocabSize;
    this.prompts = new Map(texts.map((_, i) => [promptOf(i, prompt, vocabSize).slice(0, 4).join(), i]));
  }

  /** Learns which sequence has which number. */
  see({ sequence, from, count, tokens, isDraft }: StepMessage): void {
    if (isDraft === true) return;
    let token = 0;
    sequence.forEach((number, part) => {
      if (from[part] === 0)
        this.numbers.set(number, this.prompts.get([...tokens.slice(token, token + 4)].join()) ?? -1);
      token += count[part]!;
    });
  }

  replace(message: StepMessage, answer: StepAnswer, ahead: 0 | 1): StepAnswer {
    const { sequence, from, count, row } = message;
    const nextToken = answer.nextToken.slice();
    let begin = 0;
    sequence.forEach((number, part) => {
      const i = this.numbers.get(number) ?? -1;
      row.forEach((token, r) => {
        if (token < begin || token >= begin + count[part]!) return;
        const at = from[part]! + token - begin + 1 + ahead - this.prompt;
        const right = this.texts[i]?.tokens[at]?.token;
        if (right === undefined) return;
        nextToken[r] = isRight(i, at, this.acceptance) ? right : (right + 1) % this.vocabSize;
      });
      begin += count[part]!;
    });
    return { ...answer, nextToken };
  }
}

interface Bench {
  readonly model: DeviceModel;
  /** Milliseconds that each step so far took on the device. */
  readonly busy: readonly number[];
  readonly vocabSize: number;
  readonly options: Options;
}

/** How a run has drafts: those of texts, with this acceptance, on the host or in place of the model's own. */
interface Replayed {
  readonly texts: readonly Generated[];
  readonly acceptance: number;
  readonly tokens: number | 'auto';
}

async function write({ model, busy, vocabSize, options }: Bench, batch: number, replayed?: Replayed): Promise<Ran> {
  const { prompt, new: maxNewTokens, temperature } = options;
  const { draft, ...plain } = model;
  const device =
    replayed === undefined || draft === undefined
      ? undefined
      : new ReplayedDraft(replayed.texts, options, replayed.acceptance, vocabSize);
  const steps: Answered[] = [];
  const step = async (message: StepMessage): Promise<StepAnswer> => {
    device?.see(message);
    const answer = await model.step(message);
    if (message.isDraft === true) return device?.replace(message, answer, draft!.ahead) ?? answer;
    const { sequence, tokens } = message;
    steps.push({ at: performance.now(), busy: busy.at(-1) ?? NaN, sequences: sequence.length, tokens: tokens.length });
    return answer;
  };
  const engine = new Engine();
  const drafts: ModelDrafts = { tokens: replayed?.tokens };
  engine.load('model', { vocabSize, drafts, replicas: [{ ...(device === undefined ? plain : model), step }] });
  const arrived: number[][] = Array.from({ length: batch }, () => []);
  const one = async (i: number): Promise<Generated> => {
    const text = device === undefined ? replayed?.texts[i] : undefined;
    const proposes = (known: readonly number[]): readonly number[] =>
      replay(text!, i, known.length - prompt, replayed!.acceptance, vocabSize);
    const handle = engine.submit({
      kind: 'generate',
      prompt: promptOf(i, prompt, vocabSize),
      maxNewTokens,
      sampling: temperature === 0 ? {} : { temperature, seed: 3 },
      ...(text === undefined ? {} : { drafts: drafterOf(proposes, 'replay') }),
    });
    for (let events = await handle.read(); events.length > 0; events = await handle.read())
      for (const { kind } of events) if (kind === 'token') arrived[i]!.push(performance.now());
    return (await handle.result())[0]!;
  };
  const texts = await Promise.all(arrived.map((_, i) => one(i)));
  await engine.close();
  const begin = Math.max(...arrived.map((times) => times[0]!));
  const end = Math.min(...arrived.map((times) => times.at(-1)!));
  const isWithin = (at: number): boolean => at > begin && at <= end;
  const tokens = arrived.reduce((sum, times) => sum + times.filter(isWithin).length, 0);
  const within = steps.filter(({ at }) => isWithin(at));
  if (within.length === 0)
    throw new UserError(
      `${batch} prompts of ${prompt} tokens take so many steps that the first texts end before the last begins`,
      `give --new more than ${maxNewTokens}, or a smaller --batch`,
    );
  const sumOf = (of: (each: Answered) => number): number => within.reduce((sum, each) => sum + of(each), 0);
  return {
    texts,
    tokensPerSecond: (1000 * tokens) / (end - begin),
    tokensOfStep: tokens / sumOf(({ sequences }) => sequences),
    rows: sumOf((each) => each.tokens) / within.length,
    milliseconds: (end - begin) / within.length,
    onDevice: median(within.map((each) => each.busy)),
  };
}

/** Texts that differ in a token or a log-probability. */
const differing = (a: readonly Generated[], b: readonly Generated[]): number =>
  a.filter(({ tokens, reason }, i) => JSON.stringify([tokens, reason]) !== JSON.stringify([b[i]?.tokens, b[i]?.reason]))
    .length;

async function main(options: Options): Promise<void> {
  const { model: name, target, batch: batches, prompt, new: added, rounds } = options;
  const cacheTokens = Math.max(...batches) * Math.ceil((prompt + added + MAX_DRAFTS) / PAGE_TOKENS + 1) * PAGE_TOKENS;
  const { model, checkpoint, executor } = await openRandomModel({
    model: name,
    target,
    threads: options.threads,
    cacheTokens,
    feeds: target === 'cuda',
    ...defined({ precision: options.quantize, draftModel: options.draftModel }),
    script: 'bench:speculation',
  });
  const { vocabSize } = checkpoint.config;
  const busy: number[] = [];
  const timed = async (name: string, called: Promise<CallResult>): Promise<CallResult> => {
    const result = await called;
    const spans = result.spans ?? [];
    if (name === STEP)
      busy.push(Math.max(...spans.map(({ end }) => end)) - Math.min(...spans.map(({ begin }) => begin)));
    return result;
  };
  const measured: DeviceExecutor = {
    ...executor,
    capacity: executor.capacity,
    call: (name, inputs, epoch) => timed(name, executor.call(name, inputs, epoch)),
    ...(executor.callInTurn === undefined
      ? {}
      : { callInTurn: (name: string, make: () => CallArrays) => timed(name, executor.callInTurn!(name, make)) }),
  };
  const device = deviceModelOf({ executor: measured, checkpoint }, cacheTokens, stepFacts(model));
  const bench = { model: device, busy, vocabSize, options };
  const drafter = device.draft === undefined ? 'free drafts' : `drafts of ${device.draft.name}`;
  console.log(`${name}, ${model.isa}, ${drafter}: prompts of ${prompt} tokens, ${added} new ones`);
  for (const batch of batches) {
    const warm = await write(bench, batch);
    const runs = options.acceptance.flatMap((acceptance) =>
      options.draftTokens.map((tokens) => ({ acceptance, tokens, ran: [] as Ran[] })),
    );
    // Kernels are compiled beside the work, and others take their calls meanwhile.
    for (const { acceptance, tokens } of runs) await write(bench, batch, { texts: warm.texts, acceptance, tokens });
    await executor.prepare?.();
    const plain: Ran[] = [];
    for (let round = 0; round < rounds; round++) {
      plain.push(await write(bench, batch));
      for (const { acceptance, tokens, ran } of runs)
        ran.push(await write(bench, batch, { texts: warm.texts, acceptance, tokens }));
    }
    const rateOf = (ran: readonly Ran[]): number => median(ran.map(({ tokensPerSecond }) => tokensPerSecond));
    const line = (what: string, ran: readonly Ran[]): void => {
      const wrong = ran.reduce((sum, { texts }) => sum + differing(texts, warm.texts), 0);
      console.log(
        `batch ${String(batch).padStart(4)}  ${what.padEnd(28)} ${rateOf(ran).toFixed(0).padStart(7)} tokens/s  ` +
          `${(rateOf(ran) / rateOf(plain)).toFixed(3)}×  ` +
          `${median(ran.map(({ tokensOfStep }) => tokensOfStep)).toFixed(2)} tokens a sequence and step, ` +
          `${median(ran.map(({ rows }) => rows)).toFixed(1)} rows, ` +
          `${median(ran.map(({ milliseconds }) => milliseconds)).toFixed(2)} ms a step ` +
          `(${median(ran.map(({ onDevice }) => onDevice)).toFixed(2)} on the device); ${wrong} texts differ`,
      );
    };
    line('no drafts', plain);
    for (const { acceptance, tokens, ran } of runs) line(`acceptance ${acceptance}, up to ${tokens}`, ran);
  }
  await executor.close();
}

const draftTokens = (text: string): number | 'auto' => (text === 'auto' ? 'auto' : whole(1, MAX_DRAFTS)(text));

export const speculationCommand = (): Command =>
  benchCommand(
    'bench:speculation',
    'Texts with drafts beside the same texts without, with random weights, sequences of equal length side by side. ' +
      'Drafts are the tokens of the text, some of them replaced by wrong ones, so that their acceptance is what ' +
      '--acceptance says. They cost nothing, or with --draft-model what that model costs. Prints tokens per second ' +
      'while all sequences write, their ratio, and whether a text differs. Runs take turns, --rounds times.',
  )
    .option('--model <path>', 'folder of a config.json, or one below bench/models', 'llama-110m')
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cpu')
    .option('--batch <list>', 'sequences side by side', list(whole(1, 1024)), [1, 8, 64])
    .option('--prompt <n>', 'tokens of each prompt', whole(4, 65_536), 256)
    .option('--new <n>', 'tokens to generate after each', whole(2, 65_536), 128)
    .option('--acceptance <list>', 'probability that a draft is right', list(decimal(0, 1)), [0.7])
    .option('--draft-tokens <list>', 'most drafts of a sequence in a step: auto, or 1 to 15', list(draftTokens), [
      'auto',
    ])
    .option('--draft-model <path>', 'folder of the config.json of a draft model or head, whose drafts are replaced')
    .option('--temperature <t>', 'of all texts', decimal(0, 10), 0)
    .option('--threads <n>', 'threads that compute on a CPU', whole(1, 1024), 2)
    .option('--rounds <n>', 'runs of each kind', whole(1, 100), 2)
    .option('--quantize <format>', 'as of generate', oneOf(QUANTIZED));

await runProgram(import.meta.url, speculationCommand, main);
