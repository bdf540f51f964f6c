/**
 * manifest.json of an artifact: what it was compiled from and for, and the hash of every file that is read. Every file
 * has a size limit and lies inside the folder.
 */
import { createHash } from 'node:crypto';
import { statSync } from 'node:fs';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { MAX_ADAPTER_RANK, MAX_ADAPTER_SLOTS } from '../../ir/adapterRows.js';
import { MASKS } from '../../models/model/model.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import { defined } from '../../system/defined.js';
import { clipped } from '../../system/json.js';
import { quoteForShell } from '../../system/process.js';
import { decodeUtf8, pathInside, readBounded } from '../../system/read.js';
import { MANIFEST, MAX_CACHE_TOKENS, type WeightInit } from '../names.js';
import { MAX_CAPACITY } from '../plan.js';
import { type Arithmetic, ARITHMETICS, CODED_CACHES, type CodedCache, isInteger } from '../precision.js';
import { type AnyTarget, type CompiledModel, type Rebuild, TARGET_RECORDS } from '../targets/index.js';

/** Bump when the plan's meaning, the kernel ABI or the folder's layout changes. */
export const ARTIFACT_VERSION = 6;

/** Folder of sources and machine code. */
export const KERNELS = 'kernels';
/** Folder of the checkpoint, if the artifact contains it. */
export const CHECKPOINT = 'checkpoint';

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.number().int().nonnegative();

/** Names of machine code and of weight files. Plain names only, so that none leads out of its folder. */
const hashesOf = (name: RegExp, most: number) =>
  z
    .record(z.string().regex(name), hash)
    .refine((files) => Object.keys(files).length <= most, `expected at most ${most} files`);

