/** The benchmark of planning: its command line, what it measures of a small model, and what it prints. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { detailLines, growthLine, HEADER, medianOf, rowLine } from '../../bench/compile.js';
import { measureCompile } from '../../bench/compilePlan.js';

const MODEL = join(import.meta.dirname, '..', '..', 'bench', 'models', 'llama-110m');

describe('npm run bench:compile', () => {
  it('measures plans of as many layers as it is asked for, also of matrices in 4 bits', () => {
    const each = { path: MODEL, precision: 'int4', target: 'cuda:sm_90a', cacheTokens: 256 } as const;
    const [small, large] = [2, 4].map((layers) => measureCompile({ ...each, layers }));
    expect(large!.measured.launches).toBeGreaterThan(small!.measured.launches);
    expect(large!.measured.sources).toBe(small!.measured.sources);
    const detail = small!.detail();
    expect(Object.keys(detail.passes)).toContain('fuseStateWrites');
    expect(Object.keys(detail.signatures)).toContain('gemm');
    expect(Object.keys(detail.schedules)).toContain('gemm grouped');
    expect(Object.keys(detail.emission)).toEqual(expect.arrayContaining(['gemm grouped', 'loop']));
    expect(detailLines(detail).filter((line) => /^ {2}\S/.test(line))).toHaveLength(4);
  });

  it('prints medians in columns, and growth', () => {
    const row = (planSeconds: number, launches: number) => ({
      ...{ planSeconds, planCpuSeconds: planSeconds, emitSeconds: 0.5, checkSeconds: 0.25 },
      ...{ launches, sources: 7 },
    });
    const small = { name: 'a', measured: medianOf([row(3, 10), row(1, 10), row(2, 10)]) };
    const large = { name: 'b', measured: row(5, 20) };
    expect(rowLine(small)).toHaveLength(HEADER.length);
    expect(rowLine(small)).toMatch(/^a +2\.00 +2\.00 +0\.50 +0\.25 +10 +7$/);
    expect(rowLine({ name: 'c', problem: 'no such model' })).toMatch(/^c +no such model$/);
    expect(growthLine(small, large)).toBe('  2.00 times as many launches: 2.50 times the processor time');
  });
});
