/** generation_config.json: which tokens end a text, and what is suggested. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Checkpoint } from '../../models/checkpoint.js';
import { readGenerationConfig } from '../../models/generationConfig.js';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'tilewright-generation-'));
});
afterAll(() => rmSync(dir, { recursive: true }));

function read(json: unknown, eos?: number) {
  writeFileSync(join(dir, 'generation_config.json'), JSON.stringify(json));
  const config = { eosTokenIds: [2], vocabSize: 100 } as unknown as Checkpoint['config'];
  const { eosTokenIds, suggested } = readGenerationConfig(
    { path: dir, config },
    eos === undefined ? {} : { eos: { id: eos, text: '</s>' } },
  );
  return [[...eosTokenIds], suggested];
}

it('adds the tokens that end a text to those of config.json, as far as the model has them', () => {
  expect(read({})).toEqual([[2], undefined]);
  expect(read({ eos_token_id: 7 })).toEqual([[2, 7], undefined]);
  expect(read({ eos_token_id: [2, 9, -1, 100] })).toEqual([[2, 9], undefined]);
});

it("adds the tokenizer's EOS, where the model has it", () => {
  expect(read({ eos_token_id: 7 }, 5)).toEqual([[2, 5, 7], undefined]);
  expect(read({ eos_token_id: 7 }, 100)).toEqual([[2, 7], undefined]);
});

it('shows the sampling that is suggested as flags', () => {
  const values = { temperature: 0.6, top_p: 0.9, top_k: 0, repetition_penalty: 1, min_p: 'x' };
  expect(read(values)).toEqual([[2], undefined]);
  expect(read({ ...values, do_sample: true })).toEqual([[2], '--temperature 0.6 --top-p 0.9']);
});

it('names what is wrong in a damaged file', () => {
  expect(() => read({ eos_token_id: 'x' })).toThrow('generation_config.json: eos_token_id: expected a token id');
  expect(() => read([])).toThrow('generation_config.json');
});
