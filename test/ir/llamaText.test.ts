import { describe, expect, it } from 'vitest';
import { verifyGraph } from '../../ir/graph/verify.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { printGraph } from '../../ir/graph/printer.js';
import { buildDecoder } from '../../models/decoder/graph.js';

const shape = {
  hiddenSize: 16,
  intermediateSize: 24,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 6,
  vocabSize: 40,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
  biased: [],
};

describe('the text of LLaMA', () => {
  it.each(['tree', 'metaPair', 'slidingWindow'] as const)('round-trips with the %s mask, and verifies', (mask) => {
    const graph = buildDecoder(shape, {
      mask,
      rotary: { inverseFrequencies: Float64Array.from([1, 0.1, 0.0123]), factor: 1 },
      dtypeOf: () => 'bf16',
    });
    verifyGraph(graph);
    const text = printGraph(graph);
    const parsed = parseGraph(text);
    expect(parsed).toEqual(graph);
    expect(printGraph(parsed)).toBe(text);
    verifyGraph(parsed);
  });
});
