/** The results table for people: Markdown, in the public harness's columns. */
import type { Results } from './results.js';

const RIGHT_ALIGNED: ReadonlySet<string> = new Set(['Version', 'n-shot', 'Value', 'Stderr']);
const COLUMNS = ['Tasks', 'Version', 'Filter', 'n-shot', 'Metric', '', 'Value', ' ', 'Stderr'] as const;

const decimal = (value: unknown): string => (typeof value === 'number' ? value.toFixed(4) : String(value ?? 'N/A'));

/** One row for each metric. A task is named on its first row. */
export function formatTable(results: Results): string {
  const rows: string[][] = [];
  for (const [task, block] of Object.entries(results.results)) {
    let isFirst = true;
    for (const [key, value] of Object.entries(block)) {
      const [metric = '', filter = ''] = key.split(',');
      if (filter === '' || metric.endsWith('_stderr')) continue;
      const isBetter = results.higher_is_better[task]?.[metric];
      rows.push([
        isFirst ? String(block['alias'] ?? task) : '',
        isFirst ? String(results.versions[task] ?? '') : '',
        filter,
        String(results['n-shot'][task] ?? 0),
        metric,
        isBetter === undefined ? '' : isBetter ? '↑' : '↓',
        decimal(value),
        '±',
        decimal(block[`${metric}_stderr,${filter}`]),
      ]);
      isFirst = false;
    }
  }
  return printRows('Tasks', rows);
}

/** `first`: the heading of the first column; the others are fixed. */
export function printRows(first: string, rows: readonly (readonly string[])[]): string {
  const columns = [first, ...COLUMNS.slice(1)];
  const widths = columns.map((name, i) => Math.max(name.trim().length, 3, ...rows.map((row) => row[i]?.length ?? 0)));
  const padded = (cell: string, i: number): string =>
    RIGHT_ALIGNED.has(columns[i] ?? '') ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0);
  const print = (cells: readonly string[]): string => `|${cells.map(padded).join('|')}|`;
  const rule = columns.map((name, i) =>
    RIGHT_ALIGNED.has(name) ? `${'-'.repeat((widths[i] ?? 1) - 1)}:` : '-'.repeat(widths[i] ?? 1),
  );
  return [print(columns.map((name) => name.trim())), `|${rule.join('|')}|`, ...rows.map(print)].join('\n');
}
