/** Loading weights: what stays resident, what is shared, and what is refused before anything is read. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../ir/kernel.js';
import { loadAddon } from '../../runtime/addon.js';
import { loadWeights } from '../../runtime/cpu/loadWeights.js';
import { requireMemory } from '../../runtime/cpu/memoryUse.js';
import { FileMappings } from '../../runtime/files.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { planWeights } from '../../runtime/weightPlan.js';
import { elements, weightWorld } from '../support/weightWorld.js';
import { temporaryFolder } from './kernels.js';

const folder = temporaryFolder();
const ROWS = 4096;
const K = 1024;
const residentFileMiB = (): number =>
  Number(/^RssFile:\s+(\d+)/m.exec(readFileSync('/proc/self/status', 'utf8'))![1]) / 1024;

const weight = (change: Partial<WeightDecl> = {}): WeightDecl => ({
  name: 'w',
  layout: 'vnni',
  format: 'bf16',
  k: K,
  pairing: { kind: 'none' },
  sources: [{ tensor: 't', rows: ROWS }],
  ...change,
});

function tensorFile(): TensorSource {
  const file = join(folder, 'big.bin');
  writeFileSync(file, new Uint16Array(ROWS * K).fill(0x3f80));
  return { kind: 'file', format: 'bf16', shape: [ROWS, K], file, offset: 0, byteLength: ROWS * K * 2 };
}

describe('loadWeights', () => {
  it('releases the pages of the checkpoint once they are packed', async () => {
    const { Memory, Pool } = loadAddon();
    const plan = planWeights([weight()], [], new Map([['t', tensorFile()]]));
    const packed = new Memory(plan.packedBytes);
    const files = new FileMappings();
    const before = residentFileMiB();
    const slots = await loadWeights(plan, new Pool(2), files, packed);
    expect(residentFileMiB() - before).toBeLessThan(4);
    const slot = slots.get('w')!;
    expect(slot.bytes).toBe(ROWS * K * 2);
    expect(new Uint16Array(slot.memory.read(slot.offset, slot.bytes)).every((bits) => bits === 0x3f80)).toBe(true);
    files.release();
  });

  it('reads parts of tensors and rows in another order, and adds to factors, bit for bit', async () => {
    const { Memory, Pool } = loadAddon();
    const { tensors, ordered, expected } = weightWorld(folder);
    const declared = ordered.map((each): WeightDecl => (each.layout === 'rows' ? each : { ...each, layout: 'panels' }));
    const plan = planWeights(declared, [], tensors);
    const files = new FileMappings();
    const slots = await loadWeights(plan, new Pool(2), files, new Memory(plan.packedBytes));
    for (const each of declared) {
      const { memory, offset, bytes } = slots.get(each.name)!;
      expect(elements(each, memory.read(offset, bytes)), each.name).toEqual(expected(each));
    }
    files.release();
  });

  it('maps what kernels can read in place, and copies the rest', () => {
    const tensors = new Map([
      ['t', tensorFile()],
      ['n', { kind: 'constant', format: 'f32', shape: [K], value: 1 }],
    ] as const);
    const kindOf = (change: Partial<WeightDecl>): string => planWeights([weight(change)], [], tensors).weights[0]!.kind;
    expect(kindOf({ layout: 'rows' })).toBe('mapped');
    expect(kindOf({ layout: 'rows', format: 'f32' })).toBe('packed');
    expect(kindOf({ layout: 'rows', columnScale: 'n' })).toBe('packed');
    expect(kindOf({ layout: 'panels' })).toBe('packed');
  });

  it('keeps weights separate that differ in anything but their name', () => {
    const tensors = new Map([
      ['t', tensorFile()],
      ['n', { kind: 'constant', format: 'f32', shape: [K], value: 1 }],
    ] as const);
    const declared = [
      weight({ name: 'a' }),
      weight({ name: 'b' }),
      weight({ name: 'c', layout: 'panels' }),
      weight({ name: 'd', columnScale: 'n' }),
      weight({ name: 'e', pairing: { kind: 'rotate', headDim: 64, width: 16 } }),
      weight({ name: 'f', pairing: { kind: 'rotate', headDim: 64, width: 8 } }),
    ];
    expect(planWeights(declared, [], tensors).weights.map(({ names }) => names)).toEqual([
      ['a', 'b'],
      ['c'],
      ['d'],
      ['e'],
      ['f'],
    ]);
  });

  it('refuses a plan that this machine cannot hold, with the numbers', () => {
    expect(() =>
      requireMemory({ mappedBytes: 0, packedBytes: 2 ** 50, arenaBytes: 1, stateBytes: 0, scratchBytes: 1 }),
    ).toThrow(/needs 1,024 TiB.*this machine has/);
    requireMemory({ mappedBytes: 2 ** 50, packedBytes: 1, arenaBytes: 1, stateBytes: 0, scratchBytes: 1 });
  });
});
