/** How far sums of E4M3 on tensor cores may be from those in f32: what the cuts cost, and what a lost stage does. */
import { describe, expect, it } from 'vitest';
import { toleranceOf } from '../../../autotune/cuda/compare.js';
import { Random } from '../../../autotune/randomInputs.js';
import { roundToE4m3 } from '../../../ir/round.js';
import { inE4m3, layerGemm } from '../../codegen/cuda/wgmmaKernels.js';

const STEP = 32;
const STAGE = 128;

/** Sums of `k` products of E4M3: exactly, as tensor cores cut them, and without their last stage. */
function sums(k: number, random: Random): { readonly exact: number; readonly cut: number; readonly short: number } {
  const normal = (): number =>
    (random.below(65_536) + random.below(65_536) + random.below(65_536) + random.below(65_536) - 131_070) / 37_837;
  let exact = 0,
    cut = 0,
    short = 0;
  for (let from = 0; from < k; from += STEP) {
    const products = Array.from({ length: STEP }, () => roundToE4m3(normal() * 4.3) * roundToE4m3(normal() * 112));
    const largest = products.reduce((most, x) => Math.max(most, Math.abs(x)), Math.abs(cut));
    const unit = 2 ** (Math.floor(Math.log2(largest)) - 13);
    cut = unit * [cut, ...products].reduce((sum, x) => sum + Math.trunc(x / unit), 0);
    exact += products.reduce((sum, x) => sum + x, 0);
    if (from + STEP === k - STAGE) short = exact;
  }
  return { exact, cut, short };
}

describe('the tolerance for sums of E4M3', () => {
  it.each([256, 6656])('at a depth of %d allows what tensor cores cut off, and finds a stage that is lost', (k) => {
    const { kernel, module } = inE4m3(layerGemm('o', k, 64));
    const { relative, absolute } = toleranceOf({ ...kernel, k }, module, { dtype: 'f32' });
    const random = new Random(7);
    const all = Array.from({ length: 200 }, () => sums(k, random));
    const scale = Math.sqrt(all.reduce((sum, { exact }) => sum + exact * exact, 0) / all.length);
    const isNear = (exact: number, other: number): boolean =>
      Math.abs(other - exact) <= absolute * scale + relative * Math.abs(exact);
    expect(all.filter(({ exact, cut }) => !isNear(exact, cut))).toEqual([]);
    expect(all.some(({ exact, cut }) => exact !== cut)).toBe(true);
    expect(all.filter(({ exact, short }) => !isNear(exact, short)).length).toBeGreaterThan(50);
  });
});
