/** The checkpoint of an artifact: where it is, and whether all its bytes are those that were compiled. */
import { existsSync, readdirSync } from 'node:fs';
import { UserError } from '../../errors.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { verifyContents } from '../../models/contents.js';
import { pathInside } from '../../system/inside.js';
import { openModel } from '../model.js';
import { stepTo, type Ui } from '../requests.js';
import type { Artifact } from './load.js';
import { CHECKPOINT, type Manifest, rebuild } from './manifest.js';

/** Folder of the checkpoint inside an artifact. Throws UserError if one of its files lies elsewhere. */
function packedCheckpoint(dir: string, again: string): string {
  const path = pathInside(dir, CHECKPOINT, again);
  const names = existsSync(path) ? readdirSync(path).filter((name) => !name.startsWith('.')) : [];
  for (const name of names) pathInside(dir, `${CHECKPOINT}/${name}`, again);
  return path;
}

/** The checkpoint of an artifact: packed inside it, at the path in the manifest, or at the path that the user gives. */
export const checkpointOf = (dir: string, manifest: Manifest, elsewhere: string | undefined): Checkpoint =>
  openModel(checkpointPath(dir, manifest, elsewhere), manifest.model.init);

/** The folder or file of that checkpoint. Throws UserError if it is not there. */
export function checkpointPath(
  dir: string,
  { model, target, cacheTokens, kvCache, logits }: Manifest,
  elsewhere: string | undefined,
): string {
  const { arithmetic, kind } = target;
  const again = rebuild(dir, { model, arithmetic, target: kind, cacheTokens, kvCache, logits });
  const path = elsewhere ?? (model.isPacked ? packedCheckpoint(dir, again) : model.path);
  if (!existsSync(path))
    throw new UserError(
      `${dir}: its checkpoint ${path} is not there`,
      model.isPacked ? again : 'say where it is now: --checkpoint DIR',
    );
  return path;
}

/**
 * Compares all bytes of the weights with those that were compiled. Throws UserError if they differ or no hashes exist.
 */
export async function verifyWeights(
  dir: string,
  { manifest: { model }, again }: Artifact,
  checkpoint: Checkpoint,
  ui: Pick<Ui, 'phase' | 'step'>,
  signal?: AbortSignal,
): Promise<void> {
  if (model.contents === undefined)
    throw new UserError(
      `${dir}: holds no hashes of all bytes of its weights to verify them by`,
      `${again} --hash-weights`,
    );
  ui.phase('verify weights');
  await verifyContents(checkpoint, model.contents, {
    signal,
    hint: again,
    onProgress: (done, total) => stepTo(ui, { done, total, unit: 'bytes' }),
  });
}
