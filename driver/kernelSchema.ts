/** Schemas of the kernels in a plan's file, and the names and numbers of plans, each with its bounds. */
import { z } from 'zod';
import { MAX_CHOSEN, MAX_EXPERTS } from '../ir/experts.js';
import { EXTENT_NAME } from '../ir/extents.js';
import { STATE_NAME } from '../ir/function.js';
import { NAME } from '../ir/graph/checkNode.js';
import { MAX_ADAPTER_RANK, MAX_ADAPTER_SLOTS } from '../ir/adapterRows.js';
import { MAX_BACK } from '../ir/paths.js';
import { mapInputs } from '../ir/sampleInputs.js';
import { SCAN_RULES } from '../ir/scan.js';
import { BINARY, type BinaryOp, type Scalar, UNARY, type UnaryOp } from '../ir/scalar.js';

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
const arrangedPairs = {
  order: identifier,
  places: z.array(identifier).max(MAX_CHOSEN),
  starts: identifier,
  owners: identifier.exactOptional(),
};

/** How far back queries see. */
const reach = { window: extent.optional(), chunk: extent.optional() };

const access = z.union([
  z.strictObject({ kind: z.enum(['element', 'row']), via: identifier.optional() }),
  z.strictObject({ kind: z.literal('column') }),
  z.strictObject({ kind: z.literal('periodic'), period: extent, via: identifier.optional() }),
  z.strictObject({ kind: z.literal('columnPeriodic'), period: extent }),
]);
/** The largest in place of the sum. */
const by = z.literal('max').exactOptional();
/** Every expression that a kernel may contain has an entry. */
type KernelScalar = Exclude<Scalar['op'], UnaryOp | BinaryOp>;
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
/** How the columns of a packed weight lie. */
export const pairing = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('none') }),
  z.strictObject({ kind: z.literal('rotate'), headDim: extent, width: extent }),
  z.strictObject({ kind: z.literal('interleave'), width: extent }),
]);
const head = {
  name: identifier,
  path: label,
  rows: extentName,
  ops: z.array(z.string().max(40)).max(200),
  versions: z.record(stateName, z.number().int().min(0).max(MAX_KERNELS)).optional(),
};
const totals = z.strictObject({ top: identifier, sum: identifier });
const firstFactors = z.strictObject({ weight: identifier, scale: identifier });
const adapterRows = {
  slot: identifier,
  slots: z.number().int().min(1).max(MAX_ADAPTER_SLOTS),
  rank: z.number().int().min(1).max(MAX_ADAPTER_RANK),
};
const rounding = z.strictObject({ columns: extent }).optional();

/** Kernels that others may run. */
const route = z.strictObject({
  ...head,
  anchor: z.literal('route'),
  count: expertCount,
  chosen: expertCount,
  scores: z.literal('sigmoid').optional(),
  groups: z.strictObject({ count: expertCount, kept: expertCount, best: expertCount }).optional(),
  normalized: z.boolean(),
  factor: z.number().positive().optional(),
  inTurn: z.number().positive().optional(),
  logits: identifier,
  bias: identifier.optional(),
  experts: identifier,
  weights: z.array(identifier).max(MAX_CHOSEN),
  pairs: z.strictObject(arrangedPairs).exactOptional(),
});
const loop = z.strictObject({
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
});

/** A kernel, by its anchor. */
export const kernel = z.discriminatedUnion('anchor', [
  z.strictObject({
    ...head,
    anchor: z.literal('gemm'),
    heads: extent.exactOptional(),
    k: extent,
    a: identifier,
    rounding,
    experts: z
      .strictObject({ count: expertCount, starts: identifier, areKnown: z.literal(true).exactOptional() })
      .optional(),
    segments: z
      .array(
        z.strictObject({
          weight: identifier,
          columns: extent,
          pairing,
          outputs,
          adapter: z.strictObject({ weight: identifier, part: z.number().int().min(0).max(64) }).exactOptional(),
        }),
      )
      .min(1)
      .max(8),
    adapter: z.strictObject({ ...adapterRows, shrunk: identifier, first: firstFactors }).exactOptional(),
    finish: outputs.optional(),
    routing: z.strictObject({ route, gather: loop.exactOptional() }).exactOptional(),
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
    valueDim: extent.optional(),
    tail: z.strictObject({ q: identifier, k: identifier, headDim: extent }).optional(),
    scale: z.number(),
    cap: z.number().positive().optional(),
    slopes: identifier.optional(),
    slopeFactor: z.number().positive().exactOptional(),
    mask: z.union([
      z.strictObject({
        kind: z.literal('column'),
        subtreeEnd: identifier,
        ...reach,
        position: identifier.optional(),
      }),
      z.strictObject({
        kind: z.literal('path'),
        begin: identifier,
        position: identifier,
        key: identifier,
        ...reach,
      }),
      z.strictObject({ kind: z.literal('bias'), buffer: identifier }),
    ]),
    sink: identifier.exactOptional(),
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
    bias: identifier.exactOptional(),
    cap: z.number().positive().optional(),
    target: identifier,
    draw: z
      .strictObject({ inverseTemperature: identifier, low: identifier, high: identifier, ids: identifier.optional() })
      .optional(),
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
    draw: z.strictObject({ token: identifier, logProb: identifier, ids: identifier.optional() }).optional(),
    totals: totals.optional(),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('sample'),
    vocab: extent,
    logits: identifier,
    totals,
    inputs: z.strictObject(mapInputs(() => identifier)),
    saved: identifier,
    token: identifier,
    logProb: identifier,
    best: z.strictObject({ most: extent, count: identifier, tokens: identifier, logProbs: identifier }),
  }),
  route,
  z.strictObject({
    ...head,
    anchor: z.literal('sortByExpert'),
    count: expertCount,
    chosen: expertCount,
    experts: identifier,
    ...arrangedPairs,
  }),
  z.strictObject({
    ...head,
    ...adapterRows,
    anchor: z.literal('shrink'),
    k: extent,
    a: identifier,
    parts: z.number().int().min(1).max(64),
    weight: identifier,
    scale: identifier,
    out: identifier,
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('links'),
    paths: z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('column'), subtreeEnd: identifier }),
      z.strictObject({ kind: z.literal('path'), begin: identifier, position: identifier, key: identifier }),
    ]),
    before: z.array(z.strictObject({ back: z.number().int().min(0).max(MAX_BACK), out: identifier })).max(MAX_BACK + 1),
    end: identifier.exactOptional(),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('scan'),
    rule: z.enum(SCAN_RULES),
    keyHeads: extent,
    heads: extent,
    takesTurns: z.literal(true).exactOptional(),
    keyDim: extent,
    valueDim: extent,
    scale: real.exactOptional(),
    epsilon: real.exactOptional(),
    q: identifier,
    k: identifier,
    v: identifier,
    decay: identifier,
    beta: identifier,
    skip: identifier.exactOptional(),
    before: identifier,
    end: identifier,
    out: identifier,
    kept: z
      .strictObject({ state: identifier, from: identifier, to: z.tuple([identifier, identifier]) })
      .exactOptional(),
  }),
  loop,
]);
