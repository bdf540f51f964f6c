/** The model whose layer is measured: a plan of a few layers, because all but the last are alike. */
import { join } from 'node:path';
import { CudaSpace } from '../autotune/cuda/candidates.js';
import { cudaCost, type CudaMachine } from '../autotune/cuda/costModel.js';
import type { CudaTuningTarget } from '../autotune/cuda/tune.js';
import { contractionOf } from '../autotune/cuda/vendorBaseline.js';
import type { TuningDatabase } from '../autotune/database.js';
import { winnerOf } from '../autotune/records.js';
import { sizeOf } from '../autotune/work.js';
import { type CudaFacts, defaultCudaSchedule, isLegalCuda, kernelSignature } from '../codegen/cuda/index.js';
import { cudaScheduling } from '../codegen/cuda/encoding.js';
import { compileModel } from '../driver/compile/compile.js';
import type { Precision } from '../driver/precision.js';
import { cuda } from '../driver/targets/cuda.js';
import { cudaDevice, type GpuDevice } from '../driver/targets/cudaDevice.js';
import { UserError } from '../errors.js';
import type { CudaSchedule } from '../ir/cuda.js';
import type { Kernel } from '../ir/kernel.js';
import { type Bucket, type LinkedFunction, scoreOf } from '../ir/plan.js';
import { scoringBucket, tokensIn, withKeyRoom } from '../ir/scoring.js';
import { describeModel } from '../models/config.js';
import type { MaskKind } from '../models/model/model.js';
import { describeRandomCheckpoint } from '../models/randomCheckpoint.js';
import type { Finishing } from '../passes/fuseRowNorms.js';
import { defined } from '../system/defined.js';
import { readJsonObject } from '../system/read.js';

export interface BenchModel {
  readonly plan: LinkedFunction<CudaSchedule>;
  readonly facts: CudaFacts;
  /** Kernels of one layer, in the plan's order. Not of the last layer, whose end is over scored rows. */
  readonly layer: readonly Kernel[];
  /** The vocabulary contraction, which is measured where it is asked for by name. */
  readonly head?: Kernel;
}

/** The number of layers that are compiled. The first and the last are special. */
const LAYERS = 3;
const CONFIG_BYTES = 1 << 20;
/** Questions of multiple-choice benchmarks: a stem of 48 tokens and four answers of 32, which are scored. */
const TREE = { longest: 80, tokens: 176, scored: 128 } as const;

/** `attention.qkv` of `layers.1.attention.qkv`. */
export const roleOf = (path: string): string => path.replace(/^layers\.\d+\./, '');

/** A micro-batch of `tokens` tokens in trees like those of benchmarks. */
export const benchBucket = ({ plan }: Pick<BenchModel, 'plan'>, tokens: number): Bucket =>
  withKeyRoom(
    plan.interface,
    scoringBucket({
      tokens,
      rows: Math.max(1, Math.round((tokens * TREE.scored) / TREE.tokens)),
      longest: Math.min(tokens, TREE.longest),
    }),
  );

/**
 * Compiles the model of a config.json, or of the folder that holds it, for micro-batches up to at least `maxTokens`.
 * `finishing`: which products finish their rows.
 */
export function openBenchModel(
  path: string,
  facts: CudaFacts,
  maxTokens: number,
  mask: MaskKind = cuda.compiler.mask,
  precision: Precision = 'auto',
  finishing: Finishing = 'deep',
): BenchModel {
  const numerics = (device: GpuDevice) => ({ ...cuda.compiler.numerics(device), finishing });
  const target = { ...cuda, compiler: { ...cuda.compiler, numerics } };
  const checkpoint = describeRandomCheckpoint(path, 1);
  const file = path.endsWith('.json') ? path : join(path, 'config.json');
  const { value } = readJsonObject(file, CONFIG_BYTES);
  const model = describeModel({ ...value, num_hidden_layers: Math.min(LAYERS, checkpoint.config.layers) }, file);
  const { config } = model;
  const compile = (batchTokens?: number): LinkedFunction<CudaSchedule> => {
    const device = cudaDevice(facts, precision, config.dtype);
    const options = batchTokens === undefined ? { mask } : { mask, batchTokens };
    return scoreOf(compileModel({ ...checkpoint, model, config }, target, device, options).plan);
  };
  // The default capacity is the tuner's, and signatures depend on it.
  let plan = compile();
  if (tokensIn(plan.capacity) < maxTokens) plan = compile(maxTokens);
  const prefix = `layers.${config.layers > 2 ? 1 : 0}.`;
  const layer = plan.kernels.filter((kernel) => kernel.path.startsWith(prefix));
  if (config.layers < 2 || layer.length === 0)
    throw new UserError(
      `${path}: ${config.layers} layers; a whole layer is measured that is not the last`,
      'name a model of two layers at least: npm run bench:gpu -- --model bench/models/llama-33b',
    );
  const head = plan.kernels.find(({ anchor }) => anchor === 'logprob');
  return { plan, facts, layer, ...defined({ head }) };
}

