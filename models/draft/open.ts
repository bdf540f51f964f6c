/** What drafts for a model, as a user names it. */
import { UserError } from '../../errors.js';
import type { Checkpoint } from '../checkpoint.js';
import { draftModel } from './draftModel.js';
import { eagle } from './eagle.js';
import { eagle3 } from './eagle3.js';
import { HEAD_HINT, readHeadFile } from './headFile.js';
import { joinDraft } from './join.js';
import { mtp, OWN_LAYER } from './mtp.js';

/** What readers of single settings refuse comes without a hint. */
function hinted<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof UserError && error.hint === undefined
      ? new UserError(error.message, HEAD_HINT, { cause: error })
      : error;
  }
}

/** Opens the folder of a draft as a checkpoint like another. */
export type OpenDraft = (path: string) => Checkpoint;

/**
 * The model with the draft at `path`: a folder with a draft model or a draft head, or `mtp`, the model's own layer.
 * `seed`: weights are made up. Throws UserError where it does not fit.
 */
export function withDraft(target: Checkpoint, path: string, open: OpenDraft, seed?: number | bigint): Checkpoint {
  if (path === OWN_LAYER) return joinDraft(target, mtp(target, seed));
  const head = hinted(() => readHeadFile(path, seed));
  if (head === undefined) return joinDraft(target, draftModel(target, open(path)));
  return joinDraft(
    target,
    hinted(() => (head.kind === 'eagle3' ? eagle3(target, head) : eagle(target, head))),
  );
}
