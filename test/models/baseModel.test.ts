/** Checkpoints of a model without its head: names lack the prefix that the whole model has. */
import { expect, test } from 'vitest';
import { withPrefix } from '../../models/config.js';
import type { Model } from '../../models/model/model.js';

const tensor = (name: string): Model['tensors'][number] => ({ name, shape: [1], role: 'matrix' });
const WHOLE = {
  tensors: ['model.embed_tokens.weight', 'model.layers.0.mlp.up_proj.weight', 'lm_head.weight'].map(tensor),
};
const named = (names: readonly string[]): ReadonlyMap<string, number> => new Map(names.map((name, i) => [name, i]));

test('names get the prefix, but for those beside the model', () => {
  const base = ['embed_tokens.weight', 'layers.0.mlp.up_proj.qweight', 'lm_head.weight'];
  expect([...withPrefix(named(base), WHOLE)]).toEqual([
    ['model.embed_tokens.weight', 0],
    ['model.layers.0.mlp.up_proj.qweight', 1],
    ['lm_head.weight', 2],
  ]);
});

test('the head of a model that ties it is beside the model, too', () => {
  const tied = { tensors: WHOLE.tensors.slice(0, 2), tied: { head: 'lm_head.weight' } as Model['tied'] & {} };
  expect([...withPrefix(named(['norm.weight', 'lm_head.weight']), tied).keys()]).toEqual([
    'model.norm.weight',
    'lm_head.weight',
  ]);
});

test('a whole model keeps its names, even if some are wrong', () => {
  const found = named(['model.embed_tokens.weight', 'layers.0.mlp.up_proj.weight']);
  expect(withPrefix(found, WHOLE)).toBe(found);
});
