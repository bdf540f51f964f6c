/** Opens and compiles a model as the user names it: a checkpoint, a config.json or an artifact. */
import { resolve } from 'node:path';
import { UserError } from '../../errors.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import { openAdapter } from '../../models/adapters/open.js';
import { requireSameTokens } from '../../models/draft/draftModel.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import { defined } from '../../system/defined.js';
import { checkpointOf, codeOf, loadArtifact, verifyWeights } from '../artifact/load.js';
import {
  artifactId,
  type Manifest,
  type ModelReference,
  readManifest,
  rebuild,
  rebuildFor,
} from '../artifact/manifest.js';
import { type AdaptedCheckpoint, openAdapted, requireRiding, slotsForOne } from '../adapters/open.js';
import { storedFormats } from '../functions.js';
import { isArtifact, type WeightInit } from '../names.js';
import type { ArtifactRequest, ModelRequest, Ui } from '../requests.js';
import type { Machine } from '../targets/cpuDevice.js';
import { type AnyTarget, type CompiledModel, type Rebuild, TARGET_RECORDS, targetOf } from '../targets/index.js';
import type { PackedCode } from '../targets/machineCode.js';
import { withCacheTokens } from '../artifact/planCache.js';
import { compileModel, Dump, largestCall, MIN_CAPACITY, plannedModel } from './compile.js';

export interface OpenedModel {
  readonly checkpoint: Checkpoint;
  readonly reference: ModelReference;
  readonly model: CompiledModel;
  /** Hash of what is computed. */
  readonly id: string;
  readonly isArtifact: boolean;
  /** Whether the artifact contains the checkpoint. */
  readonly isPacked: boolean;
  /** Machine code of the artifact, for hosts without a compiler; absent for a checkpoint. */
  readonly packed?: PackedCode | undefined;
}

/**
 * A model whose checkpoint is known. Compiling it, or reading its artifact, takes a second or two for a large model.
 */
export interface Opening {
  readonly checkpoint: Checkpoint;
  /** The adapter that the whole model has. */
  readonly adapter?: Adapter | undefined;
  readonly target: AnyTarget;
  /** Tokens of the largest micro-batch, as far as that is known before compiling: no fewer than these. */
  minCapacity(): number;
  /** Reads the samples of the weight files when first called. */
  reference(): ModelReference;
  /** Throws UserError if an artifact was compiled with another tokenizer. */
  requireTokenizer(hash: string): void;
  /** `cacheTokens` and `logits` instead of the request's. An artifact has its own; of tokens, unless some are given. */
  finish(cacheTokens?: number, logits?: boolean): Promise<OpenedModel>;
}

/** The model to open, for any of the given targets. */
export type OpenRequest = Omit<ModelRequest, 'target'> & ArtifactRequest & { readonly target?: string };

/** Opens the checkpoint. Throws UserError if it cannot be opened; finish() reports every other problem. */
export function beginOpening(
  request: OpenRequest,
  machine: Machine,
  ui: Ui,
  targets: readonly AnyTarget[] = TARGET_RECORDS,
): Opening {
  if (isArtifact(request.model)) {
    if (request.draftModel !== undefined)
      throw new UserError(
        `${request.model}: an artifact has no draft of its own, and takes none from ${request.draftModel}`,
        'give the checkpoint that it was compiled from, or --draft suffix',
      );
    return beginArtifact(request, machine, ui, targets);
  }
  const { target: name = 'cpu', precision } = request;
  const target = targetOf(name, targets);
  const { draftModel } = request;
  const opened = openAdapted(request.model, request.init, { draftModel, adapterDir: request.adapter?.path });
  const { checkpoint, adapter } = opened;
  requireSameTokens(checkpoint);
  const adapters = adapter === undefined ? request.adapters : slotsForOne(adapter);
  const reference = (): ModelReference => referenceTo(request.model, opened, request.init);
  let chosen: unknown;
  const choose = (): unknown => {
    const wanted = { target: name, precision, ...defined({ isa: request.isa }) };
    return (chosen ??= target.compiler.choose(
      wanted,
      machine,
      checkpoint.config.dtype,
      storedFormats(checkpoint, precision),
    ));
  };
  const finish = async (cacheTokens = request.cacheTokens, logits = request.logits): Promise<OpenedModel> => {
    const device = choose();
    ui.phase('compile');
    const options = {
      ...defined({
        mask: request.mask,
        batchTokens: request.batchTokens,
        cacheTokens,
        kvCache: request.kvCache,
        logits,
        feeds: request.feeds,
        hidden: request.hidden,
        adapters,
      }),
    };
    const dump = request.dump === undefined ? undefined : new Dump(request.dump);
    const model =
      dump === undefined
        ? plannedModel(checkpoint, target, device, options)
        : compileModel(checkpoint, target, device, options, (stage) => dump.stage(stage));
    dump?.plan(model);
    const own = reference();
    return { checkpoint, reference: own, model, id: artifactId(own, model), isArtifact: false, isPacked: false };
  };
  const minCapacity = (): number => largestCall(checkpoint, target.compiler, choose(), request.batchTokens);
  return { checkpoint, adapter, target, minCapacity, reference, finish, requireTokenizer: () => undefined };
}

