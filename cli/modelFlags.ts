/** The flags that say how a model is compiled and on which devices it lies: declared, and read. */
import { isArtifact, MAX_CACHE_TOKENS, parseInit, type WeightInit } from '../driver/names.js';
import { addAdapterFlag } from './adapterFlags.js';
import { isSet, choice, wholeNumber, text, type Flags } from './options.js';
import type { ArtifactRequest } from '../driver/requests.js';
import { CPU_ISAS, type CpuIsa, type Parallelism } from '../ir/plan.js';
import {
  TARGET_CHOICES,
  PRECISIONS,
  QUANTIZED,
  type KvCache,
  type TargetChoice,
  type Precision,
  KV_CACHES,
} from '../driver/precision.js';
import { defined } from '../system/defined.js';
import type { MaskKind } from '../models/model/model.js';
import { Option, type Command } from 'commander';
import { UsageError } from '../errors.js';

/** The flags that decide how a model is compiled. */
export const addModelFlags = (command: Command): Command =>
  command
    .option(
      '--target <target>',
      'auto: a GPU that is here and can hold the model, else the CPU; cpu; ' +
        'cuda: the GPU of this machine; cuda:sm_90a, cuda:sm_80: a GPU that need not be here (default: auto)',
    )
    .option(
      '--precision <p>',
      'auto: 16-bit inputs where the target has matrix units for them, f32 elsewhere; ' +
        'f32: always (CPU); bf16, f16; fp8, int8, int4: as --quantize (default: auto)',
    )
    .option(
      '--quantize <format>',
      'fp8 (Hopper), int8 (CPU): matrices are rounded to 8 bits, a scale for each row, while they load, and rows of ' +
        'activations as they are multiplied; ' +
        'int4 (Hopper): matrices that are stored in 4 bits stay so in memory, for texts',
    )
    .option(
      '--kv-cache <how>',
      `keys and values: ${KV_CACHES[0]}, as attention multiplies them; int8 or fp8 (E4M3), with a scale for each ` +
        'head of a token: half the memory, in scores as in texts; int8 changes answers least (default: 16bit)',
    )
    .addOption(new Option('--kv-cache-dtype <how>', 'the same').hideHelp())
    .option('--init <random:SEED>', 'make weights up instead of reading them: for measuring')
    .option('--isa <isa>', 'micro-kernels: portable, avx2, avx512 or amx (default: the best this CPU has)')
    .option(
      '--batch-tokens <n>',
      'largest micro-batch in tokens; larger ones are faster and need more memory (default: ' +
        "the model's context, at least 1024, at most 4096; " +
        'on a GPU at least 64 for each multiprocessor, 128 if the model is at most 4096 wide; ' +
        'at most 128 for each, or 16384 if that is more)',
    );

/** The flag that shows details of what a command does while it works. */
export const addVerboseFlag = (command: Command): Command =>
  command.option('-v, --verbose', 'also print why this device, memory by parts, times of loading, counts of tokens');

/** The flag that says how attention adds up keys. */
export const addMaskFlag = (command: Command): Command =>
  command.option(
    '--mask <mask>',
    'what attention groups keys by: path, by position, so that an answer has the same bits in any company; ' +
      'tree, by place in the micro-batch (default: path on a GPU; tree on a CPU, where both give the same bits)',
  );

/** The flags that say on how many devices a model lies, and how. */
export const addDeviceFlags = (command: Command): Command =>
  command
    .option('--devices <n|all>', 'GPUs to use, or parts of the CPU with threads of their own (default: 1)')
    .option('--parallel <how>', 'how the model lies on them: auto, dp=N, pp=N, dpxpp=AxB (see below; default: auto)');

/** The flag that says where an artifact's checkpoint is. */
export const addCheckpointFlag = (command: Command): Command =>
  command.option('--checkpoint <path>', "the artifact's checkpoint, where it is no longer where it was compiled");

/** The flags that say how far an artifact is trusted. */
export const addVerifyFlag = (command: Command): Command =>
  command.option(
    '--verify',
    "read all bytes of the artifact's weights and compare their hashes (compile --hash-weights)",
  );

/**
 * The flags of commands that keep keys and values while a model reads `what`: its memory, its devices, itself.
 * `adapters`: what an adapter is to the command. Default: the one that the model has.
 */
