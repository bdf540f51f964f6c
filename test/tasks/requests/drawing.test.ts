/** generation_kwargs as what a generator is asked for. */
import { describe, expect, it } from 'vitest';
import { Float, type Value } from '../../../python/value.js';
import { generationOf } from '../../../tasks/requests/drawing.js';

const read = (settings: Readonly<Record<string, Value>>) => generationOf(new Map(Object.entries(settings)), 'a.yaml:3');
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
        drawing: { temperature: 1, topK: 5, topP: 0.5, minP: 0, repetitionPenalty: 1.1 },
      },
    ],
  ])('%j', (settings, expected) => {
    expect(read(settings)).toEqual(expected);
  });

  it.each([
    [{ length_penalty: 2 }, '"length_penalty" is not supported'],
    [{ num_beams: 4 }, 'num_beams: a search with beams is not supported'],
    [{ temperature: 'hot' }, 'temperature: expected a number'],
    [{ top_p: new Float(1.5) }, 'top_p: expected a number up to 1'],
    [{ max_gen_toks: 0 }, 'max_gen_toks: expected a whole number from 1'],
    [{ until: [3] }, 'until: expected a text, or a list of texts'],
  ])('%j is refused', (settings, message) => {
    expect(() => read(settings as Record<string, Value>)).toThrow(`a.yaml:3: ${message}`);
  });
});
