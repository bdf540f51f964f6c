/** Numbers in the results of shards: their sums and rates are finite, and their times are dates. */
import { z } from 'zod';

const MOST = 1e30;
/** Shorter times cannot have been measured. */
const MIN_SECONDS = 1e-9;
/** The end of the year 9999, whose dates are the last of four digits. */
const LAST_SECOND = 253_402_300_799;

export const count = z.number().min(0).max(MOST);
export const duration = z.union([z.literal(0), z.number().min(MIN_SECONDS).max(MOST)]);
/** Seconds since 1970. */
export const time = z.number().min(0).max(LAST_SECOND);
