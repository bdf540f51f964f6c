/** Stored codes of E4M3 and scales of their rows through the real addon and the device's own code: as in the file. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { byteCodes, CODES, type CodesEncoding } from '../../../ir/encoding.js';
import type { WeightDecl } from '../../../ir/kernel.js';
import { packedDepth, physicalToLogical } from '../../../ir/packing.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import { loadDeviceWeights } from '../../../runtime/cuda/weights.js';
import type { EncodedSource } from '../../../runtime/tensorSource.js';
import { planWeights } from '../../../runtime/weightPlan.js';
import { sampleSource } from '../../support/encodedSamples.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, PACK_PTX } from './packShim.js';

const [ROWS, K] = [40, 96];
const { valueOf } = CODES.e4m3;

describeFake('stored codes on the fake driver', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const { addon } = fake;
  const scaled = (blockRows: number): CodesEncoding => ({
    kind: 'codes',
    codes: byteCodes('e4m3'),
    scales: { type: 'bf16', blockRows, blockColumns: K, isTransposed: false },
    zero: { kind: 'constant', value: 0 },
    hasGroups: false,
  });

  async function load(weights: readonly WeightDecl[], source: EncodedSource): Promise<readonly Buffer[]> {
    const weightPlan = planWeights(weights, [], new Map([['t', source]]), { isMapping: false });
    const device = new addon.Device(0);
    const pack = new addon.Module(device, new TextEncoder().encode(PACK_PTX));
    const memory = new addon.Memory(device, weightPlan.packedBytes);
    try {
      memory.fill(0xa5);
      // Few rows in a staging buffer: ranges end within blocks of rows.
      const loadPlan = planLoading(weightPlan, 7 * K * 4);
      await loadDeviceWeights({ addon, device, pack, weightPlan, loadPlan, weights: memory });
      const read = weightPlan.weights.map(({ offset, bytes }) => memory.readAsync(offset, bytes));
      return (await Promise.all(read)).map((bytes) => Buffer.from(bytes));
    } finally {
      memory.release();
      pack.release();
      device.release();
    }
  }

  it.each([1, 10, ROWS])('with a scale for %i rows', async (blockRows) => {
    const { source, values } = sampleSource(folder, `codes${blockRows}`, scaled(blockRows), ROWS, K, blockRows);
    const sources = [{ tensor: 't', rows: ROWS }];
    const matrix: WeightDecl = {
      ...{ name: 'w', layout: 'kmajor', format: 'e4m3', k: K, from: 'codes', sources },
      pairing: { kind: 'rotate', headDim: 8, width: 4 },
    };
    const scale: WeightDecl = {
      ...{ name: 's', layout: 'rows', format: 'f32', k: 1, from: 'codes', sources },
      ...{ scalesOf: { format: 'e4m3', k: K }, pairing: { kind: 'none' } },
    };
    const [packed, factors] = await load([matrix, scale], source);
    const part = source.parts.codes!;
    const stored = readFileSync(part.file).subarray(part.offset, part.offset + part.byteLength);
    const stride = packedDepth(matrix);
    physicalToLogical(matrix).forEach((row, at) => {
      const own = packed!.subarray(at * stride, at * stride + K);
      const want = row < 0 ? new Uint8Array(K) : stored.subarray(row * K, (row + 1) * K);
      expect(Array.from(own, valueOf)).toEqual(Array.from(want, valueOf));
    });
    const all = values();
    for (let row = 0; row < ROWS; row++) {
      const factor = factors!.readFloatLE(4 * row);
      for (let column = 0; column < K; column++) {
        expect(Math.fround(valueOf(stored[row * K + column]!) * factor)).toBe(all[row * K + column]!);
      }
    }
  });
});
