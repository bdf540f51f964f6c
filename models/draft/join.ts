/**
 * A checkpoint with what drafts for it: one description, whose tensors lie in the files of both. Tensors of a draft's
 * own files have the prefix DRAFT_TENSORS, so that no name means two things. What the model is, its files and its
 * fingerprint are as without a draft: answers do not depend on it.
 */
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import type { Checkpoint, TokenMeaning } from '../checkpoint.js';
import { DRAFT_TENSORS, type ModelDraft } from '../model/model.js';
import type { ExpectedTensor, TensorLocation } from '../model/tensors.js';

/** A draft for a model, and the tensors of its own files. */
export interface FoundDraft {
  readonly draft: ModelDraft;
  /** By their names in its files. Empty where the model's own files have all. */
  readonly tensors: ReadonlyMap<string, TensorLocation>;
  /** What its tokens mean, where its files say that themselves. */
  readonly tokens?: TokenMeaning;
  readonly warnings: readonly string[];
}

const joinedName = (name: string): string => `${DRAFT_TENSORS}${name}`;

/** The tensors that a draft expects of its own files, by their names in the joined checkpoint. */
export const joinedTensors = (tensors: readonly ExpectedTensor[]): readonly ExpectedTensor[] =>
  tensors.map(({ name, parts, partOf, ...rest }) => ({
    ...rest,
    name: joinedName(name),
    ...(parts === undefined ? {} : { parts: parts.map((part) => ({ ...part, name: joinedName(part.name) })) }),
    ...(partOf === undefined ? {} : { partOf: { ...partOf, name: joinedName(partOf.name) } }),
  }));

/** Throws UserError where the model has a tensor of such a name itself. */
export function joinDraft(target: Checkpoint, { draft, tensors: own, tokens, warnings }: FoundDraft): Checkpoint {
  const tensors = new Map(target.tensors);
  for (const tensor of own.values()) {
    const name = joinedName(tensor.name);
    if (tensors.has(name))
      throw new UserError(
        `${target.path}: has a tensor ${name} itself, which is the name of a draft's`,
        'generate without a draft of files: --draft suffix',
      );
    tensors.set(name, { ...tensor, name });
  }
  return {
    ...target,
    model: { ...target.model, draft },
    tensors,
    ...defined({ draftModel: tokens }),
    warnings: [...target.warnings, ...warnings],
  };
}
