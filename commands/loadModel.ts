/**
 * The second step of a run: compiles a model and loads it onto its devices. It needs no questions; a loaded model
 * scores any number of sets.
 */
import { createHash } from 'node:crypto';
import { weightsId } from '../driver/artifact/manifest.js';
import { withCacheTokens } from '../driver/artifact/planCache.js';
import { beginOpening, type OpenedModel, type Opening } from '../driver/compile/open.js';
import type { DeviceExecutor } from '../driver/executor.js';
import type { DeviceHost } from '../driver/devices/deviceHost.js';
import { openDevices, prepareDevices } from '../driver/devices/openDevices.js';
import type { Phases } from '../driver/phases.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { STEP } from '../ir/function.js';
import type { Parallelism } from '../ir/plan.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { describeTokenizer, type TokenizerDescription } from '../models/tokenizer/files.js';
import { loadAddon } from '../runtime/addon.js';
import type { FirstCall } from '../runtime/stageRunner.js';
import { defined } from '../system/defined.js';
import { limitsOf, type ModelLimits } from './modelLimits.js';
import { scoringLimits } from './scorer.js';

export interface LoadedModel extends OpenedModel {
  readonly tokenizer: TokenizerDescription;
  readonly limits: ModelLimits;
  readonly executor: DeviceExecutor;
  readonly devices: number;
  readonly parallelism: Parallelism;
  close(): Promise<void>;
}

/** Identity of a checkpoint in results: its contents, the adapter of the whole model, the seed of made-up weights. */
export const checkpointId = ({ reference }: Pick<OpenedModel, 'reference'>): string =>
  createHash('sha256')
    .update(JSON.stringify(weightsId(reference)))
    .digest('hex');

/** What results say of the adapter of a model, beside its checkpoint. */
export const adapterOf = (
  asked: LoadRequest['adapter'],
  { reference: { adapter } }: Pick<OpenedModel, 'reference'>,
): { readonly adapter?: { readonly name: string; readonly hash: string } } =>
  asked === undefined || adapter === undefined ? {} : { adapter: { name: asked.name, hash: adapter.hash } };

export interface FinishOptions {
  /** The calls that will come first, where that is known. */
  readonly first?: readonly FirstCall[];
  /**
   * Called while weights are loaded, or before, so that questions can be packed meanwhile. An error that it throws ends
   * the loading.
   */
  readonly onCompiled?: (limits: ModelLimits, opened: OpenedModel) => void;
}

/**
 * What comes first where keys and values are kept: steps, and of them the largest bucket, which any step can run in.
 * Kernels of `score` need not be waited for.
 */
export const stepsFirst = ({ model }: Pick<OpenedModel, 'model'>): Pick<FinishOptions, 'first'> => {
  const step = model.plan.functions.find((fn) => fn.interface.name === STEP);
  return step === undefined ? {} : { first: [{ function: STEP, extents: step.capacity.extents }] };
};

/** A model whose files have been checked. */
export interface ModelLoading {
  /** How the model is opened, whether it keeps logits included. */
  readonly request: LoadRequest;
  readonly checkpoint: Checkpoint;
  readonly tokenizer: TokenizerDescription;
  readonly target: Opening['target'];
  readonly minCapacity: Opening['minCapacity'];
  /** Identity of the checkpoint in results. Reads the samples of the weight files when first called. */
  checkpointId(): string;
  /** Number of processors of this host. */
  readonly cores: number;
  /**
   * Compiles the model with memory for the keys and values of `cacheTokens`, if given; an artifact has a default.
   * `finish` loads what the last such call compiled.
   */
  compile(cacheTokens?: number): Promise<OpenedModel>;
  /** Compiles and loads the model. */
  finish(options?: FinishOptions): Promise<LoadedModel>;
}

export interface LoadingOptions {
  /** Whether steps keep logits, where that depends on the checkpoint. */
  readonly logitsFor?: ((checkpoint: Checkpoint) => boolean) | undefined;
  /** Where the model is opened, beside those that are there already. Default: by itself. */
  readonly host?: DeviceHost | undefined;
}

