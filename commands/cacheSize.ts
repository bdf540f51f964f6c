/** Memory for keys and values: as many tokens as are asked for, and never more than there is room for. */
import { availableMemory } from 'node:process';
import { choosesFromLogits } from '../driver/functions.js';
import { type OpenedModel, rebuildOpened } from '../driver/compile/open.js';
import { deviceMemory, roomFor } from '../driver/devices/placement.js';
import { isArtifact } from '../driver/names.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import type { CompiledModel } from '../driver/targets/target.js';
import { UsageError, UserError } from '../errors.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { StateDecl } from '../ir/function.js';
import { type Parallelism, ROW_PAD, stateBytes, stateRowBytes } from '../ir/plan.js';
import { cacheTokensOf, isPaged } from '../ir/stepping.js';
import { roundUp } from '../ir/types.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { ROWS_BEHIND } from '../runtime/reservedStates.js';
import { planWeights } from '../runtime/weightPlan.js';
import { bytes, count, counted } from '../system/text.js';
import type { ModelLoading } from './loadModel.js';

/** What is to be generated, in tokens. */
export interface Demand {
  /** The prompt that needs most memory, and where it is from. */
  readonly prompt: number;
  readonly where: string;
  /** Tokens that there must be room for: more than the prompt, where a text may not end for lack of memory. */
  readonly least: number;
  /** What a single text can use, its prompt included. */
  readonly longest: number;
  /** All prompts with all that may be generated after them. */
  readonly total: number;
}

/** Few texts have more tokens than one for so many bytes. */
export const TOKEN_BYTES = 3;

type Asked = Pick<LoadRequest, 'model' | 'cacheTokens' | 'logits' | 'devices' | 'parallel'>;

/** A pipeline's stages are not quite even. */
const STAGE_SHARE = 0.9;
/** The rest of a host's memory is for the system and this process. */
const HOST_SHARE = 0.9;
/** What many prompts get where nothing else is said. */
const MAX_DEFAULT_TOKENS = 65_536;
/** What even a single short prompt gets. */
const MIN_TOKENS = 4096;
/** Suggested where a number is needed and none is known. */
const EXAMPLE_TOKENS = 32_768;

const keptStates = ({ plan }: Pick<CompiledModel, 'plan'>): readonly StateDecl[] => plan.states.filter(isPaged);

/** Bytes of the keys and values of as many tokens as a model may keep. */
export const cacheBytesOf = (model: Pick<CompiledModel, 'plan' | 'cacheTokens'>): number =>
  keptStates(model).reduce((sum, state) => sum + stateBytes(state, cacheTokensOf(model) ?? 0), 0);

/** The memory of a cache grows in steps of so many tokens: whole pages, of rows that states are padded to. */
const STEP_TOKENS = Math.max(PAGE_TOKENS, ROW_PAD);

const tokenBytesOf = (model: CompiledModel): number =>
  keptStates(model).reduce((sum, state) => sum + stateRowBytes(state), 0);

/** Bytes of rows of recurrent states, and of all else that is kept beside keys and values. */
export const otherBytesOf = ({ plan }: Pick<CompiledModel, 'plan'>): number =>
  plan.states.reduce((sum, state) => sum + (isPaged(state) ? 0 : stateBytes(state, state.rows)), 0);

/**
 * Compiles the model with a cache that has room for the demand, or for as much of it as memory holds. Throws UserError
 * where a prompt does not fit.
 */
export async function compileWithCache(
  loading: Pick<ModelLoading, 'compile' | 'checkpoint'>,
  request: Asked,
  demand: Demand,
  ui: Pick<Ui, 'note' | 'detail'>,
): Promise<OpenedModel> {
  const least = roundUp(demand.least, PAGE_TOKENS);
  const asked = request.cacheTokens;
  if (asked !== undefined && asked < least)
    throw new UsageError(
      `--cache-tokens ${asked}: ${demand.where} alone has ${sizeOf(demand)}`,
      `use --cache-tokens ${least}, or more`,
    );
  let opened = await loading.compile(limitOf(request, wantedTokens(asked, demand)));
  requireStep(request, opened);
  const wanted = cacheTokensOf(opened.model) ?? 0;
  requireRoom(request.model, opened, demand, least);
  const fitting = fittingTokens(opened, loading.checkpoint, request);
  if (fitting < Math.min(wanted, asked ?? least)) throw tooLittle(opened.model, fitting, demand, asked);
  if (fitting < wanted) opened = await loading.compile(fitting);
  tellOfRoom(opened, asked, wanted, ui);
  return opened;
}

