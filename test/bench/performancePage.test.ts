import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { performancePage } from '../../bench/performancePage.js';

describe('docs/performance.md', () => {
  const data = JSON.parse(readFileSync('docs/performance.json', 'utf8')) as { workloads: { rows: object[] }[] };

  it('is what `npm run docs:performance` makes of performance.json', () => {
    expect(readFileSync('docs/performance.md', 'utf8')).toBe(performancePage(data));
  });

  it('has two pages', () => {
    expect(performancePage(data).split('\n').length).toBeLessThanOrEqual(151);
  });

  it('refuses a figure without its commit', () => {
    const [workload] = data.workloads;
    const rows = workload!.rows.map((row) => ({ ...row, commit: 'today' }));
    expect(() => performancePage({ workloads: [{ ...workload, rows }] })).toThrow('commit');
  });
});
