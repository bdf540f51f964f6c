/** A thread that packs adapters: the bytes that this thread packs, and why folders are refused. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { openAdapted } from '../../../driver/adapters/open.js';
import { packAdapter, type PackedSlot } from '../../../driver/adapters/pack.js';
import { PackApart } from '../../../driver/adapters/packApart.js';
import { UserError } from '../../../errors.js';
import type { WeightDecl } from '../../../ir/kernel.js';
import type { LowRank } from '../../../models/adapters/adapter.js';
import { writeCheckpoint } from '../../e2e/smallModel.js';
import { writeAdapter } from '../../support/writtenAdapters.js';

const THREAD = join(import.meta.dirname, '..', '..', '..', 'dist', 'driver', 'adapters', 'packThread.js');
const INIT = { kind: 'checkpoint' } as const;
const RANK = 16;

/** Weights with slots beside a matrix. */
function weightsBeside({ tensor, outputs: rows, inputs: k }: LowRank): readonly WeightDecl[] {
  const none = { kind: 'none' } as const;
  const stored = { layout: 'kmajor', format: 'bf16', pairing: none } as const;
  const slots = (holds: 'a' | 'b' | 'scale') => ({ slots: { count: 2, holds } });
  return [
    { name: `${tensor}.a`, ...stored, sources: [{ tensor, rows: RANK }], k, ...slots('a') },
    {
      name: `${tensor}.s`,
      ...stored,
      layout: 'rows',
      format: 'f32',
      sources: [{ tensor, rows: 1 }],
      k: 1,
      ...slots('scale'),
    },
    { name: `${tensor}.b`, ...stored, sources: [{ tensor, rows }], k: RANK, ...slots('b') },
  ];
}

describe.skipIf(!existsSync(THREAD))('a thread that packs adapters', () => {
  const path = writeCheckpoint();
  const opened = (seed: number) => {
    const adapterDir = writeAdapter({ seed, targets: ['q_proj'] });
    return openAdapted(path, INIT, { adapterDir }).adapter!;
  };
  const [one, other] = [opened(1), opened(2)];
  const weights = [...one.products.values()].flatMap(weightsBeside);
  const apart = new PackApart({ base: { path, init: INIT }, weights }, pathToFileURL(THREAD));
  afterAll(() => apart.close());

  const packed = async (named: { readonly hash: string; readonly path: string }): Promise<PackedSlot[]> => {
    const all: PackedSlot[] = [];
    await apart.pack(named, async (more) => void all.push(...more));
    return all;
  };

  it('packs what this thread packs, whoever asks', { timeout: 60_000 }, async () => {
    const wanted = [one, other].map((adapter) => [...packAdapter(adapter, { weights }, () => new Float32Array())]);
    expect(await Promise.all([packed(one), packed(other)])).toEqual(wanted);
  });

  it('refuses what has changed, and goes on', { timeout: 60_000 }, async () => {
    const changed = packed({ ...one, hash: other.hash });
    await expect(changed).rejects.toThrow(UserError);
    await expect(changed).rejects.toThrow('has changed since it was named');
    await expect(packed({ ...one, path: `${one.path}-gone` })).rejects.toThrow('no such folder');
    const unwritten = apart.pack(one, async () => Promise.reject(new Error('the device is gone')));
    await expect(unwritten).rejects.toThrow('the device is gone');
    expect(await packed(other)).toHaveLength(weights.length);
  });
});