export function addSteppingFlags(command: Command, what: string, adapters?: string): Command {
  command
    .option(
      '--cache-tokens <n>',
      `memory for the keys and values of n tokens (default: what the ${what} need, as far as memory goes)`,
    )
    .option('--threads <n>', 'worker threads (default: all processors)');
  addDeviceFlags(command);
  addVerifyFlag(addCheckpointFlag(command)).option(
    '--trust-code',
    "take the artifact's own plan and machine code as they are: with your rights, unchecked (see run --help)",
  );
  return addAdapterFlag(addModelFlags(command), adapters).option(
    '--dump <dir>',
    'write every stage of the compilation, numbered',
  );
}

/** Other programs call a GPU so. */
const targetSynonym = (given: string): 'cuda' | undefined =>
  /^(gpu|nvidia|cuda:\d+)(:\d+)?$/.test(given) ? 'cuda' : undefined;

/** More than any host has; a slip of the finger is refused before a process is started. */
const MAX_DEVICES = 64;

/** `dp=4`: four replicas; `pp=4`: a pipeline of four stages; `dpxpp=2x2`: two replicas of two stages each. */
export function parallelism(given: string): 'auto' | Parallelism {
  if (given === 'auto') return 'auto';
  const [, kind, first, second] = /^(dp|pp|dpxpp)=(\d{1,3})(?:x(\d{1,3}))?$/.exec(given) ?? [];
  const isSound = kind !== undefined && (kind === 'dpxpp') === (second !== undefined);
  const [a, b] = [Number(first), Number(second ?? '1')];
  const asked = kind === 'pp' ? { replicas: 1, stages: a } : { replicas: a, stages: b };
  const devices = asked.replicas * asked.stages;
  if (!isSound || !(devices >= 1 && devices <= MAX_DEVICES))
    throw new UsageError(
      `--parallel ${given}: expected auto, dp=N, pp=N or dpxpp=AxB, of at most ${MAX_DEVICES} devices`,
      'for example: --parallel dp=4, --parallel pp=4, --parallel dpxpp=2x2',
    );
  return asked;
}

export interface DeviceFlags {
  readonly devices?: number | 'all';
  readonly parallel?: 'auto' | Parallelism;
}

/** How many devices, and how the model lies on them. */
export function deviceFlags(flags: Flags): DeviceFlags {
  const [count, how] = [text(flags, 'devices'), text(flags, 'parallel')];
  const devices =
    count === undefined ? undefined : count === 'all' ? 'all' : wholeNumber('--devices', count, 1, MAX_DEVICES, '4');
  const parallel = how === undefined ? undefined : parallelism(how);
  if (typeof devices === 'number' && typeof parallel === 'object' && parallel.replicas * parallel.stages !== devices) {
    throw new UsageError(
      `--parallel ${how!} is for ${parallel.replicas * parallel.stages} devices, --devices says ${devices}`,
      'leave one of the two out',
    );
  }
  return { ...defined({ devices, parallel }) };
}

/** Masks that score trees with the same answers. */
const RUN_MASKS = ['path', 'tree'] as const;
/** Others show what passes make of a mask: a window that the model does not have, and the meta-pair's inputs. */
export const INSPECT_MASKS = ['path', 'tree', 'metaPair', 'slidingWindow'] as const;

export interface ModelFlags {
  readonly init: WeightInit;
  readonly precision: Precision;
  readonly target?: TargetChoice;
  readonly isa?: CpuIsa;
  readonly mask?: MaskKind;
  readonly batchTokens?: number;
  readonly cacheTokens?: number;
  readonly kvCache?: KvCache;
  readonly dump?: string;
}

/** --quantize names a precision of its own. */
function precisionOf(precision: string | undefined, quantize: string | undefined): Precision {
  if (precision !== undefined && precision !== 'auto' && quantize !== undefined)
    throw new UsageError('--precision and --quantize both say what is multiplied', 'leave one of them out');
  if (quantize !== undefined) return choice('--quantize', quantize, QUANTIZED);
  return precision === undefined ? 'auto' : choice('--precision', precision, PRECISIONS);
}

/** --kv-cache under its own name or under that of other engines. */
function cacheOf(own: string | undefined, other: string | undefined): KvCache | undefined {
  if (own !== undefined && other !== undefined)
    throw new UsageError('--kv-cache and --kv-cache-dtype are one flag', 'leave one of them out');
  if (other !== undefined) return choice('--kv-cache-dtype', other, KV_CACHES);
  return own === undefined ? undefined : choice('--kv-cache', own, KV_CACHES);
}

