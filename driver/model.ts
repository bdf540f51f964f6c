/** Opens a model: a checkpoint folder, a GGUF file, or a config.json with random weights. */
import type { Graph } from '../ir/graph/graph.js';
import type { DType } from '../ir/types.js';
import { type Checkpoint, openCheckpoint } from '../models/checkpoint.js';
import type { MaskKind, StepOptions } from '../models/model/model.js';
import { describeRandomCheckpoint } from '../models/randomCheckpoint.js';
import type { WeightInit } from './names.js';

export const openModel = (path: string, init: WeightInit): Checkpoint =>
  init.kind === 'random' ? describeRandomCheckpoint(path, init.seed) : openCheckpoint(path);

/** Stored element type of a tensor. */
const dtypeIn =
  ({ tensors, config }: Checkpoint) =>
  (name: string): DType =>
    tensors.get(name)?.format ?? config.dtype;

/** The model's function `score` in primitive ops. */
export const buildGraph = (checkpoint: Checkpoint, mask: MaskKind = 'tree'): Graph =>
  checkpoint.model.graph({ mask, dtypeOf: dtypeIn(checkpoint) });

/** The model's function `step` in primitive ops, over a cache of this shape. */
export const buildStepGraph = (checkpoint: Checkpoint, options: Omit<StepOptions, 'dtypeOf'>): Graph =>
  checkpoint.model.step({ ...options, dtypeOf: dtypeIn(checkpoint) });
