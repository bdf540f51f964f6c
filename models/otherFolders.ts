/** Folders that hold something else than a language model, by the files that other tools put there. */
import { basename, join } from 'node:path';
import { UserError } from '../errors.js';
import { fileSize, isFolder } from '../system/read.js';
import { quoteForShell } from '../system/shell.js';
import type { Model } from './family/model.js';
import { FAMILIES_HINT } from './family/wholeModel.js';

/** What stands in place of config.json, what it is of, and what to do. */
const MARKS = [
  ['model_index.json', 'a diffusion pipeline, which makes pictures or sounds', FAMILIES_HINT],
  [
    'adapter_config.json',
    'an adapter, which changes another model',
    'merge it into its model first (peft: merge_and_unload), and give the folder of the result',
  ],
] as const;

/** What the hub's cache keeps of a model: a folder for each revision. */
const SNAPSHOTS = 'snapshots';

/** Throws UserError, with what the folder is, where it has no `config` and another file tells. */
export function refuseOtherFolder(dir: string, config: string): void {
  if (fileSize(config) !== undefined) return;
  for (const [name, is, hint] of MARKS)
    if (fileSize(join(dir, name)) !== undefined)
      throw new UserError(`${dir}: it is ${is}: it has ${name}, and no ${basename(config)}`, hint);
  const snapshots = join(dir, SNAPSHOTS);
  if (isFolder(snapshots) && isFolder(join(dir, 'refs')))
    throw new UserError(
      `${dir}: it is what the hub's cache keeps of a model, and the model is below it`,
      `give the folder that this lists: ls -d ${quoteForShell(snapshots)}/*`,
    );
}

/** The steps of sentence-transformers: a model, then how one vector is made of its outputs. */
const STEPS = 'modules.json';

/**
 * `model`, with a word where its folder makes embeddings of it. Throws UserError where its class is that of a model
 * without a head, which then is made for nothing else.
 */
export function besideSteps(dir: string, model: Model): Model {
  if (fileSize(join(dir, STEPS)) === undefined) return model;
  if (model.headless !== undefined)
    throw new UserError(
      `${dir}: it is an embedding model of sentence-transformers (${STEPS}): ${model.headless} has no head`,
      FAMILIES_HINT,
    );
  const note = `${dir}: ${STEPS} makes embeddings of this model; it is read as the language model that it also is`;
  return model.note === undefined ? { ...model, note } : model;
}
