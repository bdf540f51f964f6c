/** Panels of quads equal their reference, and blocks with scales that are none are refused. */
import { describe, expect, it } from 'vitest';
import { byteCodes, type Encoding } from '../../ir/encoding.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { logicalWeight } from '../../ir/logicalWeight.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { BLOCK_NAMES, FORMATS } from '../../ir/storage.js';
import { loadAddon } from '../../runtime/addon.js';
import type { PackSource } from '../../runtime/native.js';
import { codePanels, ENCODINGS, quadPanels, sampleParts } from '../support/encodedSamples.js';

const { Memory, Pool, pack } = loadAddon();
const [ROWS, K] = [45, 512];

describe('panels of quads', () => {
  const pool = new Pool(2);
  const decl = (format: (typeof BLOCK_NAMES)[number]): WeightDecl => ({
    name: 'w',
    layout: 'quads',
    format,
    k: K,
    pairing: { kind: 'interleave', width: 16 },
    sources: [
      { tensor: 'a', rows: ROWS },
      { tensor: 'b', rows: ROWS },
    ],
  });

  async function packed(format: (typeof BLOCK_NAMES)[number], parts: readonly Uint8Array[]): Promise<Uint8Array> {
    const weight = decl(format);
    const rowMap = physicalToLogical(weight);
    const bytes = packedBytes(weight, rowMap.length);
    const target = new Memory(bytes);
    const sources = parts.map((blocks) => {
      const memory = new Memory(blocks.length + 3);
      memory.write(3, blocks);
      return {
        kind: 'encoded' as const,
        format: FORMATS.f32.code,
        rows: ROWS,
        k: K,
        name: 'w',
        encoding: ENCODINGS[format]!,
        parts: { blocks: { memory, offset: 3 } },
      };
    });
    const job = { layout: 'quads', format: FORMATS[format].code, quads: format, k: K, rowMap, sources } as const;
    await pack(pool, { ...job, target: { memory: target, offset: 0, bytes } });
    return new Uint8Array(target.read(0, bytes));
  }

  it.each(BLOCK_NAMES)('of %s', async (format) => {
    const parts = [1, 2].map((seed) => sampleParts(ENCODINGS[format]!, ROWS, K, seed).blocks!);
    const both = new Uint8Array([...parts[0]!, ...parts[1]!]);
    const want = quadPanels(format, both, K, physicalToLogical(decl(format)));
    expect(Buffer.from(await packed(format, parts)).equals(Buffer.from(want))).toBe(true);
  });

  it('refuse an infinite scale, and blocks of another format', async () => {
    const parts = [1, 2].map((seed) => sampleParts(ENCODINGS['q8_0']!, ROWS, K, seed).blocks!);
    parts[1]!.set([0, 0x7c], 34);
    await expect(packed('q8_0', parts)).rejects.toThrow('the scale of row 0, column 32 is not finite');
  });
});

describe('panels of whole rows', () => {
  const pool = new Pool(2);
  const width = 70;
  const decl: WeightDecl = {
    name: 'w',
    layout: 'quads',
    format: 'i8',
    k: width,
    pairing: { kind: 'none' },
    sources: [{ tensor: 'w', rows: ROWS }],
  };
  const scalesOf = { format: 'i8', k: width } as const;
  const scaleDecl: WeightDecl = { ...decl, layout: 'rows', format: 'f32', k: 1, scalesOf };
  type Kind = 'stored' | 'rounded';

  /** The packed codes, and the scales of rows. */
  async function packed(source: PackSource, codes: Kind): Promise<readonly [Uint8Array, Float32Array]> {
    const rowMap = physicalToLogical(decl);
    const bytes = packedBytes(decl, rowMap.length);
    const target = new Memory(bytes + 4 * ROWS + 64);
    const job = { k: width, sources: [source], codes } as const;
    const slot = { memory: target, offset: 0, bytes };
    await pack(pool, { ...job, layout: 'quads', format: FORMATS.i8.code, quads: 'i8', rowMap, target: slot });
    const place = { memory: target, offset: Math.ceil(bytes / 64) * 64, bytes: 4 * ROWS };
    const rows = physicalToLogical(scaleDecl);
    await pack(pool, { ...job, layout: 'rows', format: FORMATS.f32.code, rowMap: rows, target: place });
    return [new Uint8Array(target.read(0, bytes)), new Float32Array(target.read(place.offset, place.bytes))];
  }

  const memoryOf = (bytes: Uint8Array): { readonly memory: InstanceType<typeof Memory>; readonly offset: number } => {
    const memory = new Memory(bytes.length + 1);
    memory.write(1, bytes);
    return { memory, offset: 1 };
  };

  it('are rounded as the graph says, a row of zeros too', async () => {
    const values = Float64Array.from({ length: ROWS * width }, (_v, i) =>
      Math.floor(i / width) === 3 ? 0 : Math.fround(Math.sin(i * i + 1) * 2 ** ((i / width) % 9)),
    );
    const { memory, offset } = memoryOf(FORMATS.f32.encode(values));
    const source: PackSource = { kind: 'memory', format: FORMATS.f32.code, rows: ROWS, memory, offset };
    const [codes, scales] = await packed(source, 'rounded');
    const tensors = new Map([['w', { rows: ROWS, columns: width, data: values }]]);
    const want = Int8Array.from(logicalWeight(decl, tensors, true));
    expect(Buffer.from(codes).equals(Buffer.from(codePanels(want, width, physicalToLogical(decl))))).toBe(true);
    expect([...scales]).toEqual([...logicalWeight(scaleDecl, tensors, true)]);
  });

  it.each([1, ROWS])('stay as they are stored, with a scale for %i rows', async (blockRows) => {
    const stored = Int8Array.from({ length: ROWS * width }, (_v, i) => ((i * 37) % 256) - 128);
    const scales = Float64Array.from({ length: ROWS / blockRows }, (_v, i) => 2 ** -(i % 5) * 1.5);
    const grid = { type: 'bf16', blockRows, blockColumns: width, isTransposed: false } as const;
    const encoding: Encoding = {
      kind: 'codes',
      codes: byteCodes('i8'),
      scales: grid,
      zero: { kind: 'constant', value: 0 },
      hasGroups: false,
    };
    const parts = {
      codes: memoryOf(new Uint8Array(stored.buffer)),
      scales: memoryOf(FORMATS.bf16.encode(scales)),
    };
    const source = { kind: 'encoded', format: FORMATS.f32.code, rows: ROWS, k: width, name: 'w' } as const;
    const [codes, own] = await packed({ ...source, encoding, parts }, 'stored');
    expect(Buffer.from(codes).equals(Buffer.from(codePanels(stored, width, physicalToLogical(decl))))).toBe(true);
    expect([...own]).toEqual(Array.from({ length: ROWS }, (_v, row) => scales[Math.floor(row / blockRows)]));

    const shifted: Encoding = { ...encoding, zero: { kind: 'constant', value: 3 } };
    await expect(packed({ ...source, encoding: shifted, parts }, 'stored')).rejects.toThrow(
      'a source has no codes of 8 bits with scales for rows',
    );
    scales[0] = Infinity;
    const broken = { ...parts, scales: memoryOf(FORMATS.bf16.encode(scales)) };
    await expect(packed({ ...source, encoding, parts: broken }, 'stored')).rejects.toThrow('is infinite');
  });
});
