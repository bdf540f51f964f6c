/** Pipelines: how calls of different sequences fill the stages, on a simulated clock. The token after n is n + 1. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import { type DeviceModel, StateLost } from '../../engine/device.js';
import { counted, madeUp } from '../support/deviceModel.js';

/** What a call of `tokens` takes on a stage: it reads the weights, then computes. */
const costOf = (tokens: number): number => 10 + tokens / 50;

interface PipelineOptions {
  readonly stages: number;
  readonly groups?: number;
  readonly cacheTokens?: number;
  /** Tokens after which nothing is finite, and calls that find the devices gone. */
  readonly fails?: ReadonlySet<number>;
  readonly lostAt?: ReadonlySet<number>;
}

/** Stages that compute one call at a time, in order. Answers come in the order of their time. */
function pipeline({ stages, groups = stages, cacheTokens = 1 << 14, fails, lostAt }: PipelineOptions) {
  const free = new Array<number>(stages).fill(0);
  let [now, busy, calls, running, most] = [0, 0, 0, 0, 0];
  let last: Promise<unknown> = Promise.resolve();
  const answer = ({ tokens, row }: StepInputs) => {
    const rows = [...row].flatMap((at, i) => (fails?.has(tokens[at]!) === true ? [i] : []));
    if (rows.length > 0) throw Object.assign(new Error('not finite'), { rows });
    return counted({ tokens, row });
  };
  const model: DeviceModel = madeUp({
    limits: { tokens: 4096, keys: 1 << 16, besideTokens: 2048, groups },
    cacheTokens,
    maxLength: 4096,
    recovered: () => Promise.resolve(),
    call: (inputs) => {
      const call = calls++;
      most = Math.max(most, ++running);
      const cost = costOf(inputs.tokens.length);
      let at = now;
      for (let stage = 0; stage < stages; stage++) at = free[stage] = Math.max(at, free[stage]!) + cost;
      busy += stages * cost;
      const done = last.then(async () => {
        await new Promise((resolve) => setImmediate(resolve));
        now = Math.max(now, at);
        running--;
        if (lostAt?.has(call) === true) throw new StateLost('gone');
        return answer(inputs);
      });
      last = done.catch(() => undefined);
      return done;
    },
  });
  return { model, idle: () => 1 - busy / (stages * now), calls: () => calls, time: () => now, most: () => most };
}

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);

/** Prompts of 20 to 400 tokens, a quarter of which begin alike, and texts of 30 to 200. */
const requests = (count: number): readonly GenerateRequest[] =>
  range(0, count).map((i) => ({
    prompt: i % 4 === 0 ? range(0, 100 + i) : range(1000 * i, 20 + ((i * 97) % 380)),
    maxNewTokens: 30 + ((i * 61) % 170),
    scoreFrom: i % 3 === 0 ? 1 : Infinity,
  }));

const write = async (model: DeviceModel, all: readonly GenerateRequest[]) => {
  const generator = Engine.of(model);
  const texts = await Promise.all(
    all.map(async (request) => {
      const { tokens, promptScores, reason } = await generator.generate(request);
      return { reason, tokens: tokens.map(({ token }) => token), scores: promptScores.length };
    }),
  );
  return { texts, counts: generator.countsOf() };
};
const expected = (all: readonly GenerateRequest[]) =>
  all.map(({ prompt, maxNewTokens, scoreFrom }) => ({
    reason: 'length',
    tokens: range(prompt.at(-1)! + 1, maxNewTokens),
    scores: scoreFrom === 1 ? prompt.length - 1 : 0,
  }));

describe('a pipeline', () => {
  it.each([2, 4])('of %i stages is busy with 64 requests, and idle with one call at a time', async (stages) => {
    const all = requests(64);
    const [full, alone] = [pipeline({ stages }), pipeline({ stages, groups: 1 })];
    expect((await write(full.model, all)).texts).toEqual(expected(all));
    expect((await write(alone.model, all)).texts).toEqual(expected(all));
    expect([full.most(), alone.most()]).toEqual([stages, 1]);
    expect(alone.idle()).toBeCloseTo(1 - 1 / stages);
    expect(full.idle()).toBeLessThan(stages === 2 ? 0.05 : 0.1);
    expect(full.time()).toBeLessThan(alone.time());
  });

  it.each([2, 3, 5])('of %i stages gives the same where sequences give way to others', async (stages) => {
    const all = requests(24);
    const { texts, counts } = await write(pipeline({ stages, cacheTokens: 1200 }).model, all);
    expect(texts).toEqual(expected(all));
    expect(counts.preemptions).toBeGreaterThan(0);
  });

  it('gives up only the sequence whose value is not finite', async () => {
    const all = requests(9);
    const bad = Engine.of(pipeline({ stages: 3, fails: new Set([5005]) }).model);
    const texts = await Promise.allSettled(
      [...all, { prompt: [5000], maxNewTokens: 9 }].map((request) => bad.generate(request)),
    );
    expect(texts.map(({ status }) => status)).toEqual([...all.map(() => 'fulfilled'), 'rejected']);
  });

  it('computes everything again when a device is lost, and gives the same', async () => {
    const all = requests(8);
    for (const at of [0, 1, 2, 5, 20]) {
      const lost = pipeline({ stages: 3, lostAt: new Set([at, at + 4]) });
      expect((await write(lost.model, all)).texts).toEqual(expected(all));
    }
  });
});
