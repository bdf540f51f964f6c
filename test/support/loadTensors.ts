/** Tensors of a checkpoint as the addon loads them. */
import type { Checkpoint } from '../../models/checkpoint.js';
import { loadAddon } from '../../runtime/addon.js';
import { loadWeights } from '../../runtime/cpu/loadWeights.js';
import { FileMappings } from '../../runtime/files.js';
import { planWeights } from '../../runtime/weightPlan.js';

/** All of them by name, in f32. */
export async function loadAll({ tensors }: Pick<Checkpoint, 'tensors'>): Promise<ReadonlyMap<string, Float32Array>> {
  const { Memory, Pool } = loadAddon();
  const files = new FileMappings();
  const weights = [...tensors.values()].map(({ name, shape }) => ({
    name,
    layout: 'rows' as const,
    format: 'f32' as const,
    k: shape.length === 1 ? 1 : shape.at(-1)!,
    pairing: { kind: 'none' as const },
    sources: [{ tensor: name, rows: shape[0]! }],
  }));
  const plan = planWeights(weights, [], tensors, { isMapping: false });
  const slots = await loadWeights(plan, new Pool(1), files, new Memory(plan.packedBytes));
  const values = [...slots].map(([name, { memory, offset, bytes }]) => {
    const own = plan.weights.find(({ names }) => names.includes(name))!;
    return [name, new Float32Array(memory.read(offset, Math.min(bytes, own.bytes)))] as const;
  });
  files.release();
  return new Map(values);
}
