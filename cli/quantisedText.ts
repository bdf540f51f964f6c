/** What of a checkpoint is quantised, how, and what is not. */
import { count } from '../system/format.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { TensorLocation } from '../models/family/tensors.js';

/** Names of matrices that are shown. */
const SHOWN = 4;

const elementsOf = ({ shape }: TensorLocation): number => shape.reduce((product, extent) => product * extent, 1);

/** Rows of a table, with their first column; none for a checkpoint of floats alone. */
export function describeQuantised({ quantised, tensors }: Checkpoint): readonly (readonly [string, string])[] {
  if (quantised === undefined) return [];
  const all = [...tensors.values()];
  const total = all.reduce((sum, tensor) => sum + elementsOf(tensor), 0);
  const floats = all.filter((tensor) => tensor.kind !== 'encoded' && tensor.shape.length > 1);
  const names = [...new Set(floats.map(({ name }) => name.replace(/\.weight$/, '').replace(/\.\d+\./g, '.{i}.')))];
  const more = names.length > SHOWN ? `, and ${names.length - SHOWN} more` : '';
  const lines = [
    ...[...quantised.schemes].map(
      ([scheme, { matrices, elements }]) =>
        `${count(matrices)} matrices: ${scheme} (${((100 * elements) / total).toFixed(1)} % of the parameters)`,
    ),
    ...(quantised.schemes.size === 0 ? ['no matrix, though config.json says so'] : []),
    `matrices of floats: ${names.length === 0 ? 'none' : `${names.slice(0, SHOWN).join(', ')}${more}`}`,
    ...(quantised.scales.size === 0
      ? []
      : [`${count(quantised.scales.size)} scales of activations or caches are not used`]),
  ];
  return lines.map((line, i) => [i === 0 ? 'quantised' : '', line]);
}
