/**
 * Weights on a real device: laid out and generated bit for bit like the CPU's, at what speed, and the search for NaN.
 */
import assert from 'node:assert/strict';
import { closeSync, ftruncateSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { WeightDecl } from '../../ir/kernel.js';
import { findJob, JOB_BYTES } from '../../runtime/cuda/packJob.js';
import { PACK_ENTRIES } from '../../runtime/cuda/packKernels.js';
import { printLoadTimes, weightSlots } from '../../runtime/cuda/weights.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { planWeights } from '../../runtime/weightPlan.js';
import { extentsTR } from '../support/interface.js';
import { elements, weightWorld } from '../support/weightWorld.js';
import { load, open, skip } from './loading.js';
import { temporaryFolder } from './support.js';

describe('weights on the device', { skip }, () => {
  it("have the reference's bits, in one step or in many", async () => {
    const bench = await open();
    const { weights: plain, ordered, constants, tensors, expected } = weightWorld(temporaryFolder());
    const weights = [...plain, ...ordered];
    const plan = planWeights(weights, constants, tensors, { isMapping: false });
    for (const staging of [256, 2048, undefined]) {
      const { memory } = await load(bench, plan, staging);
      const slots = weightSlots(plan, memory);
      for (const weight of weights) {
        const { offset, bytes } = slots.get(weight.name)!;
        assert.deepEqual(elements(weight, memory.read(offset, bytes)), expected(weight), weight.name);
      }
      memory.release();
    }
    bench.release();
  });

  it('are loaded at the rate of the bus, and generated faster', async () => {
    const bench = await open();
    const [rows, k] = [16384, 6656];
    const file = join(temporaryFolder(), 'weights.bin');
    const bytes = rows * k * 2;
    const handle = openSync(file, 'w');
    ftruncateSync(handle, 4 * bytes); // zeros, resident after the first reading
    closeSync(handle);
    const names = ['a', 'b', 'c', 'd'];
    const stored = new Map(
      names.map((name, i): [string, TensorSource] => [
        name,
        { kind: 'file', format: 'bf16', shape: [rows, k], file, offset: i * bytes, byteLength: bytes },
      ]),
    );
    const random = new Map(
      names.map((name, i): [string, TensorSource] => [
        name,
        { kind: 'random', format: 'bf16', shape: [rows, k], seed: BigInt(i), scale: 0.02 },
      ]),
    );
    const weights = names.map((name): WeightDecl => ({
      name,
      layout: 'kmajor',
      format: 'bf16',
      sources: [{ tensor: name, rows }],
      k,
      pairing: { kind: 'none' },
    }));
    for (const [what, tensors] of [
      ['from a file, first', stored],
      ['from a file, again', stored],
      ['made up', random],
    ] as const) {
      const { memory, times } = await load(bench, planWeights(weights, [], tensors, { isMapping: false }));
      console.log(`${what}: ${printLoadTimes(times)}`);
      const last = new Uint16Array(memory.read(4 * bytes - 64, 64));
      assert.equal(
        last.every((bits) => bits === 0),
        tensors === stored,
      );
      memory.release();
    }
    bench.release();
  });

  it('are searched for the first value that is not finite', async () => {
    const { addon, device, pack, release } = await open();
    const [rows, columns, stride] = [3000, 1000, 1024];
    const data = new addon.Memory(device, rows * stride * 2);
    const jobs = new addon.Memory(device, JOB_BYTES);
    const found = new addon.Memory(device, 256);
    const { bytes, launch } = findJob(
      { index: 0, dtype: 'bf16', rows: 'T', columns, stride, allowsNegativeInfinity: true },
      () => rows,
    );
    jobs.write(0, bytes);
    const slots = [jobs, data, found].map((memory) => ({ memory, offset: 0, bytes: memory.sizeBytes }));
    const program = new addon.Program({
      device,
      extents: extentsTR(rows, 1),
      slots,
      inputs: [],
      outputs: [],
      launches: [
        {
          name: 'search',
          module: pack,
          symbol: PACK_ENTRIES.find,
          sizes: ['T', columns],
          slots: [0, 1, 2],
          tensorMaps: [],
          launch,
          usesProgrammaticLaunch: false,
        },
      ],
    });
    const search = async (tokens: number): Promise<bigint> => {
      found.fill(0xff);
      await program.run({ extents: [tokens, 1], inputs: [] });
      return new BigUint64Array(found.read(0, 8))[0]!;
    };
    data.fill(0);
    assert.equal(await search(rows), 2n ** 64n - 1n);
    const put = (row: number, column: number, bits: number): void =>
      data.write((row * stride + column) * 2, new Uint16Array([bits]));
    put(1, 5, 0xff80); // −∞ is an answer
    put(2, 1001, 0x7fc0); // in the padding
    put(2999, 999, 0x7f80);
    assert.equal(await search(2999), 2n ** 64n - 1n);
    assert.equal(await search(3000), 2999n * 1000n + 999n);
    put(17, 3, 0x7fc0);
    assert.equal(await search(3000), 17_003n);
    for (const held of [program, data, jobs, found]) held.release();
    release();
  });
});
