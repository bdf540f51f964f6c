/** Microscaled weights through the real addon and the device's own code on the fake driver: the values of files. */
import { expect, it } from 'vitest';
import { type Encoding, wordCodes } from '../../../ir/encoding.js';
import type { WeightDecl } from '../../../ir/kernel.js';
import { packMicroscaled, roundToMicroscaled } from '../../../ir/microscaled.js';
import { physicalToLogical } from '../../../ir/packing.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import { loadDeviceWeights } from '../../../runtime/cuda/weights.js';
import type { TensorSource } from '../../../runtime/tensorSource.js';
import { planWeights } from '../../../runtime/weightPlan.js';
import { sampleSource } from '../../support/encodedSamples.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, PACK_PTX } from './packShim.js';

const K = 192;
const ENCODINGS: readonly Encoding[] = [
  {
    kind: 'codes',
    codes: wordCodes('e2m1', 'row', false),
    scales: { type: 'e8m0', blockRows: 1, blockColumns: 32, isTransposed: false },
    zero: { kind: 'constant', value: 0 },
    hasGroups: false,
  },
  { kind: 'blocks', block: 'mxfp4' },
];

describeFake('microscaled weights on the fake driver', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const { addon } = fake;

  async function load(
    weight: Pick<WeightDecl, 'sources' | 'pairing' | 'experts'>,
    tensors: ReadonlyMap<string, TensorSource>,
  ): Promise<{ readonly bytes: Uint8Array; readonly decl: WeightDecl }> {
    const decl: WeightDecl = { name: 'w', layout: 'microscaled', format: 'mxfp4', k: K, ...weight };
    const weightPlan = planWeights([decl], [], tensors, { isMapping: false });
    const device = new addon.Device(0);
    const pack = new addon.Module(device, new TextEncoder().encode(PACK_PTX));
    const weights = new addon.Memory(device, weightPlan.packedBytes);
    try {
      weights.fill(0xa5);
      // Few rows in a staging buffer: ranges end within blocks of rows.
      const loadPlan = planLoading(weightPlan, 5 * K * 4);
      await loadDeviceWeights({ addon, device, pack, weightPlan, loadPlan, weights });
      const [placed] = weightPlan.weights;
      return { bytes: new Uint8Array(await weights.readAsync(0, placed!.bytes)), decl };
    } finally {
      weights.release();
      pack.release();
      device.release();
    }
  }

  it.each(ENCODINGS)('keep the values of $kind, gates and ups in turns, each expert for itself', async (encoding) => {
    const rows = 24;
    const made = [1, 2, 3, 4].map((i) => sampleSource(folder, `${encoding.kind}_${i}`, encoding, rows, K, i));
    const tensors = new Map<string, TensorSource>(made.map(({ source }, i) => [`t${i}`, source]));
    const sources = made.map((_, i) => ({ tensor: `t${i}`, rows }));
    const { bytes, decl } = await load({ sources, pairing: { kind: 'interleave', width: 8 }, experts: 2 }, tensors);
    const values = Float64Array.from(made.flatMap((each) => [...each.values()]));
    // What is stored so stays so.
    expect(roundToMicroscaled(values)).toEqual(values);
    expect(bytes).toEqual(packMicroscaled(values, physicalToLogical(decl), K, 2));
  });

  it('are made up, rounded to the nearest', async () => {
    const random = { kind: 'random', format: 'bf16', shape: [32, K], seed: 5n, scale: 0.02 } as const;
    const { bytes } = await load(
      { sources: [{ tensor: 't', rows: 32 }], pairing: { kind: 'none' } },
      new Map([['t', random]]),
    );
    const powers = bytes.filter((_, at) => at % 544 >= 512);
    // The largest of 32 numbers is 0.016 to 0.063, and 4 or 6 times the power of two.
    expect([...new Set(powers)].sort()).toEqual([245, 246]);
  });
});
