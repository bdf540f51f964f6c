/**
 * A draft model beside its target on a CPU: the function `draft` draws what the draft model would draw by itself, with
 * the target's noise, over the pages and numbers of the target's sequences.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { DeviceModel, StepMessage } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { noiseKey } from '../../ir/gumbel.js';
import { randomTokens } from '../support/numbers.js';
import { SILENT } from '../support/silent.js';
import { CONFIG, CONTEXT, safetensorsFile, type StoredTensor, tensorsOf, writeCheckpoint } from './smallModel.js';
import { environment } from './support.js';

const CACHE_TOKENS = 16 * 64;
const SEED = 77;
const TEMPERATURE = 0.8;

/** A part of a message: tokens from a place on, in pages that it has or gains. */
interface Part {
  readonly sequence: number;
  readonly from: number;
  readonly tokens: readonly number[];
  readonly kept: number;
  readonly pages: readonly number[];
  /** Whether its last token has a row, whose token is kept. */
  readonly draws: boolean;
}

const i32 = (values: readonly number[]): Int32Array => Int32Array.from(values);

function messageOf(parts: readonly Part[], isDraft: boolean, ended: readonly number[] = []): StepMessage {
  const ends = parts.map((_, i) => parts.slice(0, i + 1).reduce((sum, { tokens }) => sum + tokens.length, 0) - 1);
  const rows = parts.flatMap((part, i) => (part.draws ? [{ part, token: ends[i]! }] : []));
  const keys = rows.map(({ part }) => noiseKey(BigInt(SEED), part.from + part.tokens.length - 1));
  return {
    ended: i32(ended),
    sequence: i32(parts.map(({ sequence }) => sequence)),
    keptPages: i32(parts.map(({ kept }) => kept)),
    newPages: i32(parts.map(({ pages }) => pages.length)),
    pages: i32(parts.flatMap(({ pages }) => pages)),
    from: i32(parts.map(({ from }) => from)),
    count: i32(parts.map(({ tokens }) => tokens.length)),
    tokens: i32(parts.flatMap(({ tokens }) => tokens)),
    row: i32(rows.map(({ token }) => token)),
    target: i32(rows.map(() => 0)),
    inverseTemperature: new Float32Array(rows.length).fill(1 / TEMPERATURE),
    keyLow: i32(keys.map(({ low }) => low)),
    keyHigh: i32(keys.map(({ high }) => high)),
    keep: i32(rows.map(() => 1)),
    ...(isDraft ? { isDraft } : {}),
  };
}

const PROMPTS = [randomTokens(3, 5), randomTokens(4, 37), randomTokens(5, 16)].map((prompt) =>
  prompt.map((token) => token % CONFIG.vocab_size),
);
const DRAFTS = 6;

/** Drafts behind each prompt, in one call for all prompts and one for each further draft, which waits for none. */
async function drafted(model: DeviceModel): Promise<readonly (readonly number[])[]> {
  let page = 1;
  const held = PROMPTS.map((prompt) =>
    Array.from({ length: Math.ceil((prompt.length + DRAFTS) / PAGE_TOKENS) }, () => page++),
  );
  const first = PROMPTS.map((tokens, i) => ({ sequence: i, from: 0, tokens, kept: 0, pages: held[i]!, draws: true }));
  const calls = Array.from({ length: DRAFTS }, (_, depth) =>
    depth === 0
      ? first
      : PROMPTS.map(({ length }, i) => ({
          ...{ sequence: i, from: length + depth - 1, tokens: [-1 - i] },
          ...{ kept: held[i]!.length, pages: [], draws: true },
        })),
  );
  const answers = await Promise.all(calls.map((parts) => model.step(messageOf(parts, true))));
  return PROMPTS.map((_, i) => answers.map(({ nextToken }) => nextToken[i]!));
}

/** What a model generates by itself. */
async function generated(model: DeviceModel): Promise<readonly (readonly number[])[]> {
  const engine = Engine.of(model);
  const sampling = { temperature: TEMPERATURE, seed: SEED };
  const texts = await Promise.all(PROMPTS.map((prompt) => engine.generate({ prompt, maxNewTokens: DRAFTS, sampling })));
  return texts.map(({ tokens }) => tokens.map(({ token }) => token));
}

describe('a draft model on a CPU', () => {
  const models: LoadedModel[] = [];
  const load = async (model: string, draftModel?: string): Promise<LoadedModel> => {
    const request = {
      ...{ model, init: { kind: 'checkpoint' as const }, precision: 'f32' as const, threads: 2 },
      ...{ cacheTokens: CACHE_TOKENS, feeds: true, ...(draftModel === undefined ? {} : { draftModel }) },
    };
    const loaded = await beginLoading(request, SILENT, new Phases()).finish();
    models.push(loaded);
    return loaded;
  };
  const deviceOf = (loaded: LoadedModel): DeviceModel => deviceModelOf(loaded, CACHE_TOKENS, { feeds: true });
  let target = '';
  let draft = '';

  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    target = writeCheckpoint();
    const config = { max_position_embeddings: CONTEXT / 2, vocab_size: CONFIG.vocab_size };
    draft = writeCheckpoint({ config, weights: safetensorsFile(tensorsOf(2)) }, 'draft');
  });
  afterAll(async () => {
    for (const model of models) await model.close();
  });

  it('draws what it would draw alone, beside steps of the target', async () => {
    const [both, alone, plain] = [await load(target, draft), await load(draft), await load(target)];
    const device = deviceOf(both);
    expect(device.draft).toMatchObject({ name: 'model', ahead: 0, maxLength: CONTEXT / 2 });
    const texts = await generated(deviceOf(plain));
    expect(await generated(device)).toEqual(texts);
    const drafts = await drafted(device);
    expect(drafts).toEqual(await generated(deviceOf(alone)));
    expect(drafts).not.toEqual(texts);
    expect(deviceOf(plain).draft).toBeUndefined();
  });

  it('reads tokens that it does not know as its first, and draws nothing where nothing is finite', async () => {
    const rows = 288;
    const [table, ...others] = tensorsOf();
    const known = { ...table!, shape: [rows, 64], values: table!.values.subarray(0, rows * 64) };
    const config = { vocab_size: rows };
    const weightsOf = (tensors: readonly StoredTensor[]): Buffer => safetensorsFile([known, ...tensors]);
    const fewer = writeCheckpoint({ config, weights: weightsOf(others) }, 'fewer');
    const device = deviceOf(await load(target, fewer));
    expect(PROMPTS.flat().some((token) => token >= rows)).toBe(true);
    expect((await drafted(device)).flat().every((token) => token >= 0 && token < rows)).toBe(true);
    const broken = others.map((tensor) => ({ ...tensor, values: tensor.values.map(() => NaN) }));
    const nothing = deviceOf(await load(target, writeCheckpoint({ config, weights: weightsOf(broken) }, 'broken')));
    expect(new Set((await drafted(nothing)).flat())).toEqual(new Set([-1]));
  });

  it('is refused where its tokens mean other texts', async () => {
    const other = writeCheckpoint({}, 'other');
    const path = join(other, 'tokenizer.json');
    const json = JSON.parse(readFileSync(path, 'utf8')) as { model: { vocab: Record<string, number> } };
    [json.model.vocab['a'], json.model.vocab['b']] = [json.model.vocab['b']!, json.model.vocab['a']!];
    writeFileSync(path, JSON.stringify(json));
    await expect(load(target, other)).rejects.toThrow(
      /other: cannot draft: token \d+ is "b" there, and "a" in .*small/,
    );
  });
});
