/** What a trace file may say, with bounds on every value. Chrome's format, and what `run --trace` adds to it. */
import { z } from 'zod';
import { TRACE_FORMAT } from '../document/trace.js';
import { startSchema } from './start.js';

/** Names are cut, not refused. */
const MAX_NAME = 200;
const traceName = z.string().transform((text) => text.slice(0, MAX_NAME));

const number = z.number().refine(Number.isFinite);
const time = number.min(-1e15).max(1e15);
const amount = number.min(0).max(1e24);
const id = z.union([z.int(), z.string().max(MAX_NAME)]);

export const sliceSchema = z.object({
  name: traceName,
  cat: z.string().max(MAX_NAME).optional(),
  ph: z.literal('X'),
  ts: time,
  dur: time.min(0).default(0),
  pid: id.default(0),
  tid: id.default(0),
  args: z.record(z.string(), z.unknown()).default({}),
});
export type SliceEvent = z.infer<typeof sliceSchema>;

export const nameSchema = z.object({
  name: z.enum(['process_name', 'thread_name', 'process_sort_index']),
  ph: z.literal('M'),
  pid: id.default(0),
  tid: id.default(0),
  args: z.object({ name: traceName.optional(), sort_index: number.optional() }),
});

const peak = z.object({ perSecond: number.positive().max(1e20), source: z.enum(['measured', 'nominal']) });
const launch = z.int().min(0).max(1_000_000);
const MAX_ENTRIES = 50_000;

/** `otherData.tilewright` of a trace. */
export const factsSchema = z.object({
  format: z.literal(TRACE_FORMAT),
  version: traceName,
  model: traceName,
  isa: traceName,
  arithmetic: traceName,
  replicas: z.int().min(1).max(10_000),
  stages: z.int().min(1).max(10_000),
  peaks: z.object({ arithmetic: peak, memory: peak }),
  kernels: z.array(z.object({ path: traceName, anchor: traceName, signature: traceName })).max(MAX_ENTRIES),
  memory: z.object({
    arenaBytes: amount,
    buffers: z
      .array(z.object({ name: traceName, offset: amount, bytes: amount, first: launch, last: launch }))
      .max(MAX_ENTRIES),
    states: z.array(z.object({ name: traceName, bytes: amount })).max(MAX_ENTRIES),
    weights: z.object({ packedBytes: amount, mappedBytes: amount }).exactOptional(),
  }),
  // The rest is of use without it.
  start: startSchema.optional().catch(undefined),
});