const manifestSchema = z.strictObject({
  format: z.literal('tilewright'),
  version: z.number().int(),
  target: z.looseObject({ kind: z.string().max(40), arithmetic: z.enum(ARITHMETICS) }),
  mask: z.enum(MASKS),
  /** Tokens of the largest micro-batch; absent in artifacts of earlier versions. */
  maxTokens: z.number().int().min(1).max(MAX_CAPACITY).optional(),
  /**
   * The most tokens whose keys and values there is memory for, unless a run says otherwise; absent if the artifact only
   * scores.
   */
  cacheTokens: z.number().int().min(1).max(MAX_CACHE_TOKENS).optional(),
  /** Absent: keys and values are kept in the type that attention multiplies. */
  kvCache: z.enum(CODED_CACHES).optional(),
  /** Whether `step` can keep logits on the device and choose from them. */
  logits: z.literal(true).optional(),
  /** Whether `step` takes tokens that the call before it has drawn. */
  feeds: z.literal(true).optional(),
  /** Whether `step` returns rows of the residual stream behind the last norm. */
  hidden: z.literal(true).optional(),
  /** Slots for adapters; absent: it takes none. */
  adapters: z
    .strictObject({
      slots: z.number().int().min(1).max(MAX_ADAPTER_SLOTS),
      rank: z.number().int().min(1).max(MAX_ADAPTER_RANK),
    })
    .optional(),
  model: z.strictObject({
    path: z.string().max(4096),
    /** Whether the checkpoint lies in the artifact; `path` is then where it came from. */
    isPacked: z.boolean(),
    fingerprint: hash,
    init: z.union([
      z.strictObject({ kind: z.literal('checkpoint') }),
      z.strictObject({ kind: z.literal('random'), seed: count }),
    ]),
    /** Absent if the checkpoint had none. */
    tokenizer: hash.optional(),
    /** Hashes of all bytes of the weight files, if they were read. */
    contents: hashesOf(/^(?!\.)[^/\\\p{Cc}]{1,200}\.(?:safetensors|bin|pth|gguf)$/u, 4096).optional(),
  }),
  tuned: z.boolean(),
  /** The digest of the function `score` of its graph alone. */
  scoreGraph: hash.optional(),
  /** The digest of the code that made it: what that program made, it need not plan again. */
  program: hash.optional(),
  files: z.strictObject({ 'graph.tw': hash, 'plan.json': hash, 'kernels.json': hash.optional() }),
  /** Absent if nothing was compiled. */
  code: z
    .strictObject({
      abi: count,
      machine: z.string().max(100),
      compiler: z.string().max(300),
      sources: hash,
      files: hashesOf(/^\w{1,200}\.[a-z]{1,10}$/, 4096),
    })
    .optional(),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** An adapter by its content, and where it was found. */
export interface AdapterReference {
  readonly hash: string;
  readonly path: string;
}

/** What names the weights that are computed with: made-up ones have a seed. */
export const weightsId = ({
  fingerprint,
  init,
  adapter,
}: Pick<ModelReference, 'fingerprint' | 'init' | 'adapter'>): readonly unknown[] => [
  fingerprint,
  init,
  ...(adapter === undefined ? [] : [{ adapter: adapter.hash }]),
];

/** The checkpoint of a compiled model, and what is known about its bytes. */
export interface ModelReference {
  readonly path: string;
  readonly fingerprint: string;
  readonly init: WeightInit;
  /** The adapter that the whole model has. */
  readonly adapter?: AdapterReference | undefined;
  /** Hash of the tokenizer; absent if there is none, or it was not read. */
  readonly tokenizer?: string | undefined;
  /** Digests of the weight files, by name; absent if the files were not read in full. */
  readonly contents?: Readonly<Record<string, string>> | undefined;
}

/** Identity of what is computed: model, arithmetic and graph (its digest). Names journals and results. */
export const artifactId = (
  reference: ModelReference,
  model: Pick<CompiledModel, 'isa' | 'arithmetic' | 'graphs'>,
  graph = model.graphs.all,
): string =>
  sha256(JSON.stringify([ARTIFACT_VERSION, ...weightsId(reference), model.isa, model.arithmetic, graph])).slice(0, 16);

/**
 * Size limits of an artifact's files, in bytes. A layer takes 6 KB of the graph and at most 20 KB of the plan, so a
 * model of 80 layers needs about 5 % of them.
 */
const MAX_BYTES = { [MANIFEST]: 1 << 20, 'graph.tw': 8 << 20, 'plan.json': 32 << 20, 'kernels.json': 8 << 20 } as const;

/** A part of an artifact, as text. Throws UserError. */
export function readPart(dir: string, name: keyof typeof MAX_BYTES, again: string): string {
  const path = pathInside(dir, name, again);
  return decodeUtf8(readBounded(path, MAX_BYTES[name], again), path, again);
}

/** The target whose arithmetic follows from the machine: bf16 needs AMX, and f32 is what remains without it. */
const HOST_TARGET = 'cpu';

/**
 * The command that rebuilds the artifact at `dir`. It names the target if that is known, because the default, `auto`,
 * may choose another one on this machine.
 */
export function rebuild(
  dir: string,
  known: {
    readonly model?: Pick<ModelReference, 'path'> & { readonly init?: WeightInit };
    /** A value of `--target`. */
    readonly target?: string;
    readonly arithmetic?: Arithmetic;
    readonly cacheTokens?: number | undefined;
    readonly kvCache?: CodedCache | undefined;
    readonly logits?: boolean | undefined;
    readonly adapters?: AdapterSlots | undefined;
  } = {},
): string {
  const { arithmetic, target, model, cacheTokens, kvCache, logits = false, adapters } = known;
  const isHost = target === undefined || target === HOST_TARGET;
  const isNarrow = arithmetic !== undefined && isInteger(arithmetic);
  const precision = isNarrow ? 'int8' : arithmetic === 'f32' || !isHost ? arithmetic : undefined;
  const words = [
    'tilewright compile',
    model === undefined ? '<checkpoint>' : quoteForShell(model.path),
    ...(model?.init?.kind === 'random' ? [`--init random:${model.init.seed}`] : []),
    ...(target === undefined ? [] : [`--target ${target}`]),
    ...(precision === undefined ? [] : [`--precision ${precision}`]),
    ...(cacheTokens === undefined ? [] : [`--cache-tokens ${cacheTokens}`]),
    ...(kvCache === undefined ? [] : [`--kv-cache ${kvCache}`]),
    ...(logits ? ['--logits'] : []),
    ...(adapters === undefined ? [] : [`--adapter-slots ${adapters.slots} --adapter-rank ${adapters.rank}`]),
    `-o ${quoteForShell(dir)}`,
  ];
  return words.join(' ');
}

/** The commands that rebuild the artifact at `dir` for other targets. A CPU chooses its own arithmetic. */
export const rebuildFor =
  (
    dir: string,
    model: Pick<ModelReference, 'path' | 'init'>,
    { arithmetic, kvCache }: Pick<CompiledModel, 'arithmetic' | 'kvCache'>,
  ): Rebuild =>
  (target) =>
    rebuild(dir, { model, target, kvCache, ...(target === HOST_TARGET ? {} : { arithmetic }) });

/** Reads the manifest of an artifact and nothing else. Throws UserError. */
export function readManifest(dir: string, targets: readonly AnyTarget[] = TARGET_RECORDS): Manifest {
  if (!statSync(dir).isDirectory()) throw new UserError(`${dir}: is not an artifact folder`, rebuild(dir));
  return parseManifest(dir, readPart(dir, MANIFEST, rebuild(dir)), targets);
}

export const kindOf = (kind: string, targets: readonly AnyTarget[]): AnyTarget | undefined =>
  targets.find(({ name }) => name === kind);

/** The fields that every version's manifest has: enough to name the version and the command that rebuilds. */
const anyVersion = z.looseObject({
  version: z.number(),
  target: z.looseObject({ kind: z.string() }).optional(),
  model: z.looseObject({ path: z.string().max(4096) }).optional(),
});

function parseManifest(dir: string, text: string, targets: readonly AnyTarget[]): Manifest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new UserError(`${dir}: manifest.json is not JSON`, rebuild(dir));
  }
  const any = anyVersion.safeParse(json);
  // The name comes from the list of targets: nothing from the file but a quoted path gets into a command.
  const name = any.data?.target === undefined ? undefined : kindOf(any.data.target.kind, targets)?.name;
  const again = rebuild(dir, {
    ...defined({ model: any.data?.model && { path: any.data.model.path } }),
    ...defined({ target: name }),
  });
  if (any.success && any.data.version !== ARTIFACT_VERSION)
    throw new UserError(
      `${dir}: made by artifact version ${any.data.version}; this tilewright reads ${ARTIFACT_VERSION}`,
      again,
    );
  const refuse = (path: readonly PropertyKey[], problem: string): UserError =>
    new UserError(`${dir}: manifest.json: ${clipped(`${path.map(String).join('.')}: ${problem}`)}`, again);
  const parsed = manifestSchema.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw refuse(issue?.path ?? [], issue?.message ?? 'not a manifest');
  }
  const { target } = parsed.data;
  const record = kindOf(target.kind, targets);
  if (record === undefined) throw refuse(['target', 'kind'], `there is no target ${JSON.stringify(target.kind)}`);
  const described = record.manifest.schema.safeParse(target);
  if (!described.success) {
    const [issue] = described.error.issues;
    throw refuse(['target', ...(issue?.path ?? [])], issue?.message ?? `not a machine for ${record.name}`);
  }
  return parsed.data;
}
