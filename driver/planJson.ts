/** Writes the plan as JSON, and reads it through a schema that bounds everything before memory is allocated. */
import { z } from 'zod';
import { UserError } from '../errors.js';
import { BINARY, UNARY, type BinaryOp, type Scalar, type UnaryOp } from '../ir/scalar.js';
import type { Plan } from '../ir/plan.js';
import { CODE_FORMATS, LAYOUTS, WEIGHT_FORMATS } from '../ir/storage.js';
import { MAX_RANK, NAME } from '../ir/graph/checkNode.js';
import { GROUP_SIZES } from '../ir/groups.js';
import { MOST_CHOSEN, MOST_EXPERTS } from '../ir/experts.js';
import { SAMPLE_INPUT_NAMES, sampleInputsOf } from '../ir/sampleInputs.js';
import { EXTENT_COUNTS, EXTENT_NAME } from '../ir/extents.js';
import { STATE_NAME } from '../ir/function.js';
import { BUFFER_DTYPES, DTYPES } from '../ir/types.js';
import { clipped, isDeeperThan, MAX_JSON_DEPTH } from '../system/json.js';

/** JSON has no infinities, so a mask's −∞ is written as a string. */
export function printPlan(plan: Plan<unknown>): string {
  const replacer = (_: string, value: unknown): unknown =>
    value === -Infinity ? '-inf' : value === Infinity ? 'inf' : value;
  return `${JSON.stringify(plan, replacer)}\n`;
}

const MAX_EXTENT = 1 << 27;
const identifier = z.string().regex(/^[a-z][a-z0-9_]{0,250}$/);
const tensorName = z.string().regex(/^[\w.]{1,300}$/);
const label = z.string().max(300);
const extent = z.number().int().min(1).max(MAX_EXTENT);
const bytes = z
  .number()
  .int()
  .min(0)
  .max(2 ** 45);
const extentName = z.string().regex(EXTENT_NAME);
const dim = z.union([extentName, extent]);
const name = z.string().regex(NAME);
const stateName = z.string().regex(STATE_NAME);
const real = z.union([
  z.number(),
  z.literal('-inf').transform(() => -Infinity),
  z.literal('inf').transform(() => Infinity),
]);

const access = z.union([
  z.strictObject({ kind: z.enum(['element', 'row']), via: identifier.optional() }),
  z.strictObject({ kind: z.literal('column') }),
  z.strictObject({ kind: z.literal('periodic'), period: extent, via: identifier.optional() }),
  z.strictObject({ kind: z.literal('columnPeriodic'), period: extent }),
]);
/** The largest in place of the sum. */
const by = z.literal('max').exactOptional();
/** Every expression that a kernel may contain has an entry; `arg` occurs only in op definitions. */
type KernelScalar = Exclude<Scalar['op'], UnaryOp | BinaryOp | 'arg'>;
const scalar: z.ZodType<Scalar> = z.lazy(() => anyScalar) as z.ZodType<Scalar>;
const scalars = {
  const: z.strictObject({ op: z.literal('const'), value: real }),
  acc: z.strictObject({ op: z.literal('acc'), index: z.union([z.literal(0), z.literal(1)]) }),
  rowIndex: z.strictObject({ op: z.literal('rowIndex') }),
  columnIndex: z.strictObject({ op: z.literal('columnIndex') }),
  load: z.strictObject({ op: z.literal('load'), buffer: identifier, access }),
  rowSum: z.strictObject({ op: z.literal('rowSum'), buffer: identifier, via: identifier.optional(), by }),
  segmentSum: z.strictObject({
    op: z.literal('segmentSum'),
    buffer: identifier,
    width: extent,
    parts: extent,
    via: identifier.optional(),
    by,
  }),
  rotateHalf: z.strictObject({ op: z.literal('rotateHalf'), a: scalar }),
  groupSum: z.strictObject({ op: z.literal('groupSum'), a: scalar, width: extent }),
  select: z.strictObject({ op: z.literal('select'), condition: scalar, a: scalar, b: scalar }),
} satisfies Readonly<Record<KernelScalar, z.ZodType>>;
const unaryScalar = z.strictObject({ op: z.enum(UNARY), a: scalar });
const binaryScalar = z.strictObject({ op: z.enum(BINARY), a: scalar, b: scalar });
/** By `op`: a union that tries one form after another takes seconds, and gigabytes, for a large hostile plan. */
const anyScalar = z.discriminatedUnion('op', [unaryScalar, binaryScalar, ...Object.values(scalars)]);
const outputs = z
  .array(
    z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('store'), buffer: identifier, via: identifier.optional(), value: scalar }),
      z.strictObject({ kind: z.literal('rowSum'), by, buffer: identifier, value: scalar }),
    ]),
  )
  .max(16);
