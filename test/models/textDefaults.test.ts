/** What transformers' generate takes from the files of a model, for texts of tasks. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { readTextDefaults } from '../../models/generationConfig.js';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'tilewright-defaults-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

function read(json: unknown, file = 'generation_config.json') {
  writeFileSync(join(dir, file), JSON.stringify(json));
  return readTextDefaults({ path: dir });
}

it('takes numbers that change texts, and none that do nothing', () => {
  const { defaults, leftOut } = read({
    ...{ do_sample: true, temperature: 0.6, repetition_penalty: 1.05, top_k: -1, top_p: 1, min_p: null },
    ...{ min_new_tokens: 0, min_length: 12, num_beams: 1, no_repeat_ngram_size: 0, bad_words_ids: null },
    ...{ suppress_tokens: [], guidance_scale: 1, eos_token_id: [2, 7], transformers_version: '5.0' },
  });
  expect([defaults, leftOut]).toEqual([{ repetitionPenalty: 1.05, minLength: 12 }, []]);
});

it('names all that there is nothing for', () => {
  const { leftOut, leftOutOfDrawn } = read({
    ...{ no_repeat_ngram_size: 3, bad_words_ids: [[5]], forced_eos_token_id: 2, num_beams: 4, max_new_tokens: 512 },
    ...{ typical_p: 0.9, eta_cutoff: 0, sequence_bias: { a: 1 }, stop_strings: 'x'.repeat(100), dola_layers: 'low' },
  });
  expect(leftOut).toEqual([
    ...['no_repeat_ngram_size 3', 'bad_words_ids', 'sequence_bias', 'forced_eos_token_id 2', 'num_beams 4'],
    ...['dola_layers "low"', 'stop_strings', 'max_new_tokens 512'],
  ]);
  expect(leftOutOfDrawn).toEqual(['typical_p 0.9']);
});

it('asks config.json where there is no generation_config.json, and then only', () => {
  expect(readTextDefaults({ path: dir }).defaults).toEqual({});
  expect(read({ repetition_penalty: 1.2 }, 'config.json')).toMatchObject({
    defaults: { repetitionPenalty: 1.2 },
    file: 'config.json',
  });
  expect(read({})).toMatchObject({ defaults: {}, file: 'generation_config.json' });
});

it.each([
  [{ repetition_penalty: 0 }, 'repetition_penalty: expected a number above 0 to 100'],
  [{ repetition_penalty: '1.5' }, 'repetition_penalty: expected a number above 0'],
  [{ min_new_tokens: 1.5 }, 'min_new_tokens: expected a whole number from 0'],
  [{ top_k: -2 }, 'top_k: expected a whole number from 0'],
  [{ top_p: 1.1 }, 'top_p: expected a number from 0 to 1'],
])('%j is refused', (json, message) => {
  expect(() => read(json)).toThrow(`generation_config.json: ${message}`);
});
