/** generation_kwargs as what a generator is asked for. */
import { describe, expect, it } from 'vitest';
import { Float, type PyValue } from '../../../python/value.js';
import { generationOf, withDefaults } from '../../../tasks/requests/generation.js';

const read = (settings: Readonly<Record<string, PyValue>>) =>
  generationOf(new Map(Object.entries(settings)), 'a.yaml:3');
const half = new Float(0.5);

describe('settings of generation', () => {
  it.each([
    [{}, { maxNewTokens: 256, stop: [] }],
    [
      { until: 'x', max_new_tokens: 7 },
      { maxNewTokens: 7, stop: ['x'] },
    ],
    [
      { until: ['', 'y'], max_gen_toks: 3, max_tokens: 9 },
      { maxNewTokens: 3, stop: ['y'] },
    ],
    [
      { do_sample: false, temperature: half },
      { maxNewTokens: 256, stop: [] },
    ],
    [{ do_sample: true }, { maxNewTokens: 256, stop: [] }],
    [{ temperature: half }, { maxNewTokens: 256, stop: [], drawing: { temperature: 0.5 } }],
    [
      { do_sample: true, temperature: 1, top_k: 5, top_p: half, min_p: 0, repetition_penalty: new Float(1.1) },
      {
        maxNewTokens: 256,
        stop: [],
        drawing: { temperature: 1, topK: 5, topP: 0.5, minP: 0 },
        repetitionPenalty: 1.1,
      },
    ],
    // The most likely token changes with the penalty, and with no filter.
    [
      { do_sample: false, temperature: half, repetition_penalty: new Float(1.2), top_p: 0, top_k: -1, min_p: 7 },
      { maxNewTokens: 256, stop: [], repetitionPenalty: 1.2 },
    ],
    [
      { temperature: 0, do_sample: true, top_p: new Float(1.5) },
      { maxNewTokens: 256, stop: [] },
    ],
    [
      { length_penalty: new Float(1), presence_penalty: 0, no_repeat_ngram_size: null, use_cache: true, min_length: 3 },
      { maxNewTokens: 256, stop: [], minLength: 3 },
    ],
    // Values that mean "from all tokens", and that of the most likely one alone.
    [
      { temperature: half, top_k: -1, top_p: 0 },
      { maxNewTokens: 256, stop: [], drawing: { temperature: 0.5, topK: -1, topP: 0 } },
    ],
  ])('%j', (settings, expected) => {
    expect(read(settings)).toEqual(expected);
  });

  it.each([
    [{ length_penalty: 2 }, '"length_penalty" is not supported, but for 1, which changes nothing'],
    [{ early_stopping: true }, '"early_stopping" is not supported, but for False'],
    [{ best_of: 1 }, '"best_of" is not supported'],
    [{ min_new_tokens: half }, 'min_new_tokens: expected a whole number'],
    [{ num_beams: 4 }, 'num_beams: a search with beams is not supported'],
    [{ temperature: 'hot' }, 'temperature: expected a number'],
    [{ top_p: new Float(1.5), temperature: 1 }, 'top_p: expected a number from 0 up to 1'],
    [{ top_k: -2, temperature: 1 }, 'top_k: expected a number from -1 up to'],
    [{ repetition_penalty: 0 }, 'repetition_penalty: expected a number above 0 up to 100'],
    [{ max_gen_toks: 0 }, 'max_gen_toks: expected a whole number from 1'],
    [{ until: [3] }, 'until: expected a text, or a list of texts'],
  ])('%j is refused', (settings, message) => {
    expect(() => read(settings as Record<string, PyValue>)).toThrow(`a.yaml:3: ${message}`);
  });
});

describe("what the model's files ask", () => {
  const defaults = { repetitionPenalty: 1.1, minNewTokens: 4, topK: 20 };
  it('counts where a task does not say, and filters of drawn texts only there', () => {
    expect(withDefaults(read({}), defaults)).toEqual({
      ...{ maxNewTokens: 256, stop: [], repetitionPenalty: 1.1, minNewTokens: 4 },
    });
    expect(withDefaults(read({ temperature: 1, repetition_penalty: 1, top_p: half }), defaults)).toEqual({
      ...{ maxNewTokens: 256, stop: [], repetitionPenalty: 1, minNewTokens: 4 },
      drawing: { temperature: 1, topK: 20, topP: 0.5 },
    });
  });
});
