/**
 * Loads a compiled model onto the devices that a run requests: how many there are, how the model is placed on them, and
 * the processes that drive them.
 */
import { setImmediate } from 'node:timers/promises';
import { UserError } from '../../errors.js';
import { DRAFT } from '../../ir/function.js';
import { deviceOf, type Parallelism, scoreOf } from '../../ir/plan.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import { printPlacement } from '../../passes/placeStages.js';
import type { FirstCall } from '../../runtime/stageRunner.js';
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { packModel } from '../artifact/planCache.js';
import { type OpenedModel, type Opening, rebuildOpened } from '../compile/open.js';
import type { DeviceExecutor } from '../executor.js';
import type { BaseSource } from '../adapters/packJob.js';
import { modelName } from '../names.js';
import type { Phases } from '../phases.js';
import type { LoadRequest, Ui } from '../requests.js';
import { distinct } from '../targets/executors.js';
import type { TargetDevices } from '../targets/target.js';
import { DeviceHost } from './deviceHost.js';
import { beginDevice, loadExecutor } from './loadReplica.js';
import { placeModel } from './placement.js';
import { DevicePool } from './pool.js';
import type { DeviceRequest } from './protocol.js';
import { SiblingRelay } from './siblings.js';
import { endSpares, hasDeviceModule, startEarly } from './startProcess.js';

export interface OpenedDevices {
  readonly opened: OpenedModel;
  readonly executor: DeviceExecutor;
  readonly parallelism: Parallelism;
}

const ONE: Parallelism = { replicas: 1, stages: 1 };
const isEqual = (a: Parallelism, b: Parallelism): boolean => a.replicas === b.replicas && a.stages === b.stages;

/** What --devices and --parallel specify without regard to the model. `exact` is set if they leave no choice. */
function wantedOf(
  { devices, parallel }: Pick<LoadRequest, 'devices' | 'parallel'>,
  targetDevices: Pick<TargetDevices, 'visible'>,
): { readonly devices: number; readonly exact?: Parallelism } {
  if (typeof parallel === 'object') return { devices: parallel.replicas * parallel.stages, exact: parallel };
  if (devices === undefined && parallel === undefined) return { devices: 1, exact: ONE };
  const count = typeof devices === 'number' ? devices : targetDevices.visible();
  return count === 1 ? { devices: 1, exact: ONE } : { devices: count };
}

/** Begins what the devices of a request need and no model has a part in, while the model is opened and compiled. */
export function prepareDevices(
  request: Pick<LoadRequest, 'devices' | 'parallel'>,
  { devices }: Opening['target'],
  host?: DeviceHost,
): void {
  if (host?.hasProcesses === true) return;
  if (devices.compilesInProcess) startEarly(wantedOf(request, devices).devices);
  else endSpares();
}

/** How a model will lie on the devices that a request names. Throws UserError if it does not fit. */
export function parallelismFor(opened: OpenedModel, request: LoadRequest): Parallelism {
  const { devices, exact } = wantedOf(request, opened.model.target.devices);
  if (exact !== undefined) return exact;
  const { replicas, stages } = placeModel(opened.model, { devices, rebuild: rebuildOpened(request.model, opened) });
  return { replicas, stages: stages.length };
}

/**
 * Places a model on its devices, and reports the placement if there are several. Throws UserError if it does not fit;
 * the hint says what would fit.
 */
function place(
  opened: OpenedModel,
  { devices, exact }: ReturnType<typeof wantedOf>,
  request: LoadRequest,
  ui: Ui,
): Parallelism {
  if (exact !== undefined && isEqual(exact, ONE)) return ONE;
  const { model } = opened;
  const drafts = model.plan.functions.some((fn) => fn.interface.name === DRAFT);
  const placed = placeModel(model, {
    devices,
    rebuild: rebuildOpened(request.model, opened),
    ...defined({ wanted: exact }),
  });
  if (drafts && placed.stages.length > 1)
    throw new UserError(
      `${request.draftModel ?? 'a draft'}: drafts on the device of its model, and a pipeline has several`,
      'use --parallel dp=1, or more, or drafts that need no device: --draft suffix',
    );
  for (const line of printPlacement(placed, scoreOf(model.plan))) ui.note(line);
  return { replicas: placed.replicas, stages: placed.stages.length };
}

/** How a model is loaded. */
export interface DeviceOptions {
  readonly phases: Phases;
  /** Where it is opened, beside the models that are there. Default: nowhere that others are. */
  readonly host?: DeviceHost;
  /** The calls that will come first, where that is known. */
  readonly first?: readonly FirstCall[];
  /**
   * Called once the processes have the compiled model, or before weights are loaded here. What it throws ends the
   * loading.
   */
  readonly onCompiled?: (opened: OpenedModel) => void;
}

