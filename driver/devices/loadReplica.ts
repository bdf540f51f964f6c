/** Loads a replica: in a process of its own, or in this one. */
import { UserError } from '../../errors.js';
import { type Parallelism, scoreOf, type Stage } from '../../ir/plan.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import { followCuts } from '../../passes/placeStages.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { checkpointOf, checkpointPath, codeOf } from '../artifact/load.js';
import { readManifest, rebuild, rebuildFor } from '../artifact/manifest.js';
import { unpackModel } from '../artifact/planCache.js';
import type { DeviceExecutor } from '../executor.js';
import { openAdapted, openRef, requireSame } from '../adapters/open.js';
import type { BaseSource } from '../adapters/packJob.js';
import { isArtifact } from '../names.js';
import type { Ui } from '../requests.js';
import type { PackedCode } from '../targets/machineCode.js';
import type { CompiledModel, OpenOptions, Rebuild, TargetDevices } from '../targets/target.js';
import { placeModel } from './placement.js';
import type { DeviceRequest } from './protocol.js';
import { RemoteExecutor, type RemoteOptions } from './remoteExecutor.js';
import type { DeviceHost } from './deviceHost.js';
import { DEVICE_MODULE } from './startProcess.js';

export interface SentModel {
  readonly checkpoint: Checkpoint;
  /** How it is opened again. */
  readonly base: BaseSource;
  /** The adapter that the whole model has. */
  readonly adapter: Adapter | undefined;
  readonly model: CompiledModel;
  readonly rebuild: Rebuild;
  /** Machine code of an artifact. */
  readonly packed: PackedCode | undefined;
}

/** Throws UserError if files are missing or invalid. */
export function openSent(
  { model: path, init, checkpoint: elsewhere, trustsCode = false, draftModel, adapter: named }: DeviceRequest,
  bytes: Uint8Array,
): SentModel {
  const model = unpackModel(bytes);
  if (!isArtifact(path)) {
    const { checkpoint, adapter } = openAdapted(path, init, { draftModel, adapterDir: named?.path });
    if (named !== undefined) requireSame(named, adapter);
    const again = rebuildFor('model.tw', { path, init }, model);
    return { checkpoint, base: { path, init, draftModel }, adapter, model, rebuild: again, packed: undefined };
  }
  const manifest = readManifest(path);
  const { model: own, target, cacheTokens, kvCache, logits, adapters } = manifest;
  const checkpoint = checkpointOf(path, manifest, elsewhere);
  const again = rebuild(path, {
    model: own,
    arithmetic: target.arithmetic,
    target: model.target.manifest.option(model.device),
    cacheTokens,
    kvCache,
    logits,
    adapters,
  });
  return {
    checkpoint,
    base: { path: checkpointPath(path, manifest, elsewhere), init: own.init },
    adapter: named && openRef(named, checkpoint),
    model,
    rebuild: rebuildFor(path, own, model),
    packed: codeOf(path, { manifest, model, again }, trustsCode),
  };
}

/** Largest timeout, in seconds: a day. Node's timers overflow after a few weeks. */
const MAX_TIMEOUT = 86_400;

export interface BeginOptions extends Pick<RemoteOptions, 'model' | 'onEnd' | 'siblings'> {
  readonly target: { readonly name: string; readonly devices: Pick<TargetDevices, 'timeoutSeconds'> };
  readonly host: DeviceHost;
}

/**
 * Opens a replica in the process of its devices, so that a device fault costs a micro-batch and not the run. The
 * process starts at once, and loads the model as soon as it is sent.
 */
export function beginDevice(
  request: DeviceRequest,
  { target, host, ...options }: BeginOptions,
  ui: Ui,
): RemoteExecutor {
  const timeoutSeconds = readSettings().deviceTimeout ?? target.devices.timeoutSeconds;
  if (!(timeoutSeconds > 0 && timeoutSeconds <= MAX_TIMEOUT))
    throw new UserError(
      `TILEWRIGHT_DEVICE_TIMEOUT: expected seconds, more than 0 and at most ${MAX_TIMEOUT}`,
      'minutes more than the largest micro-batch takes will do: 180',
    );
  const [device = 0] = request.devices;
  const process = host.process({ module: DEVICE_MODULE, target: target.name, device, timeoutSeconds }, ui);
  return RemoteExecutor.open(process, { request, ...options }, ui);
}

export interface LoadReplicaOptions extends Omit<OpenOptions, 'devices' | 'stages'> {
  /**
   * One device per stage, counted from 0 among the devices of this machine that run the plan. Default: the first alone.
   */
  readonly devices?: readonly number[];
  /** Number of such sets of devices in the run. Default: 1. */
  readonly replicas?: number;
}

/**
 * The launches of each function on each stage; undefined where one device runs all. They depend only on the plan and
 * the devices, so every process computes the same ones.
 */
export function cutsOf(
  model: CompiledModel,
  { replicas, stages }: Parallelism,
  rebuild: Rebuild,
): Readonly<Record<string, readonly Stage[]>> | undefined {
  if (stages === 1) return undefined;
  const placed = placeModel(model, { devices: replicas * stages, rebuild, wanted: { replicas, stages } });
  const cuts = placed.stages.map(({ first, end }): Stage => ({ first, end }));
  return followCuts(model.plan.functions, scoreOf(model.plan), cuts);
}

/** The executor in this process: the whole plan on one device, or a pipeline over several. */
export function loadExecutor(
  checkpoint: Checkpoint,
  model: CompiledModel,
  options: LoadReplicaOptions,
  ui: Ui,
): Promise<DeviceExecutor> {
  const { devices = [0], replicas = 1, ...others } = options;
  const stages = cutsOf(model, { replicas, stages: devices.length }, options.rebuild);
  const open = { ...others, devices, ...defined({ stages }) };
  return model.target.devices.open(checkpoint, model, open, ui);
}
