/** Hostile quantized checkpoints: refused, or every weight is loaded from where its tensors are. */
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { type Checkpoint, openCheckpoint } from '../../models/checkpoint.js';
import type { Json } from '../../models/model/model.js';
import { loadAddon } from '../../runtime/addon.js';
import { loadWeights } from '../../runtime/cpu/loadWeights.js';
import { FileMappings } from '../../runtime/files.js';
import { planWeights } from '../../runtime/weightPlan.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import type { StoredBytes } from '../support/quantizeMatrix.js';
import { pick, type Random, several } from './mutate.js';
import { scratch } from './scratch.js';

const CONFIG: Json = {
  ...{ model_type: 'llama', hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, vocab_size: 9 },
  ...{ num_attention_heads: 1, max_position_embeddings: 32, tie_word_embeddings: true },
};
const known = new Map<string, ReadonlyMap<string, StoredBytes>>();
const PARTS = ['gptq', 'awq', 'fp8', 'marlin', -1, 2, 3, 4, 8, 32, 64, 128, [1, 1], [64, 64], [1, 2 ** 40], 'group'];
const DTYPES = ['I32', 'F16', 'BF16', 'F32', 'I8', 'F8_E4M3', 'F8_E8M0', 'U8', 'I64'];
const BYTES: Readonly<Record<string, number>> = { I32: 4, F32: 4, F16: 2, BF16: 2, I64: 8 };

/** One tensor with some bytes changed, gone, of another type or shape, or under another name. */
function mutateTensors(tensors: ReadonlyMap<string, StoredBytes>, random: Random): Map<string, StoredBytes> {
  const all = new Map(tensors);
  const name = pick(random, [...all.keys()]);
  const tensor = all.get(name)!;
  const kind = pick(random, ['bytes', 'bytes', 'bytes', 'gone', 'shape', 'type', 'name'] as const);
  const bytes = Uint8Array.from(tensor.bytes);
  switch (kind) {
    case 'bytes':
      for (let i = 0; i < 8; i++) bytes[Math.floor(random() * bytes.length)] = pick(random, [0, 0xff, 0x7c, 0x80, 1]);
      all.set(name, { ...tensor, bytes });
      break;
    case 'gone':
      all.delete(name);
      break;
    case 'shape': {
      const shape = pick(random, [[...tensor.shape].reverse(), [1, ...tensor.shape], tensor.shape.slice(1), []]);
      const count = shape.reduce((product, extent) => product * extent, BYTES[tensor.dtype] ?? 1);
      all.set(name, { ...tensor, shape, bytes: new Uint8Array(count).fill(0x3c) });
      break;
    }
    case 'type': {
      const dtype = pick(random, DTYPES);
      const count = tensor.shape.reduce((product, extent) => product * extent, BYTES[dtype] ?? 1);
      all.set(name, { dtype, shape: tensor.shape, bytes: new Uint8Array(count).fill(0x3c) });
      break;
    }
    case 'name':
      all.delete(name);
      all.set(pick(random, [`${name}s`, `x.${name}`, name.replace('q_proj', 'k_proj')]), tensor);
      break;
    default:
      kind satisfies never;
  }
  return all;
}

async function loadAll({ tensors }: Checkpoint): Promise<void> {
  const { Memory, Pool } = loadAddon();
  const files = new FileMappings();
  const weights = [...tensors.values()].map(({ name, shape }) => ({
    name,
    layout: 'panels' as const,
    format: 'f32' as const,
    k: shape.length === 1 ? 1 : shape.at(-1)!,
    pairing: { kind: 'none' as const },
    sources: [{ tensor: name, rows: shape[0]! }],
  }));
  try {
    const plan = planWeights(weights, [], tensors);
    await loadWeights(plan, new Pool(1), files, new Memory(plan.packedBytes));
  } finally {
    files.release();
  }
}

export const quantized = {
  about: 'quantized checkpoints',
  rounds: 50,
  round: async (random: Random): Promise<void> => {
    const name = pick(random, Object.keys(FORMATS));
    const format = FORMATS[name]!;
    const tensors = known.get(name) ?? quantizedTensors(CONFIG, format.write, 1).tensors;
    known.set(name, tensors);
    const config = (random() < 0.5 ? several(format.config, random, PARTS) : format.config) as Json;
    const changed = random() < 0.6 ? mutateTensors(tensors, random) : tensors;
    const inConfig = { config, write: format.write };
    const dir = mkdtempSync(join(scratch(), 'quantized-'));
    try {
      writeQuantized(dir, CONFIG, random() < 0.5 ? inConfig : { ...format, config }, safetensorsOf(changed));
      await loadAll(openCheckpoint(dir));
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
    } finally {
      rmSync(dir, { recursive: true });
    }
  },
};
