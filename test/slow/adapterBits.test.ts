/**
 * What an adapter answers does not depend on its company, to the bit: several adapters in one call or step, slots that
 * are written while others compute, and rows of the base in a model that has slots.
 */
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { openAdapted } from '../../driver/adapters/open.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import type { LoadRequest } from '../../driver/requests.js';
import type { AdapterRef } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import { SCORE } from '../../ir/function.js';
import type { CallArrays } from '../../runtime/call.js';
import { SILENT } from '../support/silent.js';
import { writeAdapter } from '../support/writtenAdapters.js';
import { writeCheckpoint } from '../e2e/smallModel.js';
import { environment, isBuilt } from '../e2e/support.js';

const CACHE_TOKENS = 1024;
const SLOTS = 3;

describe.skipIf(!isBuilt)('answers with adapters', () => {
  let folder = '';
  let request: LoadRequest;
  const adapters: AdapterRef[] = [];
  const open = (more: Partial<LoadRequest> = {}): Promise<LoadedModel> =>
    beginLoading({ ...request, ...more }, SILENT, new Phases()).finish();

  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    folder = writeCheckpoint();
    request = {
      model: folder,
      init: { kind: 'checkpoint' },
      precision: 'f32',
      threads: 2,
      batchTokens: 128,
      cacheTokens: CACHE_TOKENS,
      feeds: true,
    };
    const written = [
      writeAdapter({ seed: 1 }),
      writeAdapter({ seed: 2, rank: 16, targets: ['q_proj', 'v_proj'] }),
      writeAdapter({ seed: 3, rank: 7 }),
      writeAdapter({ seed: 4, rank: 1, targets: ['down_proj'] }),
    ];
    for (const adapterDir of written) {
      const { adapter } = openAdapted(folder, { kind: 'checkpoint' }, { adapterDir });
      adapters.push({ hash: adapter!.hash, path: adapter!.path });
    }
  });

  /** Texts that begin alike, as trees one behind another; token t of text i is its own. */
  const LENGTH = 20;
  const tokenOf = (text: number, at: number): number => (at < 6 ? 4 + at : 4 + ((at * 37 + text * 101) % 300));
  function call(texts: readonly number[], slots?: readonly number[]): CallArrays {
    const all = <T>(value: (text: number, at: number, place: number) => T): T[] =>
      texts.flatMap((text, place) => Array.from({ length: LENGTH }, (_, at) => value(text, at, place)));
    const rows = texts.flatMap((_, place) => Array.from({ length: LENGTH - 1 }, (_each, at) => place * LENGTH + at));
    const slot = (at: number): number => slots![Math.floor(at / LENGTH)]!;
    return {
      tokens: Int32Array.from(all(tokenOf)),
      position: Int32Array.from(all((_, at) => at)),
      subtreeEnd: Int32Array.from(all((_, _at, place) => (place + 1) * LENGTH)),
      row: Int32Array.from(rows),
      target: Int32Array.from(rows, (at) => tokenOf(texts[Math.floor(at / LENGTH)]!, (at % LENGTH) + 1)),
      ...(slots === undefined
        ? {}
        : {
            adapter: Int32Array.from(all((_, at, place) => slot(place * LENGTH + at))),
            rowAdapter: Int32Array.from(rows, slot),
          }),
    };
  }
  const score = async ({ executor }: LoadedModel, inputs: CallArrays): Promise<readonly number[]> => {
    const { outputs } = await executor.call(SCORE, inputs);
    return [...(outputs['logProb'] as Float32Array)];
  };

  it('of one call are those of each text alone, and of the base those of a model without slots', async () => {
    const [plain, slotted] = [await open(), await open({ adapters: { slots: SLOTS, rank: 16 } })];
    const { adapters: slots } = deviceModelOf(slotted, CACHE_TOKENS);
    expect(slots).toMatchObject({ count: SLOTS, rank: 16 });
    for (let slot = 0; slot < SLOTS; slot++) await slots!.load(slot, adapters[slot]!);
    const texts = [0, 1, 2, 3, 1];
    const chosen = [1, -1, 0, 2, 2];
    const mixed = await score(slotted, call(texts, chosen));
    const alone: number[] = [];
    for (const [i, text] of texts.entries()) alone.push(...(await score(slotted, call([text], [chosen[i]!]))));
    expect(mixed).toEqual(alone);
    // The model of one adapter alone, and of none.
    const base = await score(plain, call([1]));
    expect(base).toEqual(mixed.slice(LENGTH - 1, 2 * (LENGTH - 1)));
    expect(await score(slotted, call([1]))).toEqual(base);
    const own = await open({ adapter: { name: 'one', path: adapters[1]!.path } });
    const adapted = await score(own, call([0]));
    expect(adapted).toEqual(mixed.slice(0, LENGTH - 1));
    expect(adapted).not.toEqual(await score(plain, call([0])));
    expect(new Set([plain.id, slotted.id])).toHaveLength(1);
    expect(own.id).not.toBe(plain.id);
    await Promise.all([plain, slotted, own].map((model) => model.close()));
  });

  it('of an engine are those of each request alone, however steps are cut and slots are written', async () => {
    const model = await open({ adapters: { slots: SLOTS, rank: 16 } });
    const whole = deviceModelOf(model, CACHE_TOKENS, { feeds: true });
    const asked = [undefined, ...adapters, adapters[0], undefined].map((adapter, i) => ({
      prompt: Array.from({ length: 9 + 5 * i }, (_, at) => tokenOf(i % 3, at)),
      maxNewTokens: 12,
      sampling: i % 2 === 0 ? {} : { temperature: 1, seed: i },
      scoreFrom: 1,
      ...(adapter === undefined ? {} : { adapter }),
    }));
    const alone = [];
    for (const each of asked) {
      const { tokens, promptScores } = await Engine.of(whole).generate(each);
      alone.push({ tokens, promptScores });
    }
    // Adapters matter: the first prompts differ in nothing else.
    const [first] = asked;
    const other = await Engine.of(whole).generate({ ...first!, adapter: adapters[0]! });
    expect(other.promptScores).not.toEqual(alone[0]!.promptScores);
    for (const tokens of [whole.limits.tokens, 11, 1]) {
      const engine = Engine.of({ ...whole, limits: { ...whole.limits, tokens, rows: Math.min(tokens, 64) } });
      const mixed = await Promise.all(asked.map((each) => engine.generate(each)));
      expect(mixed.map(({ tokens: found, promptScores }) => ({ tokens: found, promptScores }))).toEqual(alone);
    }
    await model.close();
  });

  it('are refused where a folder holds another adapter by now, or one that does not fit', async () => {
    const model = await open({ adapters: { slots: SLOTS, rank: 16 } });
    const { adapters: slots } = deviceModelOf(model, CACHE_TOKENS);
    await expect(slots!.load(0, { ...adapters[0]!, hash: '0'.repeat(64) })).rejects.toThrow('has changed since');
    const dir = writeAdapter({ seed: 9, rank: 17 });
    const { adapter } = openAdapted(folder, { kind: 'checkpoint' }, { adapterDir: dir });
    await expect(slots!.load(0, { hash: adapter!.hash, path: dir })).rejects.toThrow('slots of the compiled model');
    await expect(slots!.load(SLOTS, adapters[0]!)).rejects.toThrow('slot 3 of 3');
    await slots!.load(0, adapters[0]!);
    await model.close();
  });
});
