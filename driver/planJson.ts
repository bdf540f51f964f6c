/** The plan as JSON text, and back through a schema that bounds everything before anyone allocates. */
import { z } from 'zod';
import { UserError } from '../errors.js';
import { BINARY, UNARY, type BinaryOp, type Scalar, type UnaryOp } from '../ir/scalar.js';
import type { Plan } from '../ir/plan.js';
import { FORMAT_NAMES, LAYOUTS } from '../ir/storage.js';
import { BUFFER_DTYPES } from '../ir/types.js';

/** JSON has no infinities: a mask's −∞ travels as a word. */
export const printPlan = (plan: Plan<unknown>): string =>
  `${JSON.stringify(plan, (_, value: unknown) => (value === -Infinity ? '-inf' : value === Infinity ? 'inf' : value))}\n`;

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
const symbol = z.enum(['T', 'R']);
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
/** Every expression that a kernel may hold has an entry; `arg` belongs to op definitions. */
type KernelScalar = Exclude<Scalar['op'], UnaryOp | BinaryOp | 'arg'>;
const scalar: z.ZodType<Scalar> = z.lazy(() =>
  z.union([...Object.values(scalars), unaryScalar, binaryScalar]),
) as z.ZodType<Scalar>;
const scalars: Readonly<Record<KernelScalar, z.ZodType>> = {
  const: z.strictObject({ op: z.literal('const'), value: real }),
  acc: z.strictObject({ op: z.literal('acc'), index: z.union([z.literal(0), z.literal(1)]) }),
  rowIndex: z.strictObject({ op: z.literal('rowIndex') }),
  columnIndex: z.strictObject({ op: z.literal('columnIndex') }),
  load: z.strictObject({ op: z.literal('load'), buffer: identifier, access }),
  rowSum: z.strictObject({ op: z.literal('rowSum'), buffer: identifier, via: identifier.optional() }),
  segmentSum: z.strictObject({
    op: z.literal('segmentSum'),
    buffer: identifier,
    width: extent,
    parts: extent,
    via: identifier.optional(),
  }),
  rotateHalf: z.strictObject({ op: z.literal('rotateHalf'), a: scalar }),
  select: z.strictObject({ op: z.literal('select'), condition: scalar, a: scalar, b: scalar }),
};
const unaryScalar = z.strictObject({ op: z.enum(UNARY), a: scalar });
const binaryScalar = z.strictObject({ op: z.enum(BINARY), a: scalar, b: scalar });
const outputs = z
  .array(z.strictObject({ kind: z.enum(['store', 'rowSum']), buffer: identifier, value: scalar }))
  .max(16);
const pairing = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('none') }),
  z.strictObject({ kind: z.literal('rotate'), headDim: extent, width: extent }),
  z.strictObject({ kind: z.literal('interleave'), width: extent }),
]);
const head = { name: identifier, path: label, rows: symbol, ops: z.array(z.string().max(40)).max(200) };
const kernel = z.discriminatedUnion('anchor', [
  z.strictObject({
    ...head,
    anchor: z.literal('gemm'),
    k: extent,
    a: identifier,
    segments: z
      .array(z.strictObject({ weight: identifier, columns: extent, pairing, outputs }))
      .min(1)
      .max(8),
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('attention'),
    q: identifier,
    k: identifier,
    v: identifier,
    out: identifier,
    heads: extent,
    kvHeads: extent,
    headDim: extent,
    scale: z.number(),
    mask: z.union([
      z.strictObject({ kind: z.literal('column'), subtreeEnd: identifier }),
      z.strictObject({ kind: z.literal('bias'), buffer: identifier }),
    ]),
    queryRow: identifier.optional(),
  }),
  z.strictObject({
    ...head,
    rows: z.literal('R'),
    anchor: z.literal('logprob'),
    k: extent,
    a: identifier,
    weight: identifier,
    vocab: extent,
    rowScale: scalar,
    target: identifier,
    parts: identifier,
  }),
  z.strictObject({
    ...head,
    rows: z.literal('R'),
    anchor: z.literal('logprobReduce'),
    vocab: extent,
    parts: identifier,
    target: identifier,
    logProb: identifier,
    isArgmax: identifier,
  }),
  z.strictObject({
    ...head,
    anchor: z.literal('loop'),
    columns: z.union([extent, z.literal('T')]),
    headDim: extent.optional(),
    outputs,
  }),
]);
const bucket = z.strictObject({ tokens: extent, rows: extent, longest: extent });
const planOf = <S>(schedule: z.ZodType<S>) =>
  z.strictObject({
    buffers: z
      .array(
        z.strictObject({
          name: identifier,
          dtype: z.enum(BUFFER_DTYPES),
          rows: z.union([symbol, extent]),
          columns: z.union([extent, z.literal('T')]),
          space: z.enum(['input', 'output', 'arena', 'weight']),
          upper: identifier.optional(),
        }),
      )
      .max(20_000),
    weights: z
      .array(
        z.strictObject({
          name: identifier,
          layout: z.enum(LAYOUTS),
          format: z.enum(FORMAT_NAMES),
          sources: z
            .array(z.strictObject({ tensor: tensorName, rows: extent }))
            .min(1)
            .max(2),
          k: extent,
          pairing,
          columnScale: tensorName.optional(),
        }),
      )
      .max(20_000),
    constants: z.array(z.strictObject({ name: tensorName, values: z.array(z.number()).max(1 << 16) })).max(16),
    kernels: z.array(kernel).max(20_000),
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

/**
 * Reads a plan whose schedules are those of `schedule`. UserError, with the rebuild command as hint, where the text is
 * not one.
 */
export function parsePlan<S>(text: string, where: string, rebuild: string, schedule: z.ZodType<S>): Plan<S> {
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
      `${where}: ${issue === undefined ? 'not a plan' : `${issue.path.join('.')}: ${issue.message}`}`,
      rebuild,
    );
  }
  // zod's optional fields admit `undefined`; JSON never holds it, so absent fields are absent.
  return parsed.data as Plan<S>;
}