/** Kernels with a product in 16 bits, which are compared with the vendor's library. */
export const contractions = ({ plan, layer }: BenchModel, bucket: Bucket): readonly Kernel[] =>
  layer.filter((kernel) => contractionOf(kernel, plan, bucket) !== undefined);

/**
 * Schedules of the kernels that are measured: the compiler's, the tuner's, those from the command line, and the cost
 * model's best.
 */

/** A schedule and its origin. */
export interface ScheduleChoice {
  /** `default`, `tuned`, `tried`, `rank 3`. */
  readonly origin: string;
  readonly schedule: CudaSchedule;
}

/** `--try KERNEL[@TOKENS]:WHAT`. */
export interface ScheduleTrial {
  readonly kernel: string;
  readonly tokens?: number;
  /** A schedule's key, or changes of the chosen schedule such as `tm=192,stages=5`. */
  readonly what: string;
}

const TRIAL = /^([\w.]+)(?:@(\d{1,6}))?:(.+)$/;
const EXAMPLE =
  'for example: --try "ffn.down:wgmma 128×192×64 s5 c2 r16 pingpong" or --try "ffn.down@7680:tm=192,tn=128,raster=10"';

export function parseTrial(text: string): ScheduleTrial {
  const [, kernel, tokens, what] = TRIAL.exec(text) ?? [];
  if (kernel === undefined || what === undefined)
    throw new UserError(`--try ${JSON.stringify(text)}: expected KERNEL:SCHEDULE or KERNEL@TOKENS:SCHEDULE`, EXAMPLE);
  return { kernel, what, ...defined({ tokens: tokens === undefined ? undefined : Number(tokens) }) };
}

export const isTrialOf = ({ kernel, tokens }: ScheduleTrial, path: string, t: number): boolean =>
  (roleOf(path) === kernel || path === kernel) && (tokens === undefined || tokens === t);

const GEMM = new RegExp(
  String.raw`^(wgmma|mma|simt|skinny|skinnyWgmma|grouped|micro) (\d+)[×x](\d+)[×x](\d+) s(\d+) c([12]) r(\d+) ` +
    String.raw`(cooperative|pingpong|deferred)(?: p([248]))?(?: rem(\d+))?(?: e(1))?$`,
);
const ATTENTION = /^(mma|simt|wgmma) q(\d+) k(\d+)(?: c([248]))?(?: t([24]))?(?: lone([5-8]))?(?: m([23]))?( shared)?$/;

/** The inverse of cudaScheduling.key; undefined if `key` is invalid. */
function fromKey(key: string, start: CudaSchedule): CudaSchedule | undefined {
  const gemm = GEMM.exec(key),
    attention = ATTENTION.exec(key),
    loop = /^t(\d+)(?: l(4))?$/.exec(key);
  let found: CudaSchedule | undefined;
  if (gemm !== null && start.kind === 'gemm') {
    const [tm, tn, tk, stages, cluster, raster] = gemm.slice(2, 8).map(Number) as [
      number,
      number,
      number,
      number,
      1 | 2,
      number,
    ];
    const { parts: _parts, remainderTn: _own, epilogueGroups: _groups, ...whole } = start;
    found = {
      ...whole,
      skeleton: gemm[1] as 'wgmma',
      tm,
      tn,
      tk,
      stages,
      cluster,
      raster,
      mode: gemm[8] as 'pingpong',
      ...defined({ parts: gemm[9] === undefined ? undefined : (Number(gemm[9]) as 2) }),
      ...defined({ remainderTn: gemm[10] === undefined ? undefined : Number(gemm[10]) }),
      ...defined({ epilogueGroups: gemm[11] === undefined ? undefined : 1 }),
    };
  } else if (attention !== null && start.kind === 'attention') {
    const [, skeleton, queries, keys, cluster, teams, lone, resident, shared] = attention;
    found = {
      kind: 'attention',
      skeleton: skeleton as 'mma',
      queries: Number(queries),
      keys: Number(keys),
      ...defined({ cluster: cluster === undefined ? undefined : (Number(cluster) as 2) }),
      ...defined({ teams: teams === undefined ? undefined : Number(teams) }),
      ...defined({ lone: lone === undefined ? undefined : (Number(lone) as 5) }),
      ...defined({ resident: resident === undefined ? undefined : (Number(resident) as 2) }),
      ...defined({ sharesTiles: shared === undefined ? undefined : true }),
    };
  } else if (loop !== null && start.kind === 'loop') {
    const { lanes: _lanes, ...whole } = start;
    found = { ...whole, threads: Number(loop[1]), ...defined({ lanes: loop[2] === undefined ? undefined : 4 }) };
  }
  return found !== undefined && cudaScheduling.key(found) === key.replace(/(?<=\d)x(?=\d)/g, '×') ? found : undefined;
}

