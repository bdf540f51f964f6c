/** Steps of a generator: what is written step by step is what is drawn at once, and everything that ends a step. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { ChatTemplate } from '../../../models/chat/template.js';
import { askOf } from '../../../search/asking.js';
import { Prompts } from '../../../search/models/prompts.js';
import { StepStops } from '../../../search/models/stepStops.js';
import { searchTexts } from '../../../search/models/texts.js';
import { EngineWriter, type WriterModel, type WriterOptions } from '../../../search/models/writer.js';
import { extend, rootOf, type Step, stepsOf } from '../../../search/path.js';
import { PathFailed } from '../../../search/ports.js';
import { engineOf, NEVER, PROBLEM, recorded, stepAsk, TOKENIZER, VOCAB, writerModel } from './madeUpEngine.js';
import { isThorough } from '../../support/thorough.js';

const DETOKENIZER = TOKENIZER.detokenizer();
const textOf = (tokens: readonly number[]): string => DETOKENIZER.decode(tokens);

async function written(writer: EngineWriter, most: number, seed?: number): Promise<readonly Step[]> {
  let path = rootOf(PROBLEM);
  for (let i = 0; i < most; i++) {
    const step = await writer.write(stepAsk(path, { seed }));
    path = extend(path, step);
    if (step.end !== 'step') break;
  }
  return stepsOf(path);
}

const writerOf = (options: WriterOptions = {}, more: Partial<WriterModel> = {}): EngineWriter =>
  new EngineWriter(writerModel(engineOf(), more), { system: 'none', ...options });
const whole = (writer: EngineWriter): Promise<Step> => writer.write(stepAsk(rootOf(PROBLEM), { toEnd: true }));

describe('steps', () => {
  const counts = { within: 0, across: 0 };

  it.each([1, 3, 16, 17])('of %d tokens are the most likely text', async (stepTokens) => {
    const steps = await written(writerOf({ stepTokens, ignoreEos: true }), 12);
    const all = await whole(writerOf({ ignoreEos: true, maxStepTokens: 12 * stepTokens }));
    expect(steps.map(({ tokens }) => tokens.length)).toEqual(Array(12).fill(stepTokens));
    expect(steps.flatMap(({ tokens }) => tokens)).toEqual(all.tokens);
    expect(all.end).toBe('length');
    // Bytes that are no whole character at the end are shown by nobody.
    expect(textOf(all.tokens).replace(/\ufffd+$/, '')).toBe(
      steps
        .map(({ text }) => text)
        .join('')
        .replace(/\ufffd+$/, ''),
    );
  });

  it.each(['e', 'th', ' the', 'ee', 'es', 'd '])('end at %j, in one token or over several', async (stepStop) => {
    const steps = await written(writerOf({ stepStop, ignoreEos: true, maxStepTokens: 300 }), 5);
    const all = await whole(writerOf({ ignoreEos: true, maxStepTokens: steps.flatMap(({ tokens }) => tokens).length }));
    expect(steps.flatMap(({ tokens }) => tokens)).toEqual(all.tokens);
    for (const { text, tokens, end } of steps) {
      if (end !== 'step') continue;
      const last = textOf(tokens.slice(0, -1));
      expect(text.includes(stepStop)).toBe(true);
      // The last token has completed it: the text before has none.
      expect(last.includes(stepStop)).toBe(false);
    }
    const isWithin = ({ tokens }: Step): boolean =>
      textOf([66, tokens.at(-1)!])
        .slice(1)
        .includes(stepStop);
    counts.within += steps.filter((step) => step.end === 'step' && isWithin(step)).length;
    counts.across += steps.filter((step) => step.end === 'step' && !isWithin(step)).length;
  });

  it('ended both in a token and over several', () => {
    expect(counts.within).toBeGreaterThan(0);
    expect(counts.across).toBeGreaterThan(0);
  });

  it('are drawn with their seed, and depend on nothing else', async () => {
    const writer = writerOf({ stepTokens: 8, temperature: 1 });
    const seeds = Array.from({ length: 20 }, (_, i) => 2 ** 52 + i);
    const alone: Step[] = [];
    for (const seed of seeds) alone.push(await writer.write(stepAsk(rootOf(PROBLEM), { seed })));
    const other = writerOf({ stepTokens: 8, temperature: 1 });
    const together = await Promise.all(
      seeds.toReversed().map((seed, place) =>
        other.write(
          stepAsk(rootOf({ ...PROBLEM, id: String(place) }), {
            seed,
            candidate: place,
            isSpeculative: place % 2 === 0,
          }),
        ),
      ),
    );
    expect(together.toReversed()).toEqual(alone);
    expect(new Set(alone.map(({ tokens }) => String(tokens))).size).toBe(seeds.length);
    // Without a temperature nothing is drawn.
    const greedy = writerOf({ stepTokens: 8, temperature: 0 });
    expect(await greedy.write(stepAsk(rootOf(PROBLEM), { seed: 5 }))).toEqual(
      await greedy.write(stepAsk(rootOf(PROBLEM))),
    );
  });

  it('continue the tokens that were drawn, and greedy ones ahead', async () => {
    const { ask, asked } = recorded(askOf(engineOf()));
    const writer = writerOf({ stepTokens: 5 }, { ask });
    const step = await writer.write(stepAsk(rootOf(PROBLEM)));
    const path = extend(rootOf(PROBLEM), step);
    const ahead = await writer.write(stepAsk(path));
    await writer.write(stepAsk(path, { ahead: [ahead] }));
    const prompts = asked.map((each) => (each.kind === 'generate' ? each.prompt : []));
    const problem = [1, ...(await TOKENIZER.encodeWritten(`${PROBLEM.problem}\n\n`))];
    expect(prompts).toEqual([problem, [...problem, ...step.tokens], [...problem, ...step.tokens, ...ahead.tokens]]);
    // A token that would end the text is no part of what goes on.
    const ended = extend(rootOf(PROBLEM), { text: 'So.', tokens: [50, 51, 9], end: 'other-eos' });
    await writer.write(stepAsk(ended));
    expect(asked.at(-1)).toMatchObject({ prompt: [...problem, 50, 51] });
  });
});

describe('a step ends', () => {
  /** Tokens of the most likely text. */
  let likely: readonly number[];
  beforeAll(async () => {
    likely = (await whole(writerOf({ ignoreEos: true, maxStepTokens: 12 }))).tokens;
  });

  it("at tokens that end texts: the tokenizer's own, and others", async () => {
    const eosTokens = new Set([likely[6]!]);
    const own = await whole(writerOf({}, { eosTokens, ownEos: likely[6] }));
    expect(own).toMatchObject({ tokens: likely.slice(0, 7), end: 'eos', text: textOf(likely.slice(0, 6)) });
    expect((await whole(writerOf({}, { eosTokens, ownEos: 2 }))).end).toBe('other-eos');
    expect((await whole(writerOf({}, { eosTokens, ownEos: undefined }))).end).toBe('eos');
    const step = await writerOf({ stepTokens: 9 }, { eosTokens, ownEos: 2 }).write(stepAsk(rootOf(PROBLEM)));
    expect([step.end, step.tokens.length]).toEqual(['other-eos', 7]);
    const on = await writerOf({ stepTokens: 9, ignoreEos: true }, { eosTokens }).write(stepAsk(rootOf(PROBLEM)));
    expect([on.end, on.tokens.length]).toEqual(['step', 9]);
  });

  it('at its most tokens, where no separator comes', async () => {
    const step = await writerOf({ stepStop: 'no such text', maxStepTokens: 30 }).write(stepAsk(rootOf(PROBLEM)));
    expect([step.end, step.tokens.length]).toEqual(['length', 30]);
  });

  it('with the context, and nothing follows that', async () => {
    const model = writerModel(engineOf({ maxLength: 40 }));
    const writer = new EngineWriter(model, { system: 'none', stepTokens: 20, ignoreEos: true });
    const steps = await written(writer, 9);
    expect(steps.at(-1)!.end).toBe('context');
    let path = rootOf(PROBLEM);
    for (const step of steps) path = extend(path, step);
    expect(await writer.write(stepAsk(path))).toEqual({ text: '', tokens: [], end: 'context' });
  });

  it('with the path, which others outlive: a value is not finite, a problem is too long', async () => {
    const engine = engineOf({ failsOneIn: 20 });
    const writer = new EngineWriter(writerModel(engine), { system: 'none', stepTokens: 10, ignoreEos: true });
    const settled = await Promise.allSettled(
      Array.from({ length: 12 }, (_, seed) => writer.write(stepAsk(rootOf(PROBLEM), { seed }))),
    );
    const failed = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason as Error] : []));
    expect(failed.length).toBeGreaterThan(0);
    expect(failed.length).toBeLessThan(12);
    for (const error of failed) expect(error).toBeInstanceOf(PathFailed);
    const long = { id: '1', problem: 'word '.repeat(3000) };
    await expect(writer.write(stepAsk(rootOf(long)))).rejects.toThrow(
      /^the problem has [\d,]+ tokens with its prompt, and the model's context 2,000$/,
    );
    await expect(writer.write(stepAsk(rootOf(long)))).rejects.toBeInstanceOf(PathFailed);
    await engine.close();
  });

  it('with its signal, for the reason of that', async () => {
    const engine = engineOf();
    const writer = new EngineWriter(writerModel(engine), { system: 'none', maxStepTokens: 1500, ignoreEos: true });
    const controller = new AbortController();
    const step = writer.write(stepAsk(rootOf(PROBLEM), { toEnd: true, signal: controller.signal }));
    setTimeout(() => controller.abort(new Error('not needed')), 5);
    await expect(step).rejects.toThrow('not needed');
    await expect.poll(() => engine.statsOf().running + engine.statsOf().waiting).toBe(0);
  });

  it('with the engine', async () => {
    const engine = engineOf();
    const writer = new EngineWriter(writerModel(engine), { system: 'none', maxStepTokens: 1500, ignoreEos: true });
    const step = writer.write(stepAsk(rootOf(PROBLEM), { toEnd: true }));
    setTimeout(() => void engine.close(), 5);
    const error: unknown = await step.catch((each: unknown) => each);
    expect(error).toBeInstanceOf(Error);
    expect(error).not.toBeInstanceOf(PathFailed);
  });
});

