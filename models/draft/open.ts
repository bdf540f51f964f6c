/** What drafts for a model, as a user names it. */
import type { Checkpoint } from '../checkpoint.js';
import { draftModel } from './draftModel.js';
import { joinDraft } from './join.js';

/** Opens the folder of a draft as a checkpoint like another. */
export type OpenDraft = (path: string) => Checkpoint;

/** The model with the draft at `path`: a folder with a draft model. Throws UserError where it does not fit. */
export const withDraft = (target: Checkpoint, path: string, open: OpenDraft): Checkpoint =>
  joinDraft(target, draftModel(target, open(path)));