/** With the adapter that the whole model has. */
interface Adapted {
  readonly adapter: Adapter | undefined;
}

type HostedOptions = DeviceOptions & Required<Pick<DeviceOptions, 'host'>>;

/**
 * Compiles the model here and loads it onto its devices. Where they are driven by processes of their own, those start
 * at once and are sent the compiled model: nothing is planned twice.
 */
export const openDevices = (
  opening: Opening,
  request: LoadRequest,
  ui: Ui,
  { host = new DeviceHost(), ...options }: DeviceOptions,
): Promise<OpenedDevices> =>
  (opening.target.devices.compilesInProcess ? openMeanwhile : openCompiled)(opening, request, ui, { host, ...options });

/** Loads the model after compiling: the processes then find its kernels in the cache. */
async function openCompiled(
  opening: Opening,
  request: LoadRequest,
  ui: Ui,
  options: HostedOptions,
): Promise<OpenedDevices> {
  const wanted = wantedOf(request, opening.target.devices);
  const { adapter } = opening;
  const opened = await opening.finish();
  const { model } = opened;
  options.onCompiled?.(opened);
  const parallelism = place(opened, wanted, request, ui);
  if (isEqual(parallelism, ONE) && !options.host.isApart)
    return { opened, parallelism: ONE, executor: await loadHere(opened, request, ui, { ...options, adapter }) };
  // A single process compiles what it needs when it needs it.
  if (!isEqual(parallelism, ONE)) {
    ui.phase('compile kernels', distinct(model));
    await options.phases.during('kernels', () => model.target.compiler.compile(model, { packed: opened.packed }));
  }
  const loading = begin(
    request,
    opening.target,
    { parallelism, model: Promise.resolve(packModel(model)), adapter, ...options },
    ui,
  );
  if (loading === undefined) throw new Error('several devices need the built package: npm run build');
  try {
    await loading.opened();
    return { opened, parallelism, executor: loading.executor };
  } catch (error) {
    await loading.executor.close();
    throw error;
  }
}

/** Loads the model on as many devices as it is likely to need, in processes that start while this one compiles. */
async function openMeanwhile(
  opening: Opening,
  request: LoadRequest,
  ui: Ui,
  options: HostedOptions,
): Promise<OpenedDevices> {
  const wanted = wantedOf(request, opening.target.devices);
  const { adapter } = opening;
  // The plan is not known yet. Most models fit one GPU.
  const guess = wanted.exact ?? { replicas: wanted.devices, stages: 1 };
  let send: (model: Uint8Array) => void = () => undefined;
  const compiled = new Promise<Uint8Array>((resolve) => {
    send = resolve;
  });
  let loading = begin(request, opening.target, { parallelism: guess, model: compiled, adapter, ...options }, ui);
  try {
    // Compiling blocks this thread, so pending work is started first.
    await setImmediate();
    const opened = await opening.finish();
    const { model } = opened;
    // Reports what is missing in the words of this command.
    model.target.devices.require(model.device, wanted.devices, rebuildOpened(request.model, opened));
    if (loading === undefined) {
      options.onCompiled?.(opened);
      return { opened, parallelism: ONE, executor: await loadHere(opened, request, ui, { ...options, adapter }) };
    }
    const parallelism = place(opened, wanted, request, ui);
    if (!isEqual(parallelism, guess)) {
      await loading.executor.close();
      loading = begin(request, opening.target, { parallelism, model: compiled, adapter, ...options }, ui) ?? loading;
    }
    send(packModel(model));
    // What is to be sent leaves this process before anything else blocks it.
    await setImmediate();
    options.onCompiled?.(opened);
    await loading.opened();
    return { opened, parallelism, executor: loading.executor };
  } catch (error) {
    await loading?.executor.close();
    throw error;
  }
}

const loadHere = (
  opened: OpenedModel,
  request: LoadRequest,
  ui: Ui,
  { phases, first, host, adapter }: HostedOptions & Adapted,
): Promise<DeviceExecutor> =>
  host.local.open({
    name: modelName(request.model),
    compiled: opened.model,
    checkpoint: opened.checkpoint,
    ...defined({ base: opened.isArtifact ? undefined : baseOf(request), adapter }),
    load: (besideBytes) =>
      loadExecutor(
        opened.checkpoint,
        opened.model,
        {
          threads: request.threads,
          rebuild: rebuildOpened(request.model, opened),
          packed: opened.packed,
          phases,
          besideBytes,
          ...defined({ first }),
        },
        ui,
      ),
  });

const baseOf = ({ model: path, init, draftModel }: LoadRequest): BaseSource => ({ path, init, draftModel });

/** Threads of replica `index`: an even share of all, at least one. */
const threadsOf = (threads: number, index: number, count: number): number =>
  Math.max(1, Math.floor(threads / count) + (index < threads % count ? 1 : 0));

