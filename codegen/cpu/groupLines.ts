/**
 * Values that a group of columns shares, such as 1/rms of a head: computed before the epilogue's programs run, and kept
 * in scratch lines as a vector for every 16 columns.
 */
import { groupSumsOf, groupValuesOf, groupWidth } from '../../ir/groupSums.js';
import type { Segment } from '../../ir/kernel.js';
import { printScalar } from '../../ir/scalar.js';
import type { RowScope } from './rowScope.js';
import { Body, type Site } from './scalarPrinter.js';

export interface GroupLines {
  /** Statements of a row, as lines. */
  readonly text: readonly string[];
  /** What a site at the column sees of them. */
  readonly given: (column: string) => Pick<Site, 'given'>;
  /** Number of scratch lines. */
  readonly lines: number;
}

/**
 * The group values of a segment over columns [c0, c0 + cn) of a row. `site`: 16 columns in logical order; `first`: the
 * first free line; `ldc`: floats of a line. A sum adds vectors from the group's first to its last, then their lanes.
 */
export function groupLines(
  { outputs, columns }: Segment,
  row: RowScope,
  site: (column: string) => Site,
  first: number,
  ldc: number,
): GroupLines {
  const width = groupWidth(outputs);
  if (width === undefined) return { text: [], given: () => ({}), lines: 0 };
  const sums = groupSumsOf(outputs);
  const adding = new Body(row);
  adding.lines.push(...sums.map(({ a }, i) => `g${i}_ = g${i}_ + ${adding.float(adding.value(a, site('column')))};`));
  const totals = new Map(sums.map((s, i) => [printScalar(s), `tw_set1(tw_sum(g${i}_))`]));
  const shared = new Body(row);
  const values = groupValuesOf(outputs);
  const codes = values.map((s) =>
    shared.float(shared.value(s, { id: 'g', column: 'group', lanes: 16, given: totals })),
  );
  const line = (i: number): number => (first + i) * ldc;
  const text = [
    `const int64_t end_ = c0 + cn < ${columns} ? c0 + cn : ${columns};`,
    `for (int64_t group = c0; group < end_; group += ${width}) {`,
    ...sums.map((_, i) => `  tw_v g${i}_ = tw_set1(0.0f);`),
    `  for (int64_t column = group; column < group + ${width}; column += 16) {`,
    ...adding.lines.map((each) => `    ${each}`),
    '  }',
    ...shared.lines.map((each) => `  ${each}`),
    `  for (int64_t at = group - c0; at < group - c0 + ${width}; at += 16) {`,
    ...codes.map((code, i) => `    tw_store(lines + ${line(i)} + at, ${code});`),
    '  }',
    '}',
  ];
  const given = (column: string): Pick<Site, 'given'> => ({
    given: new Map(values.map((s, i) => [printScalar(s), `tw_load(lines + ${line(i)} + ${column} - c0)`])),
  });
  return { text, given, lines: values.length };
}
