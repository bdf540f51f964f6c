import { expect, it } from 'vitest';
import { namedRows, withoutMiddle } from '../../report/document/namedRows.js';

it.each([
  ['mmlu_abstract_algebra', 30, 'mmlu_abstract_algebra'],
  ['mmlu_abstract_algebra', 11, 'mmlu_…gebra'],
  ['abcd', 3, 'a…d'],
  ['😀😀😀😀', 3, '😀…😀'],
])('%s in %i characters', (name, most, expected) => {
  expect(withoutMiddle(name, most)).toBe(expected);
});

it('names take the room that they need, and leave most of a narrow chart to its bars', () => {
  expect(namedRows(['a'], 1000, 240).marginLeft).toBe(240);
  const { marginLeft, y } = namedRows(['mmlu_abstract_algebra'], 300, 240);
  expect(marginLeft).toBe(126);
  expect(y).toMatchObject({ domain: ['mmlu_abstract_algebra'] });
});