const MIN_BATCH = 32;
const MAX_BATCH = 1 << 16;

/** Tokens of the largest micro-batch. `isMaxTokens`: the flag that said so has another meaning elsewhere. */
function batchSize(given: string, isMaxTokens: boolean): number {
  if (!isMaxTokens) return wholeNumber('--batch-tokens', given, MIN_BATCH, MAX_BATCH, '1024');
  try {
    return wholeNumber('--max-tokens', given, MIN_BATCH, MAX_BATCH, '1024');
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(
      error.message,
      'the size of a micro-batch: --batch-tokens 1024; the length of texts that tasks generate: ' +
        '--gen_kwargs max_gen_toks=256',
    );
  }
}

/** The flags that say how a model is compiled; `masks` are those that make sense to the command. */
export function modelFlags(flags: Flags, masks: readonly MaskKind[] = RUN_MASKS): ModelFlags {
  const [init, precision, quantize, target, isa, mask, batchTokens, cacheTokens, kvCache, dump] = [
    'init',
    'precision',
    'quantize',
    'target',
    'isa',
    'mask',
    'batchTokens',
    'cacheTokens',
    'kvCache',
    'dump',
  ].map((name) => text(flags, name));
  const cache = cacheOf(kvCache, text(flags, 'kvCacheDtype'));
  return {
    init: init === undefined ? { kind: 'checkpoint' } : parseInit(init),
    precision: precisionOf(precision, quantize),
    ...defined({
      target: target === undefined ? undefined : choice('--target', target, TARGET_CHOICES, targetSynonym),
    }),
    ...defined({ isa: isa === undefined ? undefined : choice('--isa', isa, CPU_ISAS) }),
    ...defined({ mask: mask === undefined ? undefined : choice('--mask', mask, masks) }),
    ...defined({
      batchTokens: batchTokens === undefined ? undefined : batchSize(batchTokens, flags['maxTokens'] !== undefined),
    }),
    ...defined({
      cacheTokens:
        cacheTokens === undefined
          ? undefined
          : wholeNumber('--cache-tokens', cacheTokens, 16, MAX_CACHE_TOKENS, '32768'),
    }),
    ...defined({ kvCache: cache, dump }),
  };
}

const FIXED_BY_ARTIFACT: Readonly<Record<string, string>> = {
  init: '--init',
  precision: '--precision',
  quantize: '--quantize',
  target: '--target',
  isa: '--isa',
  mask: '--mask',
  batchTokens: '--batch-tokens',
  cacheTokens: '--cache-tokens',
  kvCache: '--kv-cache',
  kvCacheDtype: '--kv-cache-dtype',
  dump: '--dump',
};

/**
 * An artifact was compiled with its own: asking for others would silently do nothing. `free`: flags that a command has
 * a use for.
 */
export function refuseCompileFlags(flags: Flags, artifact: string, free: readonly string[] = []): void {
  const given = Object.entries(FIXED_BY_ARTIFACT)
    .filter(([name]) => text(flags, name) !== undefined && !free.includes(name))
    .map(([, flag]) => flag);
  if (given.length === 0) return;
  throw new UsageError(
    `${given.join(', ')}: ${artifact} is compiled already, and this was decided when it was`,
    `leave ${given.length > 1 ? 'them' : 'it'} out, or compile again: ` +
      `tilewright compile <checkpoint> ${given.map((flag) => `${flag} …`).join(' ')} -o ${artifact}`,
  );
}

/** What is said of an artifact; a checkpoint is its own. UsageError where the model is none. */
export function artifactFlags(flags: Flags, model: string): ArtifactRequest {
  const checkpoint = text(flags, 'checkpoint');
  const given = [
    ...(checkpoint === undefined ? [] : ['--checkpoint']),
    ...(isSet(flags, 'trustCode') ? ['--trust-code'] : []),
    ...(isSet(flags, 'verify') ? ['--verify'] : []),
  ];
  if (given.length > 0 && !isArtifact(model))
    throw new UsageError(
      `${given.join(', ')}: only for artifacts, and ${model} is none`,
      `leave ${given.length > 1 ? 'them' : 'it'} out, or give the folder that compile wrote`,
    );
  return {
    ...defined({ checkpoint }),
    ...(isSet(flags, 'trustCode') ? { trustsCode: true } : {}),
    ...(isSet(flags, 'verify') ? { verifies: true } : {}),
  };
}
