/** Weights in groups through the real addon and the device's own code on the fake driver: the values of their files. */
import { expect, it } from 'vitest';
import { wordCodes, type CodesEncoding } from '../../../ir/encoding.js';
import { codePlace, groupedBytes, scalePlace, type GroupSize } from '../../../ir/groups.js';
import type { WeightDecl } from '../../../ir/kernel.js';
import { physicalToLogical } from '../../../ir/packing.js';
import { loadDeviceWeights } from '../../../runtime/cuda/weights.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import { planWeights } from '../../../runtime/weightPlan.js';
import type { TensorSource } from '../../../runtime/tensorSource.js';
import { ENCODINGS, sampleSource } from '../../support/encodedSamples.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, PACK_PTX } from './packShim.js';

const K = 384;
const FLOAT = new Float32Array(1);
const BITS = new Uint32Array(FLOAT.buffer);

/** Element (row, column) of packed words. */
function valueAt(words: Uint32Array, row: number, column: number, group: GroupSize): number {
  const rows = words.byteLength / groupedBytes(1, K, group);
  const { word, shift } = codePlace(row, column, rows, group);
  const scale = words[scalePlace(row, Math.floor(column / group), rows, group)]!;
  BITS[0] = scale & ~15;
  return (((words[word]! >>> shift) & 15) - (scale & 15)) * FLOAT[0]!;
}

describeFake('weights in groups on the fake driver', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const { addon } = fake;
  const inGroups = (encoding: string, blockColumns: number): CodesEncoding => {
    const found = ENCODINGS[encoding]!;
    if (found.kind !== 'codes') throw new Error(`${encoding} are blocks`);
    return { ...found, scales: { ...found.scales, blockColumns } };
  };

  async function load(
    weight: Omit<WeightDecl, 'layout' | 'format' | 'k' | 'name'>,
    tensors: ReadonlyMap<string, TensorSource>,
  ): Promise<Uint32Array> {
    const decl: WeightDecl = { name: 'w', layout: 'groups', format: 'u4', k: K, from: 'codes', ...weight };
    const weightPlan = planWeights([decl], [], tensors, { isMapping: false });
    const device = new addon.Device(0);
    const pack = new addon.Module(device, new TextEncoder().encode(PACK_PTX));
    const weights = new addon.Memory(device, weightPlan.packedBytes);
    try {
      weights.fill(0xa5);
      // Few rows in a staging buffer: ranges end within blocks of rows.
      await loadDeviceWeights({
        addon,
        device,
        pack,
        weightPlan,
        loadPlan: planLoading(weightPlan, 5 * K * 4),
        weights,
      });
      const [placed] = weightPlan.weights;
      return new Uint32Array(await weights.readAsync(0, placed!.bytes));
    } finally {
      weights.release();
      pack.release();
      device.release();
    }
  }

  it.each([
    ['gptq', 32, 32],
    ['awq', 64, 64],
    ['packed', 128, 128],
    ['gptq', K, 128],
  ] as const)('%s with scales for %i columns', async (name, columns, group) => {
    const made = [1, 2].map((i) => sampleSource(folder, `${name}${columns}_${i}`, inGroups(name, columns), 40, K, i));
    const tensors = new Map<string, TensorSource>(made.map(({ source }, i) => [`t${i}`, source]));
    const sources = made.map((_, i) => ({ tensor: `t${i}`, rows: 40 }));
    const pairing = { kind: 'interleave', width: 16 } as const;
    const words = await load({ sources, pairing, group }, tensors);
    const all = made.map(({ values }) => values());
    const map = physicalToLogical({ name: 'w', layout: 'groups', format: 'u4', k: K, sources, pairing, group });
    map.forEach((row, at) => {
      for (let column = 0; column < K; column++) {
        const value = row < 0 ? 0 : all[Math.floor(row / 40)]![(row % 40) * K + column]!;
        if (valueAt(words, at, column, group) !== value)
          throw new Error(`row ${row}, column ${column}: ${valueAt(words, at, column, group)}, not ${value}`);
      }
    });
    expect(map.length).toBeGreaterThan(80);
  });

  it('makes up codes and scales', async () => {
    const random = { kind: 'random', format: 'bf16', shape: [32, K], seed: 5n, scale: 0.02 } as const;
    const weight = { sources: [{ tensor: 't', rows: 32 }], pairing: { kind: 'none' }, group: 64 } as const;
    const words = await load(weight, new Map([['t', random]]));
    const values = Array.from({ length: 32 * K }, (_, i) => valueAt(words, Math.floor(i / K), i % K, 64));
    const deviation = Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / values.length);
    expect(deviation).toBeGreaterThan(0.015);
    expect(deviation).toBeLessThan(0.025);
    expect(new Set(values).size).toBe(16);
  });

  it('refuses columns in another order, and scales of more than 16 bits', async () => {
    const weight = { sources: [{ tensor: 't', rows: 32 }], pairing: { kind: 'none' }, group: 32 } as const;
    const { source } = sampleSource(folder, 'ordered', ENCODINGS['gptqGroups']!, 32, K, 9);
    await expect(load(weight, new Map([['t', source]]))).rejects.toThrow('another order');
    const wide: CodesEncoding = {
      ...inGroups('packed', 32),
      codes: wordCodes('u4', 'row', false),
      scales: { type: 'f32', blockRows: 1, blockColumns: 32, isTransposed: false },
    };
    const { source: long } = sampleSource(folder, 'long', wide, 32, K, 10);
    await expect(load(weight, new Map([['t', long]]))).rejects.toThrow('none of 16 bits');
  });
});