/** The part of a request that another process needs to load the model on the devices of a replica. */
function deviceRequest(
  { model, init, checkpoint, trustsCode, draftModel, threads }: LoadRequest,
  { parallelism: { replicas, stages }, first, adapter }: Beginning,
  index: number,
): DeviceRequest {
  return {
    model,
    init,
    ...defined({ checkpoint, trustsCode, draftModel, adapter: adapter && { path: adapter.path, hash: adapter.hash } }),
    threads: threadsOf(threads, index, replicas),
    stages,
    replica: { index, count: replicas },
    devices: Array.from({ length: stages }, (_, stage) => deviceOf(index, stage, stages)),
    ...defined({ first }),
  };
}

/** What processes are started with. */
interface Beginning extends Pick<HostedOptions, 'first' | 'host'>, Adapted {
  readonly parallelism: Parallelism;
  /** Packed, once it is compiled. */
  readonly model: Promise<Uint8Array>;
}

/** The processes that load the model. */
interface LoadingDevices {
  readonly executor: DeviceExecutor;
  /** Settles when one of them has loaded it. */
  opened(): Promise<void>;
}

/** Starts a process for each replica; undefined if there is no compiled module to start. */
function begin(
  request: LoadRequest,
  target: Opening['target'],
  beginning: Beginning,
  ui: Ui,
): LoadingDevices | undefined {
  const { model, parallelism, host } = beginning;
  const { replicas, stages } = parallelism;
  if (!hasDeviceModule()) return undefined;
  if (replicas === 1) {
    const executor = beginDevice(deviceRequest(request, beginning, 0), { target, host, model }, ui);
    return { executor, opened: () => executor.opened() };
  }
  const uis = replicaUis(replicas, stages, ui, target.devices.compilesInProcess ? [] : ['compile kernels']);
  const relay = target.devices.sharesWeights ? new SiblingRelay(replicas) : undefined;
  const executor = DevicePool.begin(
    {
      count: replicas,
      stages,
      nameOf: (index) => nameOfReplica(index, stages),
      begin: (index, onEnd) =>
        beginDevice(
          deviceRequest(request, beginning, index),
          { target, host, model, onEnd, ...defined({ siblings: relay && { relay, index } }) },
          at(uis.of, index),
        ),
    },
    ui,
  );
  return {
    executor,
    opened: async () => {
      await executor.opened();
      uis.quieten();
    },
  };
}

/** `device 2`, `devices 2 and 3`, `devices 4 to 7`: the devices of a replica, counted from 0. */
export function nameOfReplica(index: number, stages: number): string {
  const [first, last] = [index * stages, index * stages + stages - 1];
  if (stages === 1) return `device ${first}`;
  return `devices ${first} ${stages === 2 ? 'and' : 'to'} ${last}`;
}

export interface ReplicaUis {
  /** A face for each replica. What all say is shown once. */
  readonly of: readonly Ui[];
  /** From now on only warnings are handed on: who loads later does so beside something else. */
  quieten(): void;
}

/** `shown`: phases that were shown already. */
export function replicaUis(count: number, stages: number, ui: Ui, shown: readonly string[] = []): ReplicaUis {
  let isQuiet = false;
  const seen = new Set(shown);
  /** Equal but for numbers is said once. */
  const isNew = (line: string): boolean => {
    const words = line.replace(/[\d.]+/g, '#');
    return !seen.has(words) && seen.add(words).has(words);
  };
  let shownPhase: string | undefined;
  /** What each replica is at. Progress of one that is behind, or at what was shown already, is not shown. */
  const phases = new Map<number, string>();
  const fractions = new Map<number, number>();
  const of = Array.from({ length: count }, (_, index): Ui => ({
    phase: (name, detail) => {
      phases.set(index, name);
      if (isQuiet || seen.has(name)) return;
      seen.add(name);
      shownPhase = name;
      fractions.clear();
      ui.phase(name, detail);
    },
    step: (fraction, detail) => {
      if (isQuiet || phases.get(index) !== shownPhase) return;
      fractions.set(index, fraction);
      const mean = [...fractions.values()].reduce((a, b) => a + b, 0) / count;
      // Each replica counts the same kernels, or weights of about the same size.
      ui.step(mean, typeof detail === 'object' ? { ...detail, done: Math.round(mean * detail.total) } : detail);
    },
    run: () => undefined,
    table: () => undefined,
    note: (line) => {
      if (!isQuiet && isNew(line)) ui.note(line);
    },
    detail: (line) => {
      if (!isQuiet && isNew(line)) ui.detail(line);
    },
    warn: (line) => ui.warn(`${nameOfReplica(index, stages)}: ${line}`),
  }));
  return {
    of,
    quieten: () => {
      isQuiet = true;
    },
  };
}
