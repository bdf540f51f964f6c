/** What names the answers of a model in journals and shards. */
import { SCORE } from '../../ir/function.js';
import { printGraph } from '../../ir/graph/printer.js';
import { artifactId } from '../artifact/manifest.js';
import type { OpenedModel } from '../compile/open.js';
import { cacheTokensOf } from '../functions.js';

/**
 * Identity of what scores are computed with. Memory for keys and values is no part of it, because answers are the same
 * with and without: a run may be resumed on a machine that has less.
 */
export async function scoringId({
  id,
  reference,
  model,
}: Pick<OpenedModel, 'id' | 'reference' | 'model'>): Promise<string> {
  if (cacheTokensOf(model) === undefined) return id;
  const { parseModule } = await import('../../ir/graph/parser.js');
  const score = parseModule(model.graphText).functions.find(({ name }) => name === SCORE);
  return score === undefined ? id : artifactId(reference, { ...model, graphText: printGraph(score) });
}
