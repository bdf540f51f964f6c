/** Names and numbers that plans hold, each with its bounds. */
import { z } from 'zod';
import { NAME } from '../ir/graph/checkNode.js';
import { MAX_EXPERTS } from '../ir/experts.js';
import { EXTENT_NAME } from '../ir/extents.js';
import { STATE_NAME } from '../ir/function.js';

/** The largest extent of one dimension. */
export const MAX_EXTENT = 1 << 27;
/** The largest number of kernels of a function. */
export const MAX_KERNELS = 20_000;

/** A name that stands in generated source. */
export const identifier = z.string().regex(/^[a-z][a-z0-9_]{0,250}$/);
/** A name of a checkpoint's tensor. */
export const tensorName = z.string().regex(/^[\w.]{1,300}$/);
/** A text for people. */
export const label = z.string().max(300);
/** An extent that is known. */
export const extent = z.number().int().min(1).max(MAX_EXTENT);
/** A number of bytes, or a place in memory. */
export const bytes = z
  .number()
  .int()
  .min(0)
  .max(2 ** 45);
/** The name of an extent that each call says. */
export const extentName = z.string().regex(EXTENT_NAME);
/** An extent, known or named. */
export const dim = z.union([extentName, extent]);
/** The name of a function, an input or an output. */
export const name = z.string().regex(NAME);
/** The name of a state. */
export const stateName = z.string().regex(STATE_NAME);
/** A number, with infinities as printPlan writes them. */
export const real = z.union([
  z.number(),
  z.literal('-inf').transform(() => -Infinity),
  z.literal('inf').transform(() => Infinity),
]);
/** A number of experts. */
export const expertCount = z.number().int().min(1).max(MAX_EXPERTS);
