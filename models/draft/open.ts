/** What drafts for a model, as a user names it. */
import type { Checkpoint } from '../checkpoint.js';
import { draftModel } from './draftModel.js';
import { eagle } from './eagle.js';
import { eagle3 } from './eagle3.js';
import { readHeadFile } from './headFile.js';
import { joinDraft } from './join.js';

/** Opens the folder of a draft as a checkpoint like another. */
export type OpenDraft = (path: string) => Checkpoint;

/**
 * The model with the draft at `path`: a folder with a draft model or a draft head. `seed`: weights are made up. Throws
 * UserError where it does not fit.
 */
export function withDraft(target: Checkpoint, path: string, open: OpenDraft, seed?: number | bigint): Checkpoint {
  const head = readHeadFile(path, seed);
  if (head === undefined) return joinDraft(target, draftModel(target, open(path)));
  return joinDraft(target, head.kind === 'eagle3' ? eagle3(target, head) : eagle(target, head));
}