/** An artifact has its own limit, unless another one is asked for. */
const limitOf = ({ model, cacheTokens }: Asked, wanted: number): number | undefined =>
  cacheTokens === undefined && isArtifact(model) ? undefined : wanted;

const wantedTokens = (asked: number | undefined, demand: Demand): number =>
  asked === undefined ? defaultTokens(demand) : roundUp(asked, PAGE_TOKENS);

function tellOfRoom(
  opened: OpenedModel,
  asked: number | undefined,
  wanted: number,
  ui: Pick<Ui, 'note' | 'detail'>,
): void {
  const tokens = cacheTokensOf(opened.model) ?? 0;
  const short = asked === undefined && tokens < wanted ? `, of ${count(wanted)} that could be used` : '';
  const line = `keys and values: room for ${count(tokens)} tokens, ${bytes(cacheBytesOf(opened.model))}${short}`;
  if (short === '') ui.detail(line);
  else ui.note(line);
}

/** Whether what is to be generated fits the smallest cache that anybody gets, so that its size asks for no tokens. */
export const fitsLeastCache = (most: Demand): boolean => defaultTokens(most) === MIN_TOKENS;

/** What a text needs: 20 tokens, or 20 tokens and 256 more to generate. */
function sizeOf({ prompt, least }: Demand): string {
  const more = least - prompt;
  return counted(prompt, 'token') + (more > 1 ? ` and ${count(more)} more to generate` : '');
}

/**
 * A power of two, so that an estimate which is nearly right gives the same. No text is shorter beside few others than
 * beside many.
 */
function defaultTokens({ total, least, longest }: Demand): number {
  const useful = Math.max(least, longest, Math.min(total, MAX_DEFAULT_TOKENS), MIN_TOKENS);
  return 2 ** Math.ceil(Math.log2(useful));
}

/** A model with the cache that is expected to be asked for. */
export interface CacheAhead {
  readonly opened: OpenedModel;
  readonly wanted: number;
}

/**
 * Compiles the model as compileWithCache will, where an estimate of the demand leaves no doubt that may be wrong by a
 * factor of two, and where there is room; otherwise undefined.
 */
export async function compileWithCacheAhead(
  loading: Pick<ModelLoading, 'compile' | 'checkpoint'>,
  request: Asked,
  guess: Demand,
): Promise<CacheAhead | undefined> {
  const { total, least, longest } = guess;
  const isCertain = total >= 2 * MAX_DEFAULT_TOKENS && 2 * Math.max(least, longest) <= MAX_DEFAULT_TOKENS;
  if (request.cacheTokens === undefined && !isCertain) return undefined;
  const wanted = wantedTokens(request.cacheTokens, guess);
  const opened = await compileWithRoom(loading, request, { wanted, least });
  return opened && { opened, wanted };
}

/** Whether compileWithCache would come to this model for the demand, now that it is known; says so if it would. */
export function isCacheFor(
  { opened, wanted }: CacheAhead,
  request: Asked,
  demand: Demand,
  ui: Pick<Ui, 'note' | 'detail'>,
): boolean {
  const { cacheTokens: asked, logits = false } = request;
  const suits =
    wantedTokens(asked, demand) === wanted &&
    (cacheTokensOf(opened.model) ?? 0) >= roundUp(demand.least, PAGE_TOKENS) &&
    (!logits || choosesFromLogits(opened.model));
  if (suits) tellOfRoom(opened, asked, wanted, ui);
  return suits;
}

const again = (path: string, opened: OpenedModel, tokens: number, logits = choosesFromLogits(opened.model)): string => {
  const { target, device } = opened.model;
  return (
    `${rebuildOpened(path, opened)(target.manifest.option(device))} --cache-tokens ${tokens}` +
    (logits ? ' --logits' : '')
  );
};

/**
 * Compiles the model with a cache of `wanted` tokens, or of as many as there is room for; undefined where that is less
 * than `least`.
 */
export async function compileWithRoom(
  loading: Pick<ModelLoading, 'compile' | 'checkpoint'>,
  request: Asked,
  { wanted, least }: { readonly wanted: number; readonly least: number },
): Promise<OpenedModel | undefined> {
  let opened = await loading.compile(limitOf(request, wanted));
  const limit = cacheTokensOf(opened.model) ?? 0;
  if (limit < least) return undefined;
  const fitting = fittingTokens(opened, loading.checkpoint, request);
  if (fitting < limit && fitting >= least) opened = await loading.compile(fitting);
  return fitting < least ? undefined : opened;
}

