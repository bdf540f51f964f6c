/** Panels of quads equal their reference, and blocks with scales that are none are refused. */
import { describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { BLOCK_NAMES, FORMATS } from '../../ir/storage.js';
import { loadAddon } from '../../runtime/addon.js';
import { ENCODINGS, sampleParts } from '../support/encodedSamples.js';
import { quadPanels } from '../support/quadPanels.js';

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
