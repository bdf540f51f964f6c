/** Opens a model: a checkpoint folder, or a config.json with made-up weights. */
import { basename, dirname, resolve } from 'node:path';
import { UserError } from '../errors.js';
import type { Graph } from '../ir/graph.js';
import { describeRandomCheckpoint, openCheckpoint, type Checkpoint } from '../models/checkpoint.js';
import { ropeInverseFrequencies } from '../models/config.js';
import { buildLlama } from '../models/llama.js';
import type { MaskKind } from '../models/mask.js';

/** Where weights come from: the checkpoint, or a seed. */
export type WeightInit = { readonly kind: 'checkpoint' } | { readonly kind: 'random'; readonly seed: number };

/** Parses `random:SEED`. */
export function parseInit(text: string): WeightInit {
  const match = /^random:(\d{1,15})$/.exec(text);
  if (match === null) throw new UserError(`--init ${JSON.stringify(text)}: expected random:SEED with a whole number`, 'for example: --init random:1');
  return { kind: 'random', seed: Number(match[1]) };
}

export const openModel = (path: string, init: WeightInit): Checkpoint =>
  (init.kind === 'random' ? describeRandomCheckpoint(path, init.seed) : openCheckpoint(path));

/** A short name for results: the folder that holds the checkpoint, or the artifact without its `.tw`. */
export function modelName(path: string): string {
  const full = resolve(path);
  const name = basename(full.endsWith('.json') ? dirname(full) : full);
  return name.replace(/(?<=.)\.tw$/, '');
}

/** The model in primitive ops. */
export function buildGraph(checkpoint: Checkpoint, mask: MaskKind = 'tree'): Graph {
  return buildLlama(checkpoint.config, {
    mask,
    inverseFrequencies: ropeInverseFrequencies(checkpoint.config),
    dtypeOf: (name) => checkpoint.tensors.get(name)?.dtype ?? checkpoint.config.dtype,
  });
}