function requireStep({ model: path, logits = false }: Asked, opened: OpenedModel): void {
  const tokens = cacheTokensOf(opened.model);
  if (tokens === undefined)
    throw new UserError(
      `${path}: was compiled for scoring only: it has no memory for keys and values`,
      again(path, opened, EXAMPLE_TOKENS, logits),
    );
  if (logits && !choosesFromLogits(opened.model))
    throw new UserError(
      `${path}: its steps keep no logits, which filters, penalties, biases, beams, --min-new-tokens and ` +
        '--top-logprobs need',
      again(path, opened, tokens, true),
    );
}

function requireRoom(path: string, opened: OpenedModel, demand: Demand, least: number): void {
  const tokens = cacheTokensOf(opened.model) ?? 0;
  if (tokens < least)
    throw new UserError(
      `${demand.where}: ${sizeOf(demand)}; ${path} has room for the keys and values of ${count(tokens)}`,
      `use --cache-tokens ${Math.max(least, EXAMPLE_TOKENS)}`,
    );
}

/** Devices that are asked for. */
function deviceCount({ devices, parallel }: Asked, visible: () => number): number {
  if (typeof parallel === 'object') return parallel.replicas * parallel.stages;
  return devices === 'all' || (devices === undefined && parallel !== undefined) ? visible() : (devices ?? 1);
}

/** How the model will lie on them, as far as that can be known before it is placed. */
function parallelismOf({ parallel }: Asked, devices: number, fits: (stages: number) => boolean): Parallelism {
  if (typeof parallel === 'object') return parallel;
  let stages = 1;
  while (stages < devices && !fits(stages)) stages++;
  return { replicas: Math.floor(devices / stages), stages };
}

/** Tokens whose keys and values fit beside weights and activations: a multiple of STEP_TOKENS. */
function fittingTokens(opened: OpenedModel, { tensors }: Pick<Checkpoint, 'tensors'>, request: Asked): number {
  const { model } = opened;
  const { plan, target } = model;
  const rebuild = rebuildOpened(request.model, opened);
  const { packedBytes, mappedBytes } = planWeights(plan.weights, plan.constants, tensors);
  const arena = Math.max(...plan.functions.map(({ arenaBytes }) => arenaBytes));
  // A host reads mapped weights in place. A GPU holds a call's activations while the next one is prepared.
  const weights = target.devices.isHost ? packedBytes : packedBytes + mappedBytes;
  const arenas = (stages: number): number => (target.devices.isHost && stages === 1 ? 1 : 2) * stages * arena;
  const devices = deviceCount(request, () => target.devices.visible());
  const room = Math.min(
    roomFor(model, 1, 1, rebuild),
    deviceMemory() === undefined ? (target.devices.freeBytes?.(model.device, devices, rebuild) ?? Infinity) : Infinity,
  );
  /** What a replica has for its cache. */
  const spare = ({ replicas, stages }: Parallelism): number => {
    const share = stages === 1 ? 1 : STAGE_SHARE;
    const free = target.devices.isHost
      ? Math.min(room, HOST_SHARE * availableMemory()) / replicas
      : share * stages * room;
    return free - weights - arenas(stages) - otherBytesOf(model);
  };
  const parallelism = parallelismOf(request, devices, (stages) => spare({ replicas: 1, stages }) > 0);
  const rows = spare(parallelism) / tokenBytesOf(model) - ROWS_BEHIND;
  return Math.max(0, Math.floor(rows / STEP_TOKENS) * STEP_TOKENS);
}

function tooLittle(model: CompiledModel, fitting: number, demand: Demand, asked?: number): UserError {
  const tokenBytes = tokenBytesOf(model);
  const room = `there is memory for ${count(fitting)} (${bytes(fitting * tokenBytes)})`;
  if (asked !== undefined && fitting >= demand.least)
    return new UserError(
      `--cache-tokens ${asked}: their keys and values take ${bytes(asked * tokenBytes)}; ${room}`,
      `use --cache-tokens ${fitting}, or leave it out`,
    );
  return new UserError(
    `${demand.where}: no room for the keys and values of its ${sizeOf(demand)}: ${room} beside weights and activations`,
    'use a smaller --batch-tokens, a shorter prompt or a machine with more memory',
  );
}
