/** Opens a model: a checkpoint folder, or a config.json with random weights. */
import type { Graph } from '../ir/graph/graph.js';
import { describeRandomCheckpoint, openCheckpoint, type Checkpoint } from '../models/checkpoint.js';
import type { MaskKind } from '../models/family/mask.js';
import type { WeightInit } from './names.js';

export const openModel = (path: string, init: WeightInit): Checkpoint =>
  init.kind === 'random' ? describeRandomCheckpoint(path, init.seed) : openCheckpoint(path);

/** The model in primitive ops. */
export function buildGraph(checkpoint: Checkpoint, mask: MaskKind = 'tree'): Graph {
  return checkpoint.model.graph({
    mask,
    dtypeOf: (name) => checkpoint.tensors.get(name)?.format ?? checkpoint.config.dtype,
  });
}
