/** What describes a model that is served, and the model that a thread opens from it. */
import type { ServedModel } from '../models.js';
import { openTexts, type OpenTexts, type TextFiles } from './modelTexts.js';

/** Plain data, which can be sent to a thread. */
export interface ModelSource extends Omit<ServedModel, 'texts' | 'eosTokenIds'> {
  readonly eosTokenIds: readonly number[];
  readonly files: TextFiles;
}

export interface OpenServedModel extends ServedModel {
  readonly texts: OpenTexts;
}

/** Throws UserError where files are damaged. */
export function openServedModel({ files, eosTokenIds, ...rest }: ModelSource): OpenServedModel {
  return { ...rest, eosTokenIds: new Set(eosTokenIds), texts: openTexts(files, rest.maxLength) };
}