/**
 * `start` with the changes that a text such as `tm=192,mode=pingpong` lists; undefined if it lists none of its fields.
 */
function fromChanges(text: string, start: CudaSchedule): CudaSchedule | undefined {
  // 0 removes an optional field.
  const optional = start.kind === 'gemm' ? ['parts', 'remainderTn', 'epilogueGroups'] : [];
  const changed: Record<string, string | number | boolean> = {
    ...Object.fromEntries(optional.map((name) => [name, 0])),
    ...start,
  };
  for (const part of text.split(',')) {
    const [name = '', value = ''] = part.split('=', 2).map((each) => each.trim());
    const old = changed[name];
    if (old === undefined || name === 'kind' || value === '') return undefined;
    if (typeof old === 'number' && !/^\d{1,6}$/.test(value)) return undefined;
    changed[name] = typeof old === 'number' ? Number(value) : typeof old === 'boolean' ? value === 'true' : value;
  }
  for (const name of optional) if (changed[name] === 0) delete changed[name];
  return changed as unknown as CudaSchedule;
}

/** The schedule of a kernel that a trial describes. Throws UserError if it describes none, or one that is not legal. */
export function trialSchedule(
  { kernel: name, what }: ScheduleTrial,
  kernel: Kernel,
  model: BenchModel,
  start: CudaSchedule,
): CudaSchedule {
  const schedule = what.includes('=') ? fromChanges(what, start) : fromKey(what, start);
  if (schedule === undefined)
    throw new UserError(
      `--try ${name}:${what}: this is no schedule of ${kernel.path}, ` +
        `whose own is ${cudaScheduling.key(start)} (${JSON.stringify(start)})`,
      EXAMPLE,
    );
  const isLegal = isLegalCuda(kernel, model.plan, schedule, model.facts);
  if (isLegal !== true)
    throw new UserError(`--try ${name}:${what}: ${kernel.path} cannot be compiled so: ${isLegal}`, EXAMPLE);
  return schedule;
}

/** A bucket of a plan for exactly this many tokens. */
const exactBucket = ({ plan }: Pick<BenchModel, 'plan'>, tokens: number): Bucket =>
  withKeyRoom(plan.interface, scoringBucket({ tokens, rows: tokens, longest: Math.min(tokens, 256) }));

/** The schedule that the compiler gives a kernel in such a bucket. */
export function defaultChoice(kernel: Kernel, model: BenchModel, tokens: number): ScheduleChoice {
  const { plan, facts } = model;
  return { origin: 'default', schedule: defaultCudaSchedule(kernel, plan, facts, exactBucket(model, tokens)) };
}

/** The winner of the tuner's final for these tokens, or for the next larger bucket that had a final. */
export function tunedChoice(
  kernel: Kernel,
  { plan, facts }: BenchModel,
  tokens: number,
  database: TuningDatabase<CudaSchedule, CudaTuningTarget>,
  target: CudaTuningTarget,
): ScheduleChoice | undefined {
  const signature = kernelSignature(kernel, plan, plan.capacity.extents);
  for (const bucket of [exactBucket({ plan }, tokens), ...plan.buckets.filter((each) => tokensIn(each) >= tokens)]) {
    const final = database.final(signature, bucket, target);
    if (final === undefined) continue;
    const start = cudaScheduling.key(defaultCudaSchedule(kernel, plan, facts, bucket));
    const entries = final.entries.filter(({ schedule }) => isLegalCuda(kernel, plan, schedule, facts) === true);
    const winner = winnerOf({ ...final, entries }, (schedule) => cudaScheduling.key(schedule) === start);
    if (winner !== undefined) return { origin: 'tuned', schedule: winner.schedule };
  }
  return undefined;
}

/** The `count` schedules that the cost model ranks first. */
export function rankedChoices(
  kernel: Kernel,
  { plan, facts }: BenchModel,
  bucket: Bucket,
  machine: CudaMachine,
  start: CudaSchedule,
  count: number,
): readonly ScheduleChoice[] {
  const cost = cudaCost(kernel, plan, sizeOf(bucket), machine);
  return new CudaSpace(kernel, plan, facts)
    .enumerate(start)
    .map((schedule) => ({ schedule, seconds: cost(schedule) }))
    .sort((a, b) => a.seconds - b.seconds)
    .slice(0, count)
    .map(({ schedule }, i) => ({ origin: `rank ${i + 1}`, schedule }));
}
