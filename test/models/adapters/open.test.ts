/** The adapters that PEFT wrote, opened for their bases. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openAdapter } from '../../../models/adapters/open.js';
import { openCheckpoint } from '../../../models/checkpoint.js';

/** Shared data beside the project, where it is there. */
const SHARED = join(import.meta.dirname, '..', '..', '..', '..', 'shared');
const ADAPTERS = join(SHARED, 'checkpoints', 'adapters');

describe.skipIf(!existsSync(ADAPTERS))('adapters of PEFT', () => {
  it('q and v of each layer ride', () => {
    const base = openCheckpoint(join(SHARED, 'checkpoints', 'families', 'mistral'));
    const adapter = openAdapter(join(ADAPTERS, 'mistral-qv'), base);
    expect([...adapter.products.keys()].sort().slice(0, 2)).toEqual([
      'model.layers.0.self_attn.q_proj.weight',
      'model.layers.0.self_attn.v_proj.weight',
    ]);
    expect(adapter.products.size).toBe(8);
    const { scale, rank, inputs, outputs, read } = adapter.products.get('model.layers.0.self_attn.v_proj.weight')!;
    expect([scale, rank, inputs, outputs]).toEqual([2, 8, 64, 32]);
    const { a, b } = read();
    expect([a.length, b.length]).toEqual([512, 256]);
    expect(adapter.replaced).toEqual([]);
    expect(adapter.hash).toMatch(/^[0-9a-f]{64}$/);
  });
});
