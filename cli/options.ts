/** Flags as text → typed values. Every refusal says what was given, what is expected, and shows an example. */
import { isArtifact, MAX_CACHE_TOKENS, parseInit, type WeightInit } from '../driver/names.js';
import {
  KV_CACHES,
  type KvCache,
  type Precision,
  PRECISIONS,
  QUANTIZED,
  TARGET_CHOICES,
  type TargetChoice,
} from '../driver/precision.js';
import type { ArtifactRequest } from '../driver/requests.js';
import { UsageError } from '../errors.js';
import { type Sharing, SHARING_MODES } from '../evaluate/scorer.js';
import { CPU_ISAS, type CpuIsa, type Parallelism } from '../ir/plan.js';
import type { MaskKind } from '../models/model/model.js';
import { defined } from '../system/defined.js';
import { nearest } from '../system/text.js';
import type { Io } from './io.js';

/** What commander hands over: a string for a flag with a value, true for one without, a list where it may repeat. */
export type Flags = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/** The value of a flag that takes one. */
export function text(flags: Flags, name: string): string | undefined {
  const value = flags[name];
  return typeof value === 'string' ? value : undefined;
}

/** The values of a flag that may be given several times. */
export function texts(flags: Flags, name: string): readonly string[] {
  const value = flags[name];
  return Array.isArray(value) ? (value as readonly string[]) : [];
}

export const isSet = (flags: Flags, name: string): boolean => flags[name] === true;

/** The word that was given. `synonym`: the one that others call so. Throws UsageError for a word that is not known. */
export function choice<T extends string>(
  flag: string,
  given: string,
  known: readonly T[],
  synonym: (given: string) => T | undefined = () => undefined,
): T {
  const found = known.find((word) => word === given);
  if (found !== undefined) return found;
  const meant = synonym(given) ?? nearest(given, known);
  throw new UsageError(
    `${flag} ${given}: expected ${known.slice(0, -1).join(', ')}${known.length > 1 ? ' or ' : ''}${known.at(-1)!}`,
    meant === undefined ? `for example: ${flag} ${known[0]!}` : `did you mean ${flag} ${meant}?`,
  );
}

/** A whole number from `min` to `max`. */
export function wholeNumber(flag: string, given: string, min: number, max: number, example: string): number {
  const value = /^\d{1,15}$/.test(given) ? Number(given) : NaN;
  if (!(value >= min && value <= max))
    throw new UsageError(
      `${flag} ${given}: expected a whole number from ${min} to ${max}`,
      `for example: ${flag} ${example}`,
    );
  return value;
}

/** Other programs call a GPU so. */
const targetSynonym = (given: string): 'cuda' | undefined =>
  /^(gpu|nvidia|cuda:\d+)(:\d+)?$/.test(given) ? 'cuda' : undefined;

const SECONDS = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600 } as const;
const isUnit = (unit: string): unit is keyof typeof SECONDS => unit in SECONDS;

/** `30s`, `5m`, `1h30m` in seconds. A bare number is refused: nobody can tell what it counts. */
export function seconds(flag: string, given: string): number {
  const parts = [...given.matchAll(/(\d+(?:\.\d+)?)([a-z]+)/g)];
  const isWhole = parts.length > 0 && parts.map(([part]) => part).join('') === given;
  const total = parts.reduce(
    (sum, [, value = '', unit = '']) => sum + Number(value) * (isUnit(unit) ? SECONDS[unit] : NaN),
    0,
  );
  if (!isWhole || !(total > 0) || total > 30 * 24 * 3600) {
    throw new UsageError(
      `${flag} ${given}: expected a time with a unit, at most 30 days`,
      `for example: ${flag} 30s, ${flag} 5m, ${flag} 1h30m`,
    );
  }
  return total;
}

const MAX_THREADS = 1024;

export const threads = (flags: Flags, { cores }: Pick<Io, 'cores'>): number => {
  const given = text(flags, 'threads');
  return given === undefined ? cores() : wholeNumber('--threads', given, 1, MAX_THREADS, '2');
};

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
    ...(target === undefined ? {} : { target: choice('--target', target, TARGET_CHOICES, targetSynonym) }),
    ...(isa === undefined ? {} : { isa: choice('--isa', isa, CPU_ISAS) }),
    ...(mask === undefined ? {} : { mask: choice('--mask', mask, masks) }),
    ...(batchTokens === undefined ? {} : { batchTokens: batchSize(batchTokens, flags['maxTokens'] !== undefined) }),
    ...(cacheTokens === undefined
      ? {}
      : { cacheTokens: wholeNumber('--cache-tokens', cacheTokens, 16, MAX_CACHE_TOKENS, '32768') }),
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

/** An artifact was compiled with its own: asking for others would silently do nothing. */
export function refuseCompileFlags(flags: Flags, artifact: string): void {
  const given = Object.entries(FIXED_BY_ARTIFACT)
    .filter(([name]) => text(flags, name) !== undefined)
    .map(([, flag]) => flag);
  if (given.length === 0) return;
  throw new UsageError(
    `${given.join(', ')}: ${artifact} is compiled already, and this was decided when it was`,
    `leave ${given.length > 1 ? 'them' : 'it'} out, or compile again: ` +
      `tilewright compile <checkpoint> ${given.map((flag) => `${flag} …`).join(' ')} -o ${artifact}`,
  );
}

export const sharing = (flags: Flags): Sharing => choice('--sharing', text(flags, 'sharing') ?? 'tree', SHARING_MODES);

/** The value of a flag that must be there. */
export function required(flags: Flags, name: string, flag: string, example: string): string {
  const value = text(flags, name);
  if (value === undefined || value === '') throw new UsageError(`${flag} is missing`, `for example: ${example}`);
  return value;
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
