/** Encoded matrices through the real addon and the device's own code: their files cross the bus, and nothing else. */
import { expect, it } from 'vitest';
import type { Encoding } from '../../../ir/encoding.js';
import type { WeightDecl } from '../../../ir/kernel.js';
import { UserError } from '../../../errors.js';
import { planLoading, type LoadPlan } from '../../../runtime/cuda/loadPlan.js';
import { copiedBytesOf, loadDeviceWeights, type LoadTimes } from '../../../runtime/cuda/weights.js';
import { encodedRow, fileRanges, type EncodedSource } from '../../../runtime/tensorSource.js';
import { planWeights, type WeightPlan } from '../../../runtime/weightPlan.js';
import { ENCODINGS, sampleSource } from '../../support/encodedSamples.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';
import { temporaryFolder } from '../kernels.js';
import { buildPackShim, PACK_PTX } from './packShim.js';
import { isThorough } from '../../support/thorough.js';

const [ROWS, K] = [96, 512];
const VIEW = { first: 5, rows: 9, stride: 31 } as const;
/** Rows in turns with others'. */
const TURNS = { first: 5, rows: 1, stride: 3 } as const;
const NAMES = Object.keys(ENCODINGS);

describeFake('encoded matrices on the fake driver', (fake) => {
  const folder = temporaryFolder();
  fake.host(buildPackShim(folder).library);
  const { addon } = fake;

  const planOf = (source: EncodedSource): WeightPlan => {
    const matrix: WeightDecl = {
      ...{ name: 'w', layout: 'rows', format: 'f32', k: K, pairing: { kind: 'none' } },
      sources: [{ tensor: 't', rows: source.shape[0]! }],
    };
    return planWeights([matrix], [], new Map([['t', source]]), { isMapping: false });
  };

  async function load(
    weightPlan: WeightPlan,
    loadPlan: LoadPlan,
  ): Promise<{ readonly times: LoadTimes; readonly values: Float32Array }> {
    const device = new addon.Device(0);
    const pack = new addon.Module(device, new TextEncoder().encode(PACK_PTX));
    const memory = new addon.Memory(device, weightPlan.packedBytes);
    try {
      memory.fill(0xff);
      const times = await loadDeviceWeights({ addon, device, pack, weightPlan, loadPlan, weights: memory });
      const [placed] = weightPlan.weights;
      return { times, values: new Float32Array(await memory.readAsync(0, placed!.bytes)) };
    } finally {
      memory.release();
      pack.release();
      device.release();
    }
  }

  const partsOf = (source: EncodedSource): number => fileRanges(source).reduce((sum, { bytes }) => sum + bytes, 0);
  const isDecodedHere = ({ steps }: LoadPlan): boolean =>
    steps.every(({ copies }) => copies.every(({ file }) => typeof file === 'string'));

  it.each(NAMES)('%s: values, from the bytes of the file', async (name) => {
    const { source, values } = sampleSource(folder, name, ENCODINGS[name]!, ROWS, K, 3);
    const weightPlan = planOf(source);
    const loadPlan = planLoading(weightPlan);
    expect(isDecodedHere(loadPlan)).toBe(true);
    const { times, values: got } = await load(weightPlan, loadPlan);
    expect(Buffer.from(got.buffer).equals(Buffer.from(Float32Array.from(values()).buffer))).toBe(true);
    // Columns in another order are sorted by the host.
    expect(times.copiedBytes).toBe(name === 'gptqGroups' ? ROWS * K * 4 : partsOf(source));
  });

  it('gptqGroups: from the bytes of the file where columns are in order', async () => {
    const { source, values } = sampleSource(folder, 'in_order', ENCODINGS['gptqGroups']!, ROWS, K, 6, (parts) => ({
      ...parts,
      groups: new Uint8Array(Int32Array.from({ length: K }, (_, i) => Math.floor(i / 32)).buffer),
    }));
    const weightPlan = planOf(source);
    const { times, values: got } = await load(weightPlan, planLoading(weightPlan));
    expect(Buffer.from(got.buffer).equals(Buffer.from(Float32Array.from(values()).buffer))).toBe(true);
    expect(times.copiedBytes).toBe(partsOf(source) - 4 * K);
  });

  const views = NAMES.flatMap((name) => [VIEW, TURNS].map((view) => [name, view] as const));
  it.each(views.filter((_, i) => isThorough || i % 3 === 0))(
    '%s: blocks of rows, in small buffers, $rows',
    async (name, view) => {
      const { source, values } = sampleSource(folder, `${name}_part${view.rows}`, ENCODINGS[name]!, ROWS, K, 4);
      const part: EncodedSource = { ...source, shape: [27, K], view };
      const all = values();
      const wanted = Float32Array.from(
        { length: 27 * K },
        (_, i) => all[encodedRow(part, Math.floor(i / K)) * K + (i % K)]!,
      );
      const weightPlan = planOf(part);
      const made = new Set<boolean>();
      for (const staging of [2 * K * 4, 5000, 20_000]) {
        const loadPlan = planLoading(weightPlan, staging);
        made.add(isDecodedHere(loadPlan));
        const { values: got } = await load(weightPlan, loadPlan);
        expect(Buffer.from(got.buffer).equals(Buffer.from(wanted.buffer)), `${staging}`).toBe(true);
      }
      expect(made.has(true)).toBe(true);
      // Rows in equal steps are one launch, wherever they are decoded.
      for (const isOnHost of [false, true]) {
        const { steps } = planLoading(weightPlan, undefined, () => isOnHost);
        expect(steps.flatMap(({ layings }) => layings)).toHaveLength(view === TURNS ? 1 : 3);
      }
    },
  );

  it.each([
    ['gptq', 'scales', [0, 0x7c], 'infinite'],
    ['packed', 'scales', [0, 0], '0'],
    ['fp8Powers', 'scales', [255], 'no number'],
    ['q4_k', 'blocks', [0, 0x20, 0xff, 0x7f], 'not finite'],
    ['q6_k', 'blocks', undefined, 'not finite'],
    ['mxfp4Blocks', 'blocks', [255], 'not finite'],
  ] as const)('%s: a scale that is none is named as the host names it', async (name, part, bits, what) => {
    const encoding: Encoding = ENCODINGS[name]!;
    const { source } = sampleSource(folder, `${name}_damaged`, encoding, ROWS, K, 5, (parts) => {
      const changed = Uint8Array.from(parts[part]!);
      if (bits === undefined) changed.set([0, 0x7e], 210 * 17 + 208);
      else changed.set(bits, name === 'q4_k' ? 144 * 21 : name === 'mxfp4Blocks' ? 17 * 21 : 64 * bits.length);
      return { ...parts, [part]: changed };
    });
    const weightPlan = planOf(source);
    expect(isDecodedHere(planLoading(weightPlan))).toBe(true);
    const errors = await Promise.all(
      [planLoading(weightPlan), planLoading(weightPlan, undefined, () => true)].map((loadPlan) =>
        load(weightPlan, loadPlan).then(
          () => undefined,
          (error: unknown) => error,
        ),
      ),
    );
    expect(errors[0]).toBeInstanceOf(UserError);
    expect(String(errors[0])).toBe(String(errors[1]));
    expect(String(errors[0])).toContain(what);
    expect(copiedBytesOf(planLoading(weightPlan))).toBe(partsOf(source));
  });
});
