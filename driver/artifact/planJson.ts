/** Writes the plan as JSON, and reads it through a schema that bounds everything before memory is allocated. */
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { MAX_EXPERTS } from '../../ir/experts.js';
import { EXTENT_COUNTS } from '../../ir/extents.js';
import { MAX_RANK } from '../../ir/graph/checkNode.js';
import { GROUP_SIZES } from '../../ir/groups.js';
import { MAX_ADAPTER_SLOTS } from '../../ir/adapterRows.js';
import type { Plan } from '../../ir/plan.js';
import { CODE_FORMATS, LAYOUTS, WEIGHT_FORMATS } from '../../ir/storage.js';
import { BUFFER_DTYPES, DTYPES } from '../../ir/types.js';
import { clipped, isDeeperThan, MAX_JSON_DEPTH } from '../../system/json.js';
import {
  bytes,
  dim,
  expertCount,
  extent,
  extentName,
  identifier,
  kernel,
  MAX_EXTENT,
  MAX_KERNELS,
  name,
  pairing,
  stateName,
  tensorName,
} from '../kernelSchema.js';

/** JSON has no infinities, so a mask's −∞ is written as a string. */
export function printPlan(plan: Plan<unknown>): string {
  const replacer = (_: string, value: unknown): unknown =>
    value === -Infinity ? '-inf' : value === Infinity ? 'inf' : value;
  return `${JSON.stringify(plan, replacer)}\n`;
}

const order = z.strictObject({ headDim: extent, rotated: extent, interleaved: z.boolean() });
/** `longest` is 0 if calls have no trees. */
const bucket = z.strictObject({
  extents: z.record(extentName, extent),
  longest: z.number().int().min(0).max(MAX_EXTENT),
  run: extent.exactOptional(),
  withoutAdapters: z.literal(true).exactOptional(),
});
const role = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('token'), vocab: extent }),
  z.strictObject({ kind: z.enum(['row', 'rowOrNone']), of: extentName }),
  z.strictObject({ kind: z.literal('slot'), state: stateName }),
  z.strictObject({ kind: z.enum(['entry', 'entryOrNone']), state: stateName }),
  z.strictObject({ kind: z.literal('adapter'), slots: z.number().int().min(1).max(MAX_ADAPTER_SLOTS) }),
  z.strictObject({ kind: z.enum(['position', 'depth']), below: extent.exactOptional() }),
  z.strictObject({ kind: z.enum(['subtreeEnd', 'values']) }),
]);
const array = { name, buffer: identifier, dtype: z.enum(DTYPES), shape: z.array(dim).max(MAX_RANK) };
const functionInterface = z.strictObject({
  name,
  extents: z
    .array(
      z.strictObject({
        name: extentName,
        counts: z.string().regex(EXTENT_COUNTS).optional(),
        within: extentName.optional(),
      }),
    )
    .min(1)
    .max(16),
  inputs: z.array(z.strictObject({ ...array, role })).max(256),
  outputs: z.array(z.strictObject(array)).max(256),
  takes: z.array(stateName).max(1024),
  gives: z.array(stateName).max(1024),
});
const functionOf = <S>(schedule: z.ZodType<S>) =>
  z.strictObject({
    interface: functionInterface,
    buffers: z
      .array(
        z.strictObject({
          name: identifier,
          dtype: z.enum(BUFFER_DTYPES),
          rows: dim,
          columns: dim,
          space: z.enum(['input', 'output', 'arena', 'weight', 'state']),
          isBlocked: z.literal(true).exactOptional(),
          upper: identifier.optional(),
        }),
      )
      .max(20_000),
    kernels: z.array(kernel).max(MAX_KERNELS),
    launches: z
      .array(
        z.strictObject({
          kernel: identifier,
          signature: z.string().regex(/^[0-9a-f]{1,64}$/),
          parameters: z.array(identifier).max(64),
        }),
      )
      .max(20_000),
    capacity: bucket,
    arenaBytes: bytes,
    placements: z.array(z.strictObject({ buffer: identifier, offset: bytes, sizeBytes: bytes })).max(20_000),
    buckets: z.array(bucket).min(1).max(64),
    schedules: z
      .array(z.record(z.string().regex(/^[0-9a-f]{1,64}$/), schedule))
      .min(1)
      .max(64),
    bucketSeconds: z
      .array(
        bucket.extend({
          seconds: z.number().positive().max(1e6),
          rowSeconds: z.number().nonnegative().max(1e6).optional(),
          attentionSeconds: z.number().nonnegative().max(1e6).optional(),
        }),
      )
      .max(256)
      .optional(),
  });

const planOf = <S>(schedule: z.ZodType<S>) =>
  z.strictObject({
    weights: z
      .array(
        z.strictObject({
          name: identifier,
          layout: z.enum(LAYOUTS),
          format: z.enum(WEIGHT_FORMATS),
          sources: z
            .array(z.strictObject({ tensor: tensorName, rows: extent, order: order.optional() }))
            .min(1)
            .max(2 * MAX_EXPERTS),
          experts: expertCount.exactOptional(),
          slots: z
            .strictObject({
              count: z.number().int().min(1).max(MAX_ADAPTER_SLOTS),
              holds: z.enum(['a', 'b', 'scale']),
            })
            .exactOptional(),
          k: extent,
          pairing,
          columnScale: tensorName.optional(),
          columnOffset: z.number().optional(),
          scalesOf: z.strictObject({ format: z.enum(CODE_FORMATS), k: extent }).exactOptional(),
          from: z.enum(['values', 'codes']).exactOptional(),
          group: z.literal(GROUP_SIZES).exactOptional(),
        }),
      )
      .max(20_000),
    constants: z.array(z.strictObject({ name: tensorName, values: z.array(z.number()).max(1 << 16) })).max(16),
    states: z
      .array(
        z.strictObject({
          name: stateName,
          dtype: z.enum(DTYPES),
          rows: extent,
          columns: extent,
          isBlocked: z.literal(true).exactOptional(),
        }),
      )
      .max(1024),
    functions: z.array(functionOf(schedule)).min(1).max(16),
  });

/**
 * Reads a plan whose schedules match `schedule`. Throws UserError, with the rebuild command as hint, if the text is not
 * a plan.
 */
export function parsePlan<S>(text: string, where: string, rebuild: string, schedule: z.ZodType<S>): Plan<S> {
  if (isDeeperThan(text, MAX_JSON_DEPTH))
    throw new UserError(`${where}: is nested more than ${MAX_JSON_DEPTH} deep`, rebuild);
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new UserError(`${where}: is not JSON`, rebuild);
  }
  const parsed = planOf(schedule).safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new UserError(
      `${where}: ${issue === undefined ? 'not a plan' : clipped(`${issue.path.join('.')}: ${issue.message}`)}`,
      rebuild,
    );
  }
  // zod's optional fields allow `undefined`. JSON cannot contain it, so absent fields are absent.
  return parsed.data as Plan<S>;
}