describe('separators', () => {
  const random = (seed: number) => () => (seed = (seed * 48271) % 2147483647) / 2147483647;

  it('are found where texts of tokens have them', () => {
    const next = random(7);
    for (const separator of ['\n\n', 'aa', 'abab', ' the ', 'é', '\n \n']) {
      const stops = new StepStops(separator, DETOKENIZER, VOCAB);
      for (const token of stops.tokens) expect(textOf([66, token])).toContain(separator);
      const pool = Array.from({ length: VOCAB }, (_, token) => token).filter((token) =>
        [...separator].some((letter) => Buffer.from(DETOKENIZER.bytesOf(token)).toString().includes(letter)),
      );
      for (let round = 0; round < 200; round++) {
        let state = 0;
        const tokens: number[] = [];
        while (tokens.length < 12 && state !== stops.whole) {
          tokens.push(pool[Math.floor(next() * pool.length)]!);
          state = stops.next(state, tokens.at(-1)!);
        }
        const bytes = Buffer.concat(tokens.map((token) => DETOKENIZER.bytesOf(token)));
        expect(state === stops.whole).toBe(bytes.includes(separator));
      }
    }
  });
});

const CHATS = join(import.meta.dirname, '..', '..', '..', '..', 'shared', 'golden', 'search', 'chat.jsonl');

