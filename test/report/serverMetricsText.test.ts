/** How the page of a server reads /metrics, as the server writes it. */
import { describe, expect, it } from 'vitest';
import { Between, linesOf, readingOf } from '../../report/document/metricsText.js';

const NAME = 'a"b\\c\nd{}';
const LABELS = 'model_name="a\\"b\\\\c\\nd{}",engine="0"';
const text = (tokens: number, counts: readonly number[], sum: number): string =>
  [
    '# HELP vllm:generation_tokens_total Generated tokens.',
    `vllm:generation_tokens_total{${LABELS}} ${tokens}`,
    'vllm:generation_tokens_total{model_name="other",engine="0"} 999',
    ...['1', '2', '+Inf'].map((le, i) => `vllm:t_seconds_bucket{${LABELS},le="${le}"} ${counts[i]}`),
    `vllm:t_seconds_sum{${LABELS}} ${sum}`,
    `vllm:e_total{${LABELS},finished_reason="stop"} 2`,
    `vllm:e_total{${LABELS},finished_reason="abort"} 3`,
    'process_cpu_seconds_total 1.5e-3',
    'no line at all {',
    '',
  ].join('\n');
const reading = (at: number, ...rest: Parameters<typeof text>) => readingOf(linesOf(text(...rest)), NAME, at);

describe('a reading of /metrics', () => {
  it('has the values of one model, whatever its name is, and sums over other labels', () => {
    expect(linesOf(text(0, [0, 0, 0], 0)).find(({ name }) => name === 'process_cpu_seconds_total')?.value).toBe(0.0015);
    const { values, histograms } = reading(0, 7, [1, 2, 4], 9);
    expect([values.get('vllm:generation_tokens_total'), values.get('vllm:e_total')]).toEqual([7, 5]);
    expect(histograms.get('vllm:t_seconds')).toEqual({ bounds: [1, 2, Infinity], counts: [1, 2, 4], sum: 9 });
  });

  it('says with the one before what happened between them', () => {
    const between = new Between(reading(1000, 10, [1, 1, 1], 0.5), reading(3000, 30, [99, 101, 101], 100.5));
    expect(between.rate('vllm:generation_tokens_total')).toBe(10);
    expect(between.spread('vllm:t_seconds')).toEqual({ count: 100, mean: 1, within: 2 });
    expect(between.spread('vllm:t_seconds', 0.98)?.within).toBe(1);
    expect(between.spread('vllm:nothing')).toBeUndefined();
    expect(between.isRestarted).toBe(false);
    const still = new Between(reading(0, 1, [0, 0, 5], 50), reading(1, 1, [0, 0, 5], 50));
    expect(still.spread('vllm:t_seconds')).toBeUndefined();
    const above = new Between(reading(0, 1, [0, 0, 5], 50), reading(1, 1, [0, 0, 6], 60));
    expect(above.spread('vllm:t_seconds')?.within).toBe(Infinity);
  });

  it('knows a server that was started anew', () => {
    expect(new Between(reading(0, 10, [0, 0, 0], 0), reading(1, 3, [0, 0, 0], 0)).isRestarted).toBe(true);
  });
});
