import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decodeEncoded, PART_NAMES } from '../../ir/encoding.js';
import { FORMATS } from '../../ir/storage.js';
import type { StoredTensor } from '../../models/model/tensors.js';
import { quantizedTensors, readMethod } from '../../models/quantized/index.js';
import {
  gptqBytes,
  gptqConfig,
  type GptqSettings,
  gptqShapeProblem,
  gptqTensors,
} from '../../models/quantized/packed.js';
import { layOut, readSafetensorsHeader } from '../../models/weights/safetensors.js';
import { randomOf } from '../fuzz/mutate.js';
import { temporaryFolder } from './support.js';

const SETTINGS: readonly GptqSettings[] = [
  { bits: 4, group: 32, isSymmetric: true, isOrdered: false },
  { bits: 4, group: 64, isSymmetric: false, isOrdered: true },
  { bits: 8, group: -1, isSymmetric: false, isOrdered: false },
];

describe('tensors of GPTQ', () => {
  it.each(SETTINGS)('are read as they were written: $bits bits, groups of $group', (settings) => {
    const [rows, k] = [24, 128];
    const next = randomOf(11);
    const below = (most: number): number => Math.floor(next() * most);
    const groups = settings.group === -1 ? 1 : k / settings.group;
    const order = Int32Array.from({ length: k }, (_, i) => i);
    if (settings.isOrdered) order.sort(() => next() - 0.5);
    const codes = Uint8Array.from({ length: rows * k }, () => below(2 ** settings.bits));
    const zeros = Uint8Array.from({ length: groups * rows }, () => 1 + below(2 ** settings.bits - 1));
    const scales = Uint16Array.from({ length: groups * rows }, () => 1 + below(0x7bff));
    const layout = layOut([
      { name: 'norm.weight', dtype: 'BF16', shape: [3], byteLength: 6 },
      ...gptqTensors('layer.q', [rows, k], settings),
    ]);
    const file = join(temporaryFolder(), 'model.safetensors');
    const bytes = Buffer.alloc(layout.sizeBytes);
    bytes.set(layout.header);
    const parts = gptqBytes({ codes, scales, zeros, order }, settings);
    for (const { name, offset } of layout.entries) bytes.set(parts.get(name.replace('layer.q.', '')) ?? [], offset);
    writeFileSync(file, bytes);

    const { entries } = readSafetensorsHeader(file);
    expect(entries.every(({ offset, dtype }) => offset % (dtype === 'I32' ? 4 : 2) === 0)).toBe(true);
    const stored = new Map<string, StoredTensor>(entries.map((entry) => [entry.name, { ...entry, file }]));
    const expected = [{ name: 'layer.q.weight', shape: [rows, k], role: 'matrix' as const }];
    const { found, problems } = quantizedTensors(readMethod(gptqConfig(settings, {}), 'here'), stored, expected);
    expect(problems).toEqual([]);
    const tensor = found.get('layer.q.weight')!;
    if (!('encoding' in tensor)) throw new Error('it is not encoded');
    const whole = readFileSync(file);
    const read = PART_NAMES.flatMap((name) => {
      const part = tensor.places[name];
      return part === undefined ? [] : [[name, whole.subarray(part.offset, part.offset + part.byteLength)] as const];
    });
    const values = decodeEncoded(tensor.encoding, rows, k, Object.fromEntries(read));
    const factors = FORMATS.f16.decode(new Uint8Array(scales.buffer));
    const places = [...order.keys()].map((column) => order.indexOf(column));
    const wanted = Float64Array.from({ length: rows * k }, (_, i) => {
      const at = Math.floor(places[i % k]! / (k / groups)) * rows + Math.floor(i / k);
      return (codes[i]! - zeros[at]!) * factors[at]!;
    });
    expect(values).toEqual(wanted);
  });

  it('need rows and columns that fill words', () => {
    expect(gptqShapeProblem(64, 40, { bits: 4 })).toBeUndefined();
    expect(gptqShapeProblem(1, 64, { bits: 4 })).toBe('1 is no multiple of 8, the codes of a word');
    expect(gptqShapeProblem(64, 42, { bits: 8 })).toBe('42 is no multiple of 4, the codes of a word');
  });
});