/** As search-and-learn's own: turns as they are, but for the system's, which is stripped. */
const SAL = `{% set system = messages[0].content | trim %}<|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: {{ date_string }}

{{ system }}<|eot_id|>{% for m in messages[1:] %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}`;

describe('prompts', () => {
  const letters = (text: string): Promise<number[]> =>
    Promise.resolve(Array.from(text, (each) => each.codePointAt(0)!));
  const promptOf = async (template: string | undefined, problem: string, system?: string): Promise<string> => {
    const own =
      template === undefined ? undefined : new ChatTemplate({ text: template, special: {}, where: 'template' });
    const texts = searchTexts({ encodeWritten: letters }, own);
    const prompts = new Prompts(texts, {
      bos: undefined,
      maxLength: 100_000,
      ...(system === undefined ? {} : { system }),
    });
    return String.fromCodePoint(...(await prompts.of({ id: '0', problem })));
  };

  it.skipIf(!existsSync(CHATS))('are those of search-and-learn, and steps stand behind them', async () => {
    const lines = readFileSync(CHATS, 'utf8').trim().split('\n');
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines.slice(0, isThorough ? undefined : 3)) {
      const { problem, text, prompt } = JSON.parse(line) as Readonly<Record<'problem' | 'text' | 'prompt', string>>;
      expect((await promptOf(SAL, problem)) + text).toBe(prompt);
    }
  });

  it('have no system turn where none is wanted, and one text where there is no template', async () => {
    const plain = '{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]';
    expect(await promptOf(plain, 'Q', 'none')).toBe('[user]Q[assistant]');
    expect(await promptOf(plain, 'Q', 'Be short.')).toBe('[system]Be short.[user]Q[assistant]');
    expect(await promptOf(undefined, 'Q', 'Be short.')).toBe('Be short.\n\nQ\n\n');
    expect(await promptOf(undefined, 'Q', 'none')).toBe('Q\n\n');
  });

  it('give a template without system turns the text with the problem', async () => {
    const refusal = "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}";
    const strict = `{% for m in messages %}${refusal}[{{ m.role }}]{{ m.content }}{% endfor %}`;
    expect(await promptOf(strict, 'Q', 'Be short.')).toBe('[user]Be short.\n\nQ');
    await expect(promptOf("{{ raise_exception('never') }}", 'Q')).rejects.toBeInstanceOf(PathFailed);
  });
});

describe('requests', () => {
  it('say what the search knows of their work', async () => {
    const { ask, asked } = recorded(askOf(engineOf()));
    const writer = writerOf({ stepTokens: 2, topP: 0.9, temperature: 0.7 }, { ask });
    const path = rootOf({ ...PROBLEM, lane: 3 });
    await writer.write(stepAsk(path, { seed: 9 }));
    await writer.write(stepAsk(path, { seed: 9, isSpeculative: true }));
    expect(asked[0]).toMatchObject({ model: 'model', affinity: 3, sampling: { temperature: 0.7, topP: 0.9, seed: 9 } });
    expect(asked[1]!.priority!).toBeGreaterThan(asked[0]!.priority!);
    expect(asked[0]!.signal).toBe(NEVER);
  });
});