export const openOrCompile = async (
  request: OpenRequest,
  machine: Machine,
  ui: Ui,
  targets: readonly AnyTarget[] = TARGET_RECORDS,
): Promise<OpenedModel> => beginOpening(request, machine, ui, targets).finish();

export const referenceTo = (
  path: string,
  { fingerprint, adapter }: Pick<AdaptedCheckpoint, 'fingerprint'> & Partial<AdaptedCheckpoint>,
  init: WeightInit,
): ModelReference => ({
  path,
  fingerprint: fingerprint(),
  init,
  ...defined({ adapter: adapter && { hash: adapter.hash, path: adapter.path } }),
});

/** Throws UserError where an artifact has no slots for adapters, or slots of too small a rank. */
function requireSlots(
  dir: string,
  { adapters: own }: Manifest,
  asked: AdapterSlots | undefined,
  again: (changed: Pick<Manifest, 'cacheTokens' | 'adapters'>) => string,
): void {
  if (asked === undefined) return;
  if (own === undefined)
    throw new UserError(`${dir}: was compiled without slots for adapters`, again({ adapters: asked }));
  if (own.rank < asked.rank)
    throw new UserError(
      `${dir}: its slots hold adapters of rank ${own.rank}, and rank ${asked.rank} is needed`,
      again({ adapters: { slots: own.slots, rank: asked.rank } }),
    );
}

/** An artifact and its checkpoint. */
function beginArtifact(request: OpenRequest, machine: Machine, ui: Ui, targets: readonly AnyTarget[]): Opening {
  const { model: dir, checkpoint: elsewhere, trustsCode = false, verifies = false } = request;
  const { cacheTokens: asked, signal } = request;
  const manifest = readManifest(dir, targets);
  const named = manifest.model;
  const checkpoint = checkpointOf(dir, manifest, elsewhere);
  const adapter = request.adapter === undefined ? undefined : openAdapter(request.adapter.path, checkpoint);
  if (adapter !== undefined) requireRiding(adapter);
  const { isPacked, ...known } = named;
  const reference: ModelReference = {
    ...known,
    ...(isPacked || elsewhere === undefined ? {} : { path: resolve(elsewhere) }),
    ...defined({ adapter: adapter && { hash: adapter.hash, path: adapter.path } }),
  };
  const again = (changed: Pick<Manifest, 'cacheTokens' | 'adapters'>): string =>
    rebuild(dir, {
      model: reference,
      arithmetic: manifest.target.arithmetic,
      target: manifest.target.kind,
      cacheTokens: manifest.cacheTokens,
      kvCache: manifest.kvCache,
      logits: manifest.logits,
      adapters: manifest.adapters,
      ...changed,
    });
  requireSlots(dir, manifest, adapter === undefined ? request.adapters : slotsForOne(adapter), again);
  const finish = async (cacheTokens = asked): Promise<OpenedModel> => {
    const artifact = await loadArtifact(dir, machine, {
      targets,
      checkpoint,
      path: reference.path,
      trusts: trustsCode,
    });
    if (cacheTokens !== undefined && manifest.cacheTokens === undefined)
      throw new UserError(
        `${dir}: was compiled for scoring only: it has no memory for keys and values`,
        again({ cacheTokens }),
      );
    const model = withCacheTokens(artifact.model, cacheTokens ?? manifest.cacheTokens);
    if (verifies) await verifyWeights(dir, artifact, checkpoint, ui, signal);
    return {
      checkpoint,
      reference,
      model,
      id: artifactId(reference, model),
      isArtifact: true,
      isPacked,
      packed: codeOf(dir, artifact, trustsCode),
    };
  };
  const requireTokenizer = (found: string): void => {
    if (named.tokenizer !== undefined && named.tokenizer !== found)
      throw new UserError(
        `${dir}: the tokenizer in ${checkpoint.path} is not the one that was there when it was compiled`,
        again({}),
      );
  };
  return {
    checkpoint,
    adapter,
    target: targetOf(manifest.target.kind, targets),
    minCapacity: () => manifest.maxTokens ?? MIN_CAPACITY,
    reference: () => reference,
    finish,
    requireTokenizer,
  };
}

/** Opens an artifact and its checkpoint, and checks that they belong together. */
export const openArtifact = async (
  dir: string,
  machine: Machine,
  ui: Ui,
  {
    checkpoint,
    targets = TARGET_RECORDS,
  }: { readonly checkpoint?: string | undefined; readonly targets?: readonly AnyTarget[] } = {},
): Promise<OpenedModel> => {
  const init = { kind: 'checkpoint' } as const;
  const request: OpenRequest = {
    model: dir,
    init,
    precision: 'auto',
    ...defined({ checkpoint }),
  };
  return beginArtifact(request, machine, ui, targets).finish();
};

/** The commands that rebuild the model opened at `path` for other targets. */
export const rebuildOpened = (path: string, { reference, model, isArtifact: isOne }: OpenedModel): Rebuild =>
  rebuildFor(isOne ? path : 'model.tw', reference, model);