/** Throws UserError if the model's files are missing or invalid. */
export function beginLoading(
  asked: LoadRequest,
  ui: Ui,
  phases: Phases,
  { logitsFor, host }: LoadingOptions = {},
): ModelLoading {
  const machine = detectMachine();
  ui.phase('open model', asked.model);
  const opening = beginOpening(asked, machine, ui);
  const { checkpoint, adapter, target } = opening;
  prepareDevices(asked, target, host);
  const request = logitsFor === undefined ? asked : { ...asked, logits: logitsFor(checkpoint) };
  const { logits } = request;
  for (const line of new Set([...checkpoint.warnings, ...(adapter?.warnings ?? [])])) ui.warn(line);
  const tokenizer = describeTokenizer(checkpoint.path, checkpoint.config.vocabSize);
  opening.requireTokenizer(tokenizer.hash);
  // A run on a CPU promises a bound on memory, which includes this process. Hosts of GPUs have memory to spare.
  if (target.devices.isHost) loadAddon().boundHeaps();
  let compiled: { readonly opened: OpenedModel; readonly cacheTokens: number | undefined } | undefined;
  const compileFor: ModelLoading['compile'] = async (cacheTokens) => {
    if (compiled !== undefined && compiled.cacheTokens === cacheTokens) return compiled.opened;
    if (compiled?.cacheTokens !== undefined && cacheTokens !== undefined) {
      // Nothing of the plan depends on their number.
      const { opened: before } = compiled;
      compiled = { opened: { ...before, model: withCacheTokens(before.model, cacheTokens) }, cacheTokens };
      return compiled.opened;
    }
    const opened = await phases.during('compile', () => opening.finish(cacheTokens, logits));
    compiled = { opened, cacheTokens };
    return opened;
  };
  const finish: ModelLoading['finish'] = async ({ first, onCompiled } = {}) => {
    let limits: ModelLimits | undefined;
    const compile = async (): Promise<OpenedModel> =>
      compiled?.opened ?? (await phases.during('compile', () => opening.finish(undefined, logits)));
    const { opened, executor, parallelism } = await openDevices({ ...opening, finish: compile }, request, ui, {
      phases,
      ...defined({ first, host }),
      onCompiled: (model) => {
        limits = limitsOf(checkpoint, model.model);
        onCompiled?.(limits, model);
      },
    });
    phases.end();
    limits ??= limitsOf(checkpoint, opened.model);
    const { maxTokens, maxRows, maxKeys } = scoringLimits(executor);
    if (maxTokens !== limits.maxTokens || maxRows !== limits.maxRows || maxKeys !== limits.maxKeys) {
      await executor.close();
      throw new Error(`an executor of ${maxTokens} tokens for a plan of ${limits.maxTokens}`);
    }
    return {
      ...opened,
      tokenizer,
      limits,
      executor,
      devices: parallelism.replicas * parallelism.stages,
      parallelism,
      close: () => executor.close(),
    };
  };
  return {
    request,
    checkpoint,
    tokenizer,
    target,
    minCapacity: () => opening.minCapacity(),
    cores: machine.cpu.cores,
    checkpointId: () => checkpointId({ reference: opening.reference() }),
    compile: compileFor,
    finish,
  };
}

export class EarlyModel {
  #loading: Promise<LoadedModel> | undefined;

  /** What fails is thrown where the model is taken. */
  constructor(loading: Promise<LoadedModel>) {
    loading.catch(() => undefined);
    this.#loading = loading;
  }

  /** Begins to load a model. Settles as soon as devices are at it, so that this process can do what takes a while. */
  static begin(
    loading: Pick<ModelLoading, 'finish'>,
    options: Omit<FinishOptions, 'onCompiled'> = {},
  ): Promise<EarlyModel> {
    return new Promise((resolve) => {
      const settle = (): void => resolve(early);
      const model = loading.finish({ ...options, onCompiled: settle });
      const early = new EarlyModel(model);
      model.catch(settle);
    });
  }

  /** The model, for whoever takes it first; undefined if it was closed. */
  async take(): Promise<LoadedModel | undefined> {
    const loading = this.#loading;
    this.#loading = undefined;
    return loading;
  }

  /** Lets go of it, and of its memory, unless it was taken. Never rejects. */
  async close(): Promise<void> {
    await this.take().then(
      (model) => model?.close(),
      () => undefined,
    );
  }
}
