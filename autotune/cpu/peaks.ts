/** Measures the peak rates of this host's processors. */
import type { CpuIsa } from '../../ir/plan.js';
import type { Addon } from '../../runtime/addon.js';
import type { NativePool } from '../../runtime/nativeObjects.js';
import type { Rates } from '../bucketCost.js';

/**
 * All threads of `pool` together: floating-point operations of `isa` and bytes read from memory, per second. The best
 * of several tries each, because other programs and clocks that have not risen yet only make a try slower. On a machine
 * so busy that tries take long, only one is made.
 */
export async function measurePeaks(
  addon: Pick<Addon, 'peak'>,
  pool: NativePool,
  isa: CpuIsa,
  { seconds = 0.1, tries = 3 }: { readonly seconds?: number; readonly tries?: number } = {},
): Promise<Rates> {
  const best = async (kind: Parameters<Addon['peak']>[1]): Promise<number> => {
    let rate = 0;
    const begin = performance.now();
    for (let i = 0; i < tries && performance.now() - begin < 2000 * tries * seconds; i++)
      rate = Math.max(rate, await addon.peak(pool, kind, seconds));
    return rate;
  };
  return { flopsPerSecond: await best(isa), bytesPerSecond: await best('read') };
}
