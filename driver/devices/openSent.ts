/** Opens what a device process was sent: the model that its parent has compiled, and the files of its weights. */
import type { Checkpoint } from '../../models/checkpoint.js';
import { checkpointOf } from '../artifact/checkpoint.js';
import { codeOf } from '../artifact/load.js';
import { readManifest, rebuild, rebuildFor } from '../artifact/manifest.js';
import { openModel } from '../model.js';
import { isArtifact } from '../names.js';
import { unpackModel } from '../plans/packedModel.js';
import type { PackedCode } from '../targets/machineCode.js';
import type { CompiledModel, Rebuild } from '../targets/target.js';
import type { DeviceRequest } from './protocol.js';

export interface SentModel {
  readonly checkpoint: Checkpoint;
  readonly model: CompiledModel;
  readonly rebuild: Rebuild;
  /** Machine code of an artifact. */
  readonly packed: PackedCode | undefined;
}

/** Throws UserError if files are missing or invalid. */
export function openSent(
  { model: path, init, checkpoint: elsewhere, trustsCode = false }: DeviceRequest,
  bytes: Uint8Array,
): SentModel {
  const model = unpackModel(bytes);
  if (!isArtifact(path)) {
    const checkpoint = openModel(path, init);
    return { checkpoint, model, rebuild: rebuildFor('model.tw', { path, init }, model), packed: undefined };
  }
  const manifest = readManifest(path);
  const { model: named, target, cacheTokens, kvCache, logits } = manifest;
  const again = rebuild(path, {
    model: named,
    arithmetic: target.arithmetic,
    target: model.target.option(model.device),
    cacheTokens,
    kvCache,
    logits,
  });
  return {
    checkpoint: checkpointOf(path, manifest, elsewhere),
    model,
    rebuild: rebuildFor(path, named, model),
    packed: codeOf(path, { manifest, model, again }, trustsCode),
  };
}
