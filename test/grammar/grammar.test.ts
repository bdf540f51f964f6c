/** What cannot be asked of a text says where. */
import { expect, it } from 'vitest';
import { GrammarError } from '../../grammar/grammar.js';

it('names the place of what is refused', () => {
  const error = new GrammarError('not supported', '/properties/a/if');
  expect([error.message, error.where]).toEqual(['not supported', '/properties/a/if']);
});
