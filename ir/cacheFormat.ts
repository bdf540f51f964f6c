/** How a cache keeps keys and values: as attention reads them, or as codes of 8 bits with a scale for each head. */
import type { DType } from './types.js';

export const CACHE_FORMATS = ['e4m3', 'i8'] as const satisfies readonly DType[];
export type CacheFormat = (typeof CACHE_FORMATS)[number];

/** The name of the state that holds the scales of a state of codes. */
export const stateScales = (state: string): string => `${state}_scale`;
