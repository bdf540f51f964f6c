/** What names the answers of a model in journals and shards. */
import { artifactId } from '../driver/artifact/manifest.js';
import type { OpenedModel } from '../driver/compile/open.js';
import { cacheTokensOf } from '../driver/functions.js';

/**
 * Identity of what scores are computed with. Memory for keys and values is no part of it, because answers are the same
 * with and without: a run may be resumed on a machine that has less.
 */
export const scoringId = ({ id, reference, model }: Pick<OpenedModel, 'id' | 'reference' | 'model'>): string =>
  cacheTokensOf(model) === undefined ? id : artifactId(reference, model, model.graphs.score);
