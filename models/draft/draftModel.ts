/** Draft models: small models of the same tokens, with keys and values of their own. */
import { UserError } from '../../errors.js';
import type { Checkpoint, TokenMeaning } from '../checkpoint.js';
import { DRAFT_TENSORS } from '../model/model.js';
import { createTokenizer } from '../tokenizer/tokenizer.js';
import { describeTokenizer } from '../tokenizer/files.js';
import { type FoundDraft, joinedTensors } from './join.js';

const HINT = 'use a smaller model of the same family, or generate without a model that drafts: --draft suffix';

/**
 * The checkpoint `own` as a draft model of `target`. Throws UserError where it proposes no tokens of its vocabulary.
 */
export function draftModel(target: Checkpoint, own: Checkpoint): FoundDraft {
  const { model, config } = own;
  if (model.asDraft === undefined)
    throw new UserError(`${own.path}: cannot draft: its head gives classes, not tokens`, HINT);
  return {
    draft: {
      name: 'model',
      ahead: 0,
      maxPositions: Math.min(config.maxPositions, target.config.maxPositions),
      vocabSize: config.vocabSize,
      config: { ...config },
      summary: model.summary,
      tensors: joinedTensors(model.tensors),
      graph: (options) => model.asDraft!({ ...options, prefix: DRAFT_TENSORS }),
    },
    tensors: own.tensors,
    tokens: { path: own.path, tokenizerPath: own.tokenizerPath, config },
    warnings: own.warnings,
  };
}

/**
 * Throws UserError where the draft model of a checkpoint means other texts by its tokens. Vocabularies that differ in
 * unused rows at the end are the same; without a tokenizer, sizes must agree.
 */
export function requireSameTokens(target: TokenMeaning & Pick<Checkpoint, 'draftModel'>): void {
  const { draftModel: own } = target;
  if (own === undefined) return;
  const [most, least] = [target.config.vocabSize, own.config.vocabSize];
  if (target.tokenizerPath === undefined || own.tokenizerPath === undefined) {
    if (most === least) return;
    throw new UserError(
      `${own.path}: cannot draft: it has a vocabulary of ${least} tokens, and the model one of ${most}`,
      HINT,
    );
  }
  const [theirs, ours] = [target, own].map(({ path }) => describeTokenizer(path));
  if (theirs!.hash === ours!.hash) return;
  const [a, b] = [theirs!, ours!].map(({ spec }) => createTokenizer(spec).detokenizer());
  const count = Math.max(theirs!.vocabSize, ours!.vocabSize);
  for (let token = 0; token < count; token++) {
    const [wanted, found] = [a!.bytesOf(token), b!.bytesOf(token)];
    if (Buffer.compare(wanted, found) !== 0)
      throw new UserError(
        `${own.path}: cannot draft: token ${token} is ${shown(found)} there, and ${shown(wanted)} in ${target.path}`,
        HINT,
      );
  }
}

const shown = (bytes: Uint8Array): string =>
  bytes.length === 0 ? 'no text' : JSON.stringify(Buffer.from(bytes).toString().slice(0, 40));
