/**
 * Checkpoints of a model without its head, as `LlamaModel.save_pretrained` writes them: names lack the prefix that the
 * whole model has for it, such as `model.`.
 */
import type { Model } from './family/model.js';

const moduleOf = (name: string): string => name.slice(0, name.indexOf('.') + 1);

/** `found` by the names of the whole model, if no name has the prefix of its first tensor, the embeddings. */
export function withPrefix<T>(
  found: ReadonlyMap<string, T>,
  { tensors, tied }: Pick<Model, 'tensors' | 'tied'>,
): ReadonlyMap<string, T> {
  const prefix = moduleOf(tensors[0]?.name ?? '');
  const beside = new Set([...tensors.map(({ name }) => name), tied?.head ?? ''].map(moduleOf));
  if ([...found.keys()].some((name) => name.startsWith(prefix))) return found;
  return new Map([...found].map(([name, tensor]) => [beside.has(moduleOf(name)) ? name : prefix + name, tensor]));
}
