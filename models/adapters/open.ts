/** Opens an adapter of a checkpoint: which matrices it changes, and how. */
import { createHash, type Hash } from 'node:crypto';
import { resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { isFolder } from '../../system/read.js';
import type { Checkpoint } from '../checkpoint.js';
import { readConfig } from '../config.js';
import { ARCHITECTURES } from '../families/registry.js';
import type { Model } from '../model/model.js';
import type { Adapter } from './adapter.js';
import type { TensorChange } from './change.js';
import { collect, type Collected } from './collect.js';
import { ADAPTER_HINT, type AdapterConfig, readAdapterConfig } from './config.js';
import { type AdapterFile, type AdapterTensor, openAdapterFile } from './files.js';
import { modelForTask, modulesOf } from './modules.js';
import { resolveModules } from './resolve.js';
import { Targets } from './targets.js';

/** An adapter, and the model that it makes of its base. */
export interface ResolvedAdapter extends Adapter {
  /** Of its own head, or with a head or biases that the base does not have. */
  readonly model: Model;
  /** By tensor: of those in `replaced`. */
  readonly changes: ReadonlyMap<string, TensorChange>;
}

/** Rows that are read at once to hash a tensor. */
const PIECE_FLOATS = 1 << 20;

/** Hashes the values of a tensor as f32. Throws UserError where one is no finite number. */
function hashValues(hash: Hash, file: AdapterFile, tensor: AdapterTensor): void {
  const [rows = 0, columns = 1] = tensor.shape;
  const step = Math.max(1, Math.floor(PIECE_FLOATS / columns));
  for (let first = 0; first < rows; first += step) {
    const values = file.read(tensor, first, Math.min(step, rows - first));
    for (let i = 0; i < values.length; i++)
      if (!Number.isFinite(values[i]!))
        throw new UserError(`${file.file}: tensor ${quote(tensor.name, 160)} holds ${values[i]}`, ADAPTER_HINT);
    hash.update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  }
}

/** The hash of what modules are changed by, in the order of their names: no name of a file, no type of storage. */
function hashOf(
  file: AdapterFile,
  owned: Collected['owned'],
  scales: ReadonlyMap<AdapterTensor, number>,
  config: AdapterConfig,
): string {
  const hash = createHash('sha256').update('tilewright adapter 1\n');
  hash.update(`${JSON.stringify([config.head, config.keepsTie, config.hasMagnitudes, config.tokens])}\n`);
  for (const [path, { wrappers }] of [...owned].sort(([a], [b]) => (a < b ? -1 : 1)))
    for (const [depth, parts] of wrappers.entries())
      for (const [part, tensor] of [...parts].sort(([a], [b]) => (a < b ? -1 : 1))) {
        hash.update(`${JSON.stringify([path, depth, part, tensor.shape, scales.get(tensor) ?? null])}\n`);
        hashValues(hash, file, tensor);
      }
  return hash.digest('hex');
}

/** model_type of the base. */
function typeOf({ configPath, config }: Checkpoint): string | undefined {
  const stated = configPath.endsWith('config.json') ? readConfig(configPath)['model_type'] : undefined;
  if (typeof stated === 'string') return stated;
  return ARCHITECTURES.find(({ name }) => name === config.architecture)?.modelType;
}

/**
 * Opens the adapter in the folder `dir`, as PEFT writes it, for a checkpoint. Reads all of its files. Throws UserError
 * where it is damaged, does not fit the checkpoint, or is of a kind that is not supported.
 */
export function openAdapter(dir: string, checkpoint: Checkpoint): ResolvedAdapter {
  if (!isFolder(dir))
    throw new UserError(
      `${dir}: no such folder`,
      'give the folder of a PEFT adapter: adapter_config.json and adapter_model.safetensors',
    );
  const path = resolve(dir);
  const config = readAdapterConfig(path);
  const file = openAdapterFile(path);
  const headShape = (name: string): readonly number[] | undefined =>
    file.tensors.find(({ path: module, part }) => `${module}.${part}` === name)?.shape;
  const model = modelForTask(checkpoint, config.head, headShape, ADAPTER_HINT);
  const modules = modulesOf(model);
  const collected = collect(file, modules, model);
  const targets = new Targets(config, config.targets === 'usual' ? typeOf(checkpoint) : undefined);
  const resolved = resolveModules({ config, file, targets, model, modules, collected });
  const hash = hashOf(file, collected.owned, resolved.scales, config);
  const ranks = [...resolved.products.values()].map(({ rank }) => rank);
  const isAsTold = [...collected.owned.values()].some(({ module }) => module.parameters.get('weight')?.isTurned);
  const notes: string[] = [];
  if (config.isTurned && !isAsTold)
    notes.push(
      `${config.where}: fan_in_fan_out is true, but matrices of this model are [out, in]: ignored, as by PEFT`,
    );
  if (collected.beside > 0)
    notes.push(`${path}: ${collected.beside} tensors are of modules beside the language model, and are not used`);
  return {
    path,
    hash,
    products: resolved.products,
    rank: ranks.reduce((most, rank) => Math.max(most, rank), 0),
    replaced: [...resolved.changes.keys()],
    changes: resolved.changes,
    model: resolved.model,
    sizeBytes: file.sizeBytes,
    warnings: notes,
  };
}
