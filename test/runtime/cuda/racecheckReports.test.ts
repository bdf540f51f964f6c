/** Which of racecheck's reports the test of sanitizers on a GPU takes for false, and that it takes no other. */
import { describe, expect, it } from 'vitest';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import { knownKernels, unknownReports } from '../../gpu/racecheckReports.js';

const KNOWN = new Set(['k_gemm_01_02', 'k_gemm_03_02']);
const reportOf = (first: string, ...others: readonly string[]): string =>
  [
    `========= Error: Race reported between ${first}`,
    ...others.map((other) => `=========     and ${other}`),
    '========= ',
  ].join('\n');
const outputOf = (...reports: readonly string[]): string =>
  [
    '========= COMPUTE-SANITIZER',
    ...reports,
    `========= RACECHECK SUMMARY: ${reports.length} hazards displayed (${reports.length} errors, 0 warnings)`,
    '{"index":2}',
  ].join('\n');
const WRITE = reportOf(
  'Write access at k_gemm_01_02+0x1070',
  'Read access at k_gemm_01_02+0x57e0 [416 hazards]',
  'Read access at k_gemm_01_02+0x57f0 [1 hazard]',
);
const READ = reportOf('Read access at k_gemm_03_02+0x55d0', 'Write access at k_gemm_03_02+0xf50 [3712 hazards]');

describe("racecheck's reports", () => {
  it('are known where a write and reads, or a read and writes, are of one known kernel', () => {
    expect(unknownReports(outputOf(), KNOWN)).toEqual([]);
    expect(unknownReports(outputOf(WRITE, READ), KNOWN)).toEqual([]);
    expect(unknownReports(`${outputOf(WRITE)}\n${outputOf(READ, WRITE)}`, KNOWN)).toEqual([]);
  });

  it.each([
    ['another kernel', reportOf('Write access at k_gemm_09_02+0x10', 'Read access at k_gemm_09_02+0x20 [4 hazards]')],
    ['two kernels', reportOf('Write access at k_gemm_01_02+0x10', 'Read access at k_gemm_03_02+0x20 [4 hazards]')],
    ['two writes', reportOf('Write access at k_gemm_01_02+0x10', 'Write access at k_gemm_01_02+0x20 [4 hazards]')],
    [
      'a write among reads',
      reportOf(
        'Write access at k_gemm_01_02+0x10',
        'Read access at k_gemm_01_02+0x20 [4 hazards]',
        'Write access at k_gemm_01_02+0x30 [4 hazards]',
      ),
    ],
    ['one place only', reportOf('Write access at k_gemm_01_02+0x10')],
    ['something else', '========= Error: Potential RAW hazard detected at __shared__ 0x0\n========= '],
  ])('count if they are of %s', (_what, report) => {
    expect(unknownReports(outputOf(WRITE, report), KNOWN)).toHaveLength(1);
  });

  it('count where the summary counts others, warns, or a line is of no known form', () => {
    const more = outputOf(WRITE).replace('1 hazards displayed (1 errors', '2 hazards displayed (2 errors');
    expect(unknownReports(more, KNOWN)).toEqual(['RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)']);
    const warned = outputOf(WRITE).replace('0 warnings', '1 warnings');
    expect(unknownReports(warned, KNOWN)).toHaveLength(1);
    expect(unknownReports(`========= Internal error\n${outputOf(WRITE)}`, KNOWN)).toEqual(['Internal error']);
  });

  it('are known of tiles of 64 rows, which the demo has on Hopper alone', () => {
    const products = [...knownKernels(TYPICAL_FACTS.sm_90a, 'models/demo')];
    expect(products.length).toBeGreaterThan(3);
    for (const symbol of products) expect(symbol).toMatch(/^k_gemm_/);
    expect(knownKernels(TYPICAL_FACTS.sm_80, 'models/demo').size).toBe(0);
  });
});
