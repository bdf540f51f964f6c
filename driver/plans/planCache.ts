/**
 * Plans that were made before, in the cache folder. An entry is found by everything that a plan depends on: the model
 * as its configuration and its tensors say, the machine, the options and this program's code. So what is found is what
 * planning would give, and is used as it is; cacheEntries.ts says whom that trusts.
 */
import { createHash } from 'node:crypto';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { MaskKind } from '../../models/model/model.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import { keepCacheEntry, readCacheEntry } from '../cacheEntries.js';
import { programId } from '../programId.js';
import type { KvCache } from '../target.js';
import type { AnyTarget, CompiledModel, Target } from '../targets/target.js';
import { packKnown, printData, unpackModel } from './packedModel.js';

/** What a plan can be asked for. */
export interface PlanOptions {
  readonly mask?: MaskKind;
  /** Largest micro-batch, in packed tokens. Default: the model's context, within the target's bounds. */
  readonly batchTokens?: number;
  /** Adds the function `step`, with memory for the keys and values of this many tokens. */
  readonly cacheTokens?: number;
  /** How keys and values are kept. Default: in the type that attention multiplies. */
  readonly kvCache?: KvCache;
  /** `step` chooses tokens from whole rows of logits where it is asked to. */
  readonly logits?: boolean;
  /** `step` takes tokens that the call before it has drawn. Such a plan is for one device: it is no pipeline. */
  readonly feeds?: boolean;
}

/** Everything that planning reads. Where the values of a tensor lie is no part of it, nor what they are. */
export interface Planned<D> {
  readonly checkpoint: Pick<Checkpoint, 'config' | 'model' | 'tensors'>;
  readonly target: Pick<Target<unknown, D>, 'name'>;
  readonly device: D;
  readonly options: PlanOptions;
}

/** How a tensor is stored: whatever decides about kernels and layouts. */
function storageOf(tensor: TensorLocation): readonly unknown[] {
  switch (tensor.kind) {
    case 'encoded':
      return [tensor.encoding, tensor.rows, tensor.view];
    case 'random':
      return [tensor.group];
    case 'file':
    case 'assembled':
    case 'constant':
      return [];
    default:
      return tensor satisfies never;
  }
}

/** The key of a plan: SHA-256, hexadecimal. `program`: of the code that plans. */
export function planKey<D>({ checkpoint, target, device, options }: Planned<D>, program = programId()): string {
  const { config, model, tensors } = checkpoint;
  const hash = createHash('sha256');
  const add = (data: unknown): void => {
    hash.update(`${printData(data)}\n`);
  };
  const { mask, batchTokens, cacheTokens, kvCache, logits, feeds } = options;
  add({ program, target: target.name, device, mask, batchTokens, cacheTokens, kvCache, logits, feeds });
  add(config);
  // A family names its tensors in more than one way, and reads parts of them.
  hash.update(JSON.stringify(model.tensors));
  // Thousands of tensors are stored in a few ways.
  const ways = new Map<string, number>();
  const lines: string[] = [];
  for (const [name, tensor] of tensors) {
    const storage = storageOf(tensor);
    const way = `${tensor.kind} ${tensor.format} ${storage.length === 0 ? '' : JSON.stringify(storage)}`;
    let number = ways.get(way);
    if (number === undefined) {
      number = ways.size;
      ways.set(way, number);
      add(way);
    }
    lines.push(name, `${number} ${tensor.shape.join(' ')}`);
  }
  return hash.update(JSON.stringify(lines)).digest('hex');
}

/** The model of an entry; undefined where there is none, or its bytes are no model. */
export function readModel<S, D>(key: string, target: Target<S, D>): CompiledModel<S, D> | undefined {
  const bytes = readCacheEntry('plan', key);
  if (bytes === undefined) return undefined;
  try {
    return unpackModel(bytes, [target as AnyTarget]) as CompiledModel<S, D>;
  } catch {
    return undefined;
  }
}

/** Keeps a model, and returns it with the digest of its plan. */
export function keepModel<S, D>(key: string, compiled: CompiledModel<S, D>): CompiledModel<S, D> {
  const { bytes, model } = packKnown(compiled as CompiledModel);
  keepCacheEntry('plan', key, bytes);
  return model as CompiledModel<S, D>;
}
