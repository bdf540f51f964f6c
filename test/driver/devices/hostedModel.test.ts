/** Models of one process: whose turn it is, and who is named where memory is short. */
import { describe, expect, it } from 'vitest';
import { LocalModels } from '../../../driver/devices/hostedModel.js';
import { Turns } from '../../../driver/devices/turns.js';
import type { DeviceExecutor } from '../../../driver/executor.js';
import type { CompiledModel } from '../../../driver/targets/target.js';
import { deviceMemoryError } from '../../../runtime/cuda/memoryUse.js';
import { requireMemory } from '../../../runtime/cpu/memoryUse.js';
import { random } from '../../e2e/smallModel.js';

/** Work that ends when a test says so. */
function held(log: string[], name: string): { work: () => Promise<string>; end: () => void; fail: () => void } {
  let [end, fail] = [(): void => undefined, (): void => undefined];
  const ended = new Promise<void>((resolve, reject) => {
    end = resolve;
    fail = () => reject(new Error(name));
  });
  const work = async (): Promise<string> => {
    log.push(`${name} begins`);
    try {
      await ended;
    } finally {
      log.push(`${name} ends`);
    }
    return name;
  };
  return { work, end, fail };
}

describe('turns', () => {
  const [A, B] = [{}, {}];

  it('come in the order of arrival, and work of one overlaps where nobody else waits', async () => {
    const log: string[] = [];
    const turns = new Turns();
    const [a1, a2, b1, a3, b2] = ['a1', 'a2', 'b1', 'a3', 'b2'].map((name) => held(log, name));
    const done = [
      turns.take(A, a1!.work),
      turns.take(A, a2!.work),
      turns.take(B, b1!.work),
      turns.take(A, a3!.work),
      turns.take(B, b2!.work),
    ];
    // At once, in this turn of the event loop.
    expect(log).toEqual(['a1 begins', 'a2 begins']);
    for (const each of [a3, b2, a2, a1, b1]) {
      each!.end();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await Promise.all(done)).toEqual(['a1', 'a2', 'b1', 'a3', 'b2']);
    expect(log).toEqual([
      ...['a1 begins', 'a2 begins', 'a2 ends', 'a1 ends'],
      ...['b1 begins', 'b1 ends', 'a3 begins', 'a3 ends', 'b2 begins', 'b2 ends'],
    ]);
  });

  it('end with an error as with a result', async () => {
    const log: string[] = [];
    const turns = new Turns();
    const [a, b] = [held(log, 'a'), held(log, 'b')];
    const failing = turns.take(A, a.work);
    const waiting = turns.take(B, b.work);
    const thrown = turns.take(A, () => {
      throw new Error('at once');
    });
    a.fail();
    b.end();
    await expect(failing).rejects.toThrow('a');
    expect(await waiting).toBe('b');
    await expect(thrown).rejects.toThrow('at once');
    expect(await turns.take(B, async () => 'on')).toBe('on');
  });

  it('never let two work at a time (random work of three)', async () => {
    const next = random(5);
    const turns = new Turns();
    const owners = [{}, {}, {}];
    const working = new Set<object>();
    const order: number[] = [];
    const work = Array.from({ length: 300 }, async (_, i) => {
      const owner = owners[Math.floor(next() * 3)]!;
      const waits = Math.floor(next() * 4);
      await turns.take(owner, async () => {
        order.push(i);
        working.add(owner);
        expect(working.size).toBe(1);
        for (let j = 0; j < waits; j++) await new Promise((resolve) => setImmediate(resolve));
        working.delete(owner);
      });
    });
    await Promise.all(work);
    expect(order).toEqual(order.toSorted((a, b) => a - b));
  });
});

describe('models of one process', () => {
  const compiled = (isHost: boolean) =>
    ({ plan: { functions: [] }, target: { devices: { isHost } } }) as unknown as CompiledModel;
  const executor = (heldBytes: number, log: string[] = []): DeviceExecutor => ({
    capacity: {},
    heldBytes,
    call: async () => ({ outputs: {} }),
    profile: async () => ({ launches: [] }),
    close: async () => void log.push('closed'),
  });

  it('are opened one after another; one that fails holds up nobody', async () => {
    const local = new LocalModels();
    const log: string[] = [];
    const open = (name: string, work: () => Promise<DeviceExecutor>) =>
      local.open({
        name,
        compiled: compiled(true),
        load: (besideBytes) => {
          log.push(`${name} beside ${besideBytes}`);
          return work();
        },
      });
    const [first, failing, third] = [
      open('first', async () => executor(7, log)),
      open('failing', async () => {
        await new Promise((resolve) => setImmediate(resolve));
        throw new Error('no tensor');
      }),
      open('third', async () => executor(5)),
    ];
    await expect(failing).rejects.toThrow('no tensor');
    await third;
    await (await first).close();
    await open('fourth', async () => executor(1));
    expect(log).toEqual(['first beside 0', 'failing beside 7', 'third beside 7', 'closed', 'fourth beside 5']);
    const unable = (await third).resize(64);
    await expect(unable).rejects.toThrow('does not change');
  });

  it('name who holds the memory that one needs', async () => {
    const GiB = 2 ** 30;
    const local = new LocalModels();
    const use = { weightBytes: 30 * GiB, arenaBytes: GiB, stateBytes: 0, stagingBytes: 0, codeBytes: 0 };
    const open = (name: string, load: (besideBytes: number) => DeviceExecutor, isHost = false) =>
      local.open({ name, compiled: compiled(isHost), load: async (beside) => load(beside) });
    const short = (freeGiB: number, totalGiB: number) => (): never => {
      throw deviceMemoryError(use, { name: 'H100', freeBytes: freeGiB * GiB, totalBytes: totalGiB * GiB }, 1024);
    };
    // By itself, it says all that there is to say.
    await expect(open('alone', short(20, 80))).rejects.toThrow('This plan needs 31 GiB of device memory');
    await open('writer', () => executor(40 * GiB));
    await open('judge', () => executor(14 * GiB));
    await expect(open('draft', short(20, 80))).rejects.toMatchObject({
      name: 'UserError',
      message:
        'draft needs 31.1 GiB of memory of H100, of which 20 GiB are free: writer holds 40 GiB, judge holds 14 GiB',
      hint: '11.1 GiB are missing: unload judge, or open them with fewer --cache-tokens',
    });
    await expect(open('draft', short(20, 24))).rejects.toMatchObject({
      hint: 'draft does not fit by itself either: spread it over several devices, or use one with more memory',
    });
    // How much of a host's memory other models hold is not known.
    await open('reader', () => executor(4 * GiB), true);
    await expect(
      open(
        'draft',
        (beside) => {
          const none = { mappedBytes: 0, arenaBytes: 0, stateBytes: 0, scratchBytes: 0 };
          requireMemory({ ...none, packedBytes: 2 ** 50 }, beside);
          return executor(1);
        },
        true,
      ),
    ).rejects.toThrow(/^draft needs 1,024 TiB of memory, of which .* are free: reader holds 4 GiB$/);
  });
});
