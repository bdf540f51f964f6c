/** The comparison of a candidate with its reference: what it finds, and how much of a difference it allows. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import { afterAll, describe, expect, it } from 'vitest';
import {
  COMPARE_FOUND_BYTES,
  compareJob,
  type CompareJob,
  nothingFound,
  scaleOf,
} from '../../../autotune/cuda/compare.js';
import { hasCxx } from '../../runtime/cuda/packShim.js';
import { buildComparison } from './comparisonShim.js';

const koffi = loadKoffi();

const folder = mkdtempSync(join(tmpdir(), 'tilewright-cuda-compare-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

if (!hasCxx()) console.warn('SKIPPED the comparison of candidates: g++ is missing, which builds it.');

describe.skipIf(!hasCxx())('the comparison', () => {
  const { compare } = hasCxx() ? buildComparison(folder) : { compare: (): void => undefined };

  /** [elements that differ, the first, maxima that differ] */
  function found(
    dtype: 'f32' | 'f16' | 'bf16',
    expected: NodeJS.TypedArray,
    actual: NodeJS.TypedArray,
    part: 0 | 4 | 8 = 0,
  ): number[] {
    return differing(
      compareJob({
        dtype,
        rows: 2,
        columns: 4,
        stride: 5,
        tolerance: { relative: 2 ** -7, absolute: 2 ** -8 },
        scale: 1,
        part,
      }),
      [expected, actual, expected, actual],
    );
  }
  function differing(
    { bytes, launch }: CompareJob,
    [expected, actual, ...uppers]: readonly NodeJS.TypedArray[],
  ): number[] {
    const answers = nothingFound();
    expect(answers.byteLength).toBe(COMPARE_FOUND_BYTES);
    compare(
      launch,
      [],
      [bytes, expected!, actual!, answers, ...uppers].map((array) => koffi.address(array)),
    );
    return [...answers].slice(0, 3).map(Number);
  }
  const NONE = Number(2n ** 64n - 1n);

  it('allows for rounding, and finds other differences: values, NaN, infinities, first column, last row', () => {
    const e = Float32Array.of(1, -2, 3, -Infinity, 9, 0, 1, 2, 1000, 9);
    const changed = (at: number, value: number): Float32Array => Float32Array.from(e, (x, i) => (i === at ? value : x));
    expect(found('f32', e, e)).toEqual([0, NONE, 0]);
    expect(found('f32', e, changed(0, 1.008))).toEqual([0, NONE, 0]);
    expect(found('f32', e, changed(5, 0.003))).toEqual([0, NONE, 0]);
    expect(found('f32', e, changed(0, 1.02))).toEqual([1, 0, 0]);
    expect(found('f32', e, changed(5, 0.01))).toEqual([1, 4, 0]);
    expect(found('f32', e, changed(3, -1e30))).toEqual([1, 3, 0]);
    expect(found('f32', e, changed(8, NaN))).toEqual([1, 7, 0]);
    expect(found('f32', e, changed(8, Infinity))).toEqual([1, 7, 0]);
    // Padding is not compared.
    expect(found('f32', e, changed(4, NaN))).toEqual([0, NONE, 0]);
    expect(found('f32', e, changed(2, 17), 4)).toEqual([0, NONE, 1]);
  });

  it('compares what the head draws: indices as ties, and the logit of a drawn token if the token is the same', () => {
    const job = compareJob({
      dtype: 'f32',
      rows: 1,
      columns: 16,
      stride: 16,
      tolerance: { relative: 2 ** -7, absolute: 2 ** -8 },
      scale: 1,
      part: 8,
    });
    const e = Float32Array.from({ length: 16 }, (_, i) => 10 + i);
    const differs = (...changes: readonly (readonly [number, number])[]): number[] => {
      const a = Float32Array.from(e);
      for (const [i, value] of changes) a[i] = value;
      return differing(job, [e, a, e, a]);
    };
    expect(differs()).toEqual([0, NONE, 0]);
    expect(differs([10, 99])).toEqual([0, NONE, 1]);
    expect(differs([13, 99])).toEqual([0, NONE, 1]);
    expect(differs([13, 99], [14, 50])).toEqual([0, NONE, 1]);
    expect(differs([14, 50])).toEqual([1, 14, 0]);
    expect(differs([12, 50])).toEqual([1, 12, 0]);
  });

  it('reads f16 and bf16, subnormal numbers and infinities included', () => {
    const f16 = Uint16Array.of(0x3c00, 0x0001, 0x7c00, 0xfbff, 0, 0xfc00, 0x8000, 0x3555, 0x4900, 0);
    expect(found('f16', f16, f16)).toEqual([0, NONE, 0]);
    expect(
      found(
        'f16',
        f16,
        Uint16Array.from(f16, (h, i) => (i === 3 ? 0xfc00 : h)),
      ),
    ).toEqual([1, 3, 0]);
    expect(
      found(
        'f16',
        f16,
        Uint16Array.from(f16, (h, i) => (i === 2 ? 0x7bff : h)),
      ),
    ).toEqual([1, 2, 0]);
    expect(
      found(
        'f16',
        f16,
        Uint16Array.from(f16, (h, i) => (i === 0 ? 0x3c08 : h)),
      ),
    ).toEqual([0, NONE, 0]);
    const bf16 = Uint16Array.of(0x3f80, 0xc000, 0x7f80, 0, 0, 1, 2, 3, 0x4120, 0);
    expect(
      found(
        'bf16',
        bf16,
        Uint16Array.from(bf16, (h, i) => (i === 8 ? 0x4125 : h)),
      ),
    ).toEqual([1, 7, 0]);
    expect(scaleOf(Uint16Array.of(0x4000, 0x4000, 0x7c00, 0xc000).buffer, 'f16', 3, 4)).toBe(2);
    expect(scaleOf(Uint16Array.of(0x4000, 0xc000).buffer, 'bf16', 2, 2)).toBe(2);
  });

  it('compares bf16 numbers together with the bytes that extend them', () => {
    const upper = (...bits: number[]): Uint16Array => Uint16Array.of(0x3f80, 0, ...bits, 0x3f80);
    const job = compareJob({
      dtype: 'u8',
      rows: 2,
      columns: 1,
      stride: 3,
      upperStride: 2,
      tolerance: { relative: 2 ** -12, absolute: 0 },
      scale: 1,
      part: 0,
    });
    const of = (tail: number): Uint8Array => Uint8Array.of(7, 0, 0, tail);
    const differs = (expected: [number, number], actual: [number, number]): number[] =>
      differing(job, [of(expected[1]), of(actual[1]), upper(expected[0]), upper(actual[0])]);
    expect(differs([0xc000, 5], [0xc000, 6])).toEqual([0, NONE, 0]);
    expect(differs([0xc000, 5], [0xc000, 105])).toEqual([1, 1, 0]);
    // 1 with byte 127, and 1 + 2⁻⁷ with byte −128: the same number except for the last place.
    expect(differs([0x3f80, 127], [0x3f81, 128])).toEqual([0, NONE, 0]);
    expect(differs([0x3f80, 127], [0x3f80, 128])).toEqual([1, 1, 0]);
    expect(differs([0x7fc0, 127], [0x3f80, 127])).toEqual([1, 1, 0]);
  });
});
