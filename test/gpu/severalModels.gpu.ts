/**
 * Two models in the process of a real device: what each computes beside the other has the bits that it has alone, also
 * while models come and go and when the process is killed. The memory of a model that was closed is free again.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LoadedModel } from '../../commands/loadModel.js';
import { DeviceHost } from '../../driver/devices/deviceHost.js';
import type { Replica } from '../../driver/executor.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import { requireCuda } from '../../runtime/cuda/addon.js';
import { allGone, devicesOf } from '../e2e/children.js';
import { deviceHere } from './device.js';
import {
  demo,
  grouped,
  loadOnDevice,
  type ModelRequest,
  randomTokens,
  stepperFor,
  write,
  type Written,
} from './sequences.js';

const { skip } = await deviceHere();

/** Prompts of both models, whose texts take many steps: every third is drawn. */
const REQUESTS: readonly GenerateRequest[] = Array.from({ length: 48 }, (_, i) => ({
  prompt: randomTokens(300 + i, 3 + ((i * 37) % 150)),
  maxNewTokens: 40,
  ...(i % 3 === 0 ? { sampling: { temperature: 0.9, seed: i } } : {}),
}));

const writeWith = (model: LoadedModel): Promise<Written[]> =>
  write(Engine.of(stepperFor(model, { feeds: true })), REQUESTS);

const children = (): readonly number[] => devicesOf(process.pid);

/** Bytes that nobody has of the first device. */
function freeBytes(): number {
  const device = new (requireCuda().Device)(0);
  try {
    return device.memory().freeBytes;
  } finally {
    device.release();
  }
}

describe('two models on one device', { skip }, () => {
  const requests: readonly ModelRequest[] = skip === false ? [demo, grouped()] : [];
  const opened: LoadedModel[] = [];
  const open = async (which: number, host?: DeviceHost): Promise<LoadedModel> => {
    const model = await loadOnDevice(requests[which]!, { feeds: true }, host);
    opened.push(model);
    return model;
  };
  const alone: Written[][] = [];

  before(async () => {
    for (const which of requests.keys()) {
      const model = await open(which);
      alone.push(await writeWith(model));
      await model.close();
    }
    assert.notDeepEqual(alone[0], alone[1]);
  });
  after(async () => {
    await Promise.all(opened.map((model) => model.close()));
    await allGone(children());
  });

  it('write side by side what each writes alone, in one process', async () => {
    const host = new DeviceHost();
    const models = await Promise.all([open(0, host), open(1, host)]);
    assert.equal(children().length, 1);
    for (let round = 0; round < 3; round++) assert.deepEqual(await Promise.all(models.map(writeWith)), alone);
    await Promise.all(models.map((model) => model.close()));
  });

  it('come and go while the other writes, and leave no byte', async () => {
    const host = new DeviceHost();
    const first = await open(0, host);
    const free: number[] = [];
    let isDone = false;
    const writing = (async (): Promise<number> => {
      let rounds = 0;
      for (; !isDone; rounds++) assert.deepEqual(await writeWith(first), alone[0]);
      return rounds;
    })();
    for (let round = 0; round < 6; round++) {
      const second = await open(1, host);
      assert.deepEqual(await writeWith(second), alone[1]);
      await second.close();
      free.push(freeBytes());
    }
    isDone = true;
    console.log(`bytes free after each of 6 models: ${free.join(', ')}; ${await writing} rounds beside them`);
    // The driver keeps some memory of its own from the first time on.
    assert(Math.abs(free.at(-1)! - free[1]!) <= 8 << 20);
    assert.equal(children().length, 1);
    await first.close();
  });

  it('lose no text and no bit when their process is killed', async () => {
    const host = new DeviceHost();
    const models = await Promise.all([open(0, host), open(1, host)]);
    const [pid] = children();
    /** Text after text; the process is killed in the middle. */
    const rounds = async (model: LoadedModel): Promise<readonly Written[][]> => {
      const all: Written[][] = [];
      for (let round = 0; round < 8; round++) {
        if (round === 3 && model === models[0]) setImmediate(() => process.kill(pid!, 'SIGKILL'));
        all.push(await writeWith(model));
      }
      return all;
    };
    const writing = Promise.all(models.map(rounds));
    assert.deepEqual(
      await writing,
      alone.map((written) => Array.from({ length: 8 }, () => written)),
    );
    assert.deepEqual(
      models.map(({ executor }) => (executor as Replica).epoch),
      [1, 1],
    );
    assert.equal(children().length, 1);
    assert.notDeepEqual(children(), [pid]);
    await Promise.all(models.map((model) => model.close()));
  });
});
