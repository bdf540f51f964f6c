/** Lines of the tuning database: what each kind holds, within bounds. */
import { z } from 'zod';
import { CUDA_GEMM_MODES, CUDA_GEMM_SKELETONS } from '../ir/cuda.js';
import { CPU_ISAS } from '../ir/plan.js';

/** Bump when a record's meaning changes. Records of other versions are skipped. */
export const DATABASE_VERSION = 1;

const extent = z
  .int()
  .min(1)
  .max(1 << 20);
const text = z.string().min(1).max(200);

const cpuScheduleSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('gemm'),
    isa: z.enum(CPU_ISAS),
    mr: extent,
    nr: extent,
    kc: extent,
    mb: extent,
    nb: extent,
  }),
  z.strictObject({ kind: z.literal('attention'), isa: z.enum(CPU_ISAS), queries: extent, keys: extent }),
  z.strictObject({ kind: z.literal('loop'), isa: z.enum(CPU_ISAS), rows: extent }),
]);

const key = z.string().regex(/^[0-9a-f]{8,64}$/);
const outcome = {
  /** Seconds of each repeat; empty where the candidate failed. */
  seconds: z.array(z.number().positive().max(3600)).max(1000),
  /** Why it may not be used: its result differs, it does not compile. */
  failure: z.string().max(500).optional(),
  /** ISO 8601. */
  timestamp: z.iso.datetime(),
};
const isOutcome = (record: { readonly seconds: readonly number[]; readonly failure?: string | undefined }): boolean =>
  (record.failure === undefined) === record.seconds.length > 0;
const OUTCOME = 'seconds or a failure';

const bucketSchema = z.strictObject({ tokens: extent, rows: extent, longest: extent });

/** Everything about the machine and the tools that changes a measurement. */
const targetSchema = z.strictObject({
  /** Architecture and strongest instruction set of the plan: `x64/avx512`. */
  isa: text,
  cpu: text,
  threads: z.int().min(1).max(4096),
  /** First line of the compiler's --version. */
  compiler: text,
  /** TW_ABI of generated kernels. */
  abi: z
    .int()
    .min(0)
    .max(1 << 20),
  /** Digest of the skeletons that kernels are printed from. */
  codegen: z.string().regex(/^[0-9a-f]{1,64}$/),
});
export type TuningTarget = z.infer<typeof targetSchema>;

export const recordSchema = z
  .strictObject({
    version: z.literal(DATABASE_VERSION),
    /** Kernel signature. */
    key,
    bucket: bucketSchema,
    target: targetSchema,
    schedule: cpuScheduleSchema,
    ...outcome,
  })
  .refine(isOutcome, OUTCOME);
export type TuningRecord = z.infer<typeof recordSchema>;

const cudaScheduleSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('gemm'),
    skeleton: z.enum(CUDA_GEMM_SKELETONS),
    tm: extent,
    tn: extent,
    tk: extent,
    stages: extent,
    cluster: z.union([z.literal(1), z.literal(2)]),
    raster: extent,
    mode: z.enum(CUDA_GEMM_MODES),
    lastTn: extent.exactOptional(),
  }),
  z.strictObject({ kind: z.literal('attention'), skeleton: z.enum(['simt', 'mma']), queries: extent, keys: extent }),
  z.strictObject({ kind: z.literal('loop'), threads: extent }),
]);

/** The device and everything between it and a schedule. */
const cudaTargetSchema = z.strictObject({
  /** Name, multiprocessors: `NVIDIA H100 80GB HBM3/132`. */
  gpu: text,
  arch: z.string().regex(/^sm_\d+a?$/),
  /** cuDriverGetVersion's number. */
  driver: z
    .int()
    .min(0)
    .max(1 << 20),
  /** Kind, version and build of the compiler. */
  compiler: text,
  codegen: z.string().regex(/^[0-9a-f]{1,64}$/),
});
export type CudaTuningTarget = z.infer<typeof cudaTargetSchema>;

export const cudaRecordSchema = z
  .strictObject({
    version: z.literal(DATABASE_VERSION),
    key,
    bucket: bucketSchema,
    cuda: cudaTargetSchema,
    schedule: cudaScheduleSchema,
    ...outcome,
  })
  .refine(isOutcome, OUTCOME);
export type CudaTuningRecord = z.infer<typeof cudaRecordSchema>;

/** The fastest of a search against each other and the default, in turn under a run's load: the newest one decides. */
export const cudaFinalSchema = z.strictObject({
  version: z.literal(DATABASE_VERSION),
  key,
  bucket: bucketSchema,
  cuda: cudaTargetSchema,
  /** Seconds of a launch. */
  final: z
    .array(z.strictObject({ schedule: cudaScheduleSchema, seconds: z.number().positive().max(3600) }))
    .min(1)
    .max(16),
  /** What a final can tell: whoever is not faster than the default by more has not beaten it. */
  marginSeconds: z.number().min(0).max(3600),
  timestamp: z.iso.datetime(),
});
export type CudaFinalRecord = z.infer<typeof cudaFinalSchema>;

/** A bare contraction C[m, n] = A[m, k]·W[n, k]ᵀ by the vendor's library. */
export const rivalRecordSchema = z.strictObject({
  version: z.literal(DATABASE_VERSION),
  rival: z.strictObject({
    /** Such as `cuBLASLt 13.0`. */
    library: text,
    gpu: text,
    driver: z
      .int()
      .min(0)
      .max(1 << 20),
    dtype: z.enum(['f16', 'bf16']),
    m: extent,
    n: extent,
    k: extent,
  }),
  /** The algorithm that was fastest. */
  name: text,
  seconds: z.array(z.number().positive().max(3600)).min(1).max(1000),
  timestamp: z.iso.datetime(),
});
export type RivalRecord = z.infer<typeof rivalRecordSchema>;
export type RivalKey = RivalRecord['rival'];
