/** Apart from harness.ts, which tests on a GPU use without vitest. */
import type { CpuIsa } from '../../ir/plan.js';
import { isThorough } from '../support/thorough.js';
import { RUNNABLE } from './harness.js';

/**
 * Instruction sets that CI tests at length: the widest one's vectors, and its tiles. test:slow has the others too; in
 * CI they run scans and panels of 16 bits.
 */
export const TESTED: readonly CpuIsa[] = isThorough ? RUNNABLE : RUNNABLE.slice(RUNNABLE.includes('amx') ? -2 : -1);