const pairing = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('none') }),
  z.strictObject({ kind: z.literal('rotate'), headDim: extent, width: extent }),
  z.strictObject({ kind: z.literal('interleave'), width: extent }),
]);
const order = z.strictObject({ headDim: extent, rotated: extent, interleaved: z.boolean() });
const MAX_KERNELS = 20_000;
const head = {
  name: identifier,
  path: label,
  rows: extentName,
  ops: z.array(z.string().max(40)).max(200),
  versions: z.record(stateName, z.number().int().min(0).max(MAX_KERNELS)).optional(),
};
const expertCount = z.number().int().min(1).max(MOST_EXPERTS);
const totals = z.strictObject({ top: identifier, sum: identifier });
const rounding = z.strictObject({ columns: extent }).optional();
const kernel = z.discriminatedUnion('anchor', [
  z.strictObject({
    ...head,
    anchor: z.literal('gemm'),
    k: extent,
    a: identifier,
    rounding,
    experts: z.strictObject({ count: expertCount, starts: identifier }).optional(),
    segments: z
      .array(z.strictObject({ weight: identifier, columns: extent, pairing, outputs }))
      .min(1)
      .max(8),
    finish: outputs.optional(),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('attention'),
    q: identifier,
    k: identifier,
    v: identifier,
    scales: z.strictObject({ k: identifier, v: identifier }).optional(),
    out: identifier,
    heads: extent,
    kvHeads: extent,
    headDim: extent,
    scale: z.number(),
    cap: z.number().positive().optional(),
    mask: z.union([
      z.strictObject({
        kind: z.literal('column'),
        subtreeEnd: identifier,
        window: extent.optional(),
        position: identifier.optional(),
      }),
      z.strictObject({
        kind: z.literal('path'),
        begin: identifier,
        position: identifier,
        key: identifier,
        window: extent.optional(),
      }),
      z.strictObject({ kind: z.literal('bias'), buffer: identifier }),
    ]),
    queryRow: identifier.optional(),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('logprob'),
    k: extent,
    a: identifier,
    rounding,
    weight: identifier,
    vocab: extent,
    rowScale: scalar,
    cap: z.number().positive().optional(),
    target: identifier,
    draw: z.strictObject({ inverseTemperature: identifier, low: identifier, high: identifier }).optional(),
    logits: identifier.optional(),
    parts: identifier,
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('logprobReduce'),
    vocab: extent,
    parts: identifier,
    target: identifier,
    logProb: identifier,
    isArgmax: identifier,
    draw: z.strictObject({ token: identifier, logProb: identifier }).optional(),
    totals: totals.optional(),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('sample'),
    vocab: extent,
    logits: identifier,
    totals,
    inputs: z.strictObject(sampleInputsOf(SAMPLE_INPUT_NAMES.map(() => identifier))),
    saved: identifier,
    token: identifier,
    logProb: identifier,
    best: z.strictObject({ most: extent, count: identifier, tokens: identifier, logProbs: identifier }),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('route'),
    count: expertCount,
    chosen: expertCount,
    normalised: z.boolean(),
    logits: identifier,
    experts: identifier,
    weights: z.array(identifier).max(MOST_CHOSEN),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('arrange'),
    count: expertCount,
    chosen: expertCount,
    experts: identifier,
    order: identifier,
    places: z.array(identifier).max(MOST_CHOSEN),
    starts: identifier,
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('loop'),
    columns: dim,
    headDim: extent.optional(),
    outputs,
    beside: z
      .array(z.strictObject({ columns: dim, headDim: extent.optional(), outputs }))
      .max(8)
      .optional(),
    finish: outputs.optional(),
  }),
]);
/** `longest` is 0 if calls have no trees. */
const bucket = z.strictObject({
  extents: z.record(extentName, extent),
  longest: z.number().int().min(0).max(MAX_EXTENT),
  run: extent.exactOptional(),
});
const role = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('token'), vocab: extent }),
  z.strictObject({ kind: z.literal('row'), of: extentName }),
  z.strictObject({ kind: z.literal('slot'), state: stateName }),
  z.strictObject({ kind: z.literal('entry'), state: stateName }),
  z.strictObject({ kind: z.enum(['position', 'depth', 'subtreeEnd', 'values']) }),
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
          isByColumn: z.literal(true).exactOptional(),
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
            .max(2 * MOST_EXPERTS),
          experts: expertCount.exactOptional(),
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
          ...{ name: stateName, dtype: z.enum(DTYPES), rows: extent, columns: extent },
          isByColumn: z.literal(true).exactOptional(),
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
