/** The library: models that stay open and score any number of question sets. See docs/library.md. */
import { compile as compileModel, type CompileResult } from '../commands/compile.js';
import { modelDrafts } from '../commands/drafts.js';
import { engineOf } from '../commands/engineModel.js';
import type { LoadedModel } from '../commands/loadModel.js';
import type { QuantizeRequest, QuantizeResult } from '../commands/quantize.js';
import { requireVocabulary } from '../commands/requireVocabulary.js';
import { tune as tuneArtifact, type TuneResult } from '../commands/tune.js';
import type { Arithmetic } from '../driver/precision.js';
import type { LoadRequest } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import type { ModelDrafts } from '../engine/speculation.js';
import { UsageError } from '../errors.js';
import { defined } from '../system/defined.js';
import { CacheUse, eventsOf, type GenerateEvent, ModelGenerator, requireCache } from './generate.js';
import {
  checkOptions,
  type CompileOptions,
  type GenerateOptions,
  type ModelOptions,
  present,
  type QuantizeOptions,
  type RunOptions,
  type ScoreOptions,
  type TuneOptions,
} from './options.js';
import { initOf, load } from './open.js';
import { uiOf } from './progress.js';
import { packFor, readSet, scoreOnce, type ScoreResult, type UseCache } from './score.js';

export type { Accuracy, QuestionAnswer, ScoreResult } from './score.js';

/** A model loaded onto its devices. */
export interface Model {
  /** Instruction set or GPU architecture: `avx512`, `cuda:sm_90a`. */
  readonly isa: string;
  readonly arithmetic: Arithmetic;
  /** Longest context, in tokens. */
  readonly contextLength: number;
  /** Scores a set of questions. Overlapping calls run one after another. */
  score(options: ScoreOptions): Promise<ScoreResult>;
  /**
   * Continues prompts; needs `cacheTokens` of `openModel`, or an artifact with a cache. Calls that overlap are computed
   * together. Leaving the loop ends the work.
   */
  generate(options: GenerateOptions): AsyncGenerator<GenerateEvent, void, undefined>;
  /** Releases devices and memory when the current scoring is done. */
  close(): Promise<void>;
}

/** Compiles a model, or reads an artifact, and loads it. Rejects with UserError if the user can fix the problem. */
export async function openModel(options: ModelOptions): Promise<Model> {
  checkOptions('openModel', options);
  const { request, loaded, cores } = await load(options, () => Promise.resolve());
  return modelOf(request, loaded, cores, modelDrafts(present(options)));
}

function modelOf(request: LoadRequest, loaded: LoadedModel, cores: number, drafts: ModelDrafts | undefined): Model {
  let last: Promise<unknown> = Promise.resolve();
  let closed: Promise<void> | undefined;
  const { model } = loaded;
  let generator: ModelGenerator | undefined;
  const cache = new CacheUse();
  const overwriteCache: UseCache = (work) =>
    cache.alone(async () => {
      // The scheduler of texts would believe that its pages are still there.
      await generator?.close();
      generator = undefined;
      return work();
    });
  const requireOpen = (name: string): void => {
    if (closed !== undefined)
      throw new UsageError(`${name}: the model is closed`, 'open it again: await openModel({ … })');
  };
  return {
    isa: model.isa,
    arithmetic: model.arithmetic,
    contextLength: loaded.limits.contextLength,
    async score(options) {
      checkOptions('score', options);
      requireOpen('score');
      requireVocabulary(loaded.checkpoint, 'score');
      const result = last.then(async () =>
        scoreOnce(loaded, cores, await readSet(request, options), options, overwriteCache),
      );
      last = result.catch(() => undefined);
      return result;
    },
    generate: (options) =>
      eventsOf((tell, stopped) => {
        checkOptions('generate', options);
        requireOpen('generate');
        requireVocabulary(loaded.checkpoint, 'generate');
        const signals = [stopped, ...(options.signal === undefined ? [] : [options.signal])];
        const work = cache.share(async () => {
          generator ??= new ModelGenerator(loaded, engineOf(requireCache(loaded), drafts));
          await generator.run(options, AbortSignal.any(signals), tell);
        });
        last = Promise.allSettled([last, work]);
        return work;
      }),
    close: () =>
      (closed ??= last.then(async () => {
        await generator?.close();
        await loaded.close();
      })),
  };
}

/**
 * Opens a model, scores one set of questions and closes it. The model gets memory for keys and values if the questions
 * are worth it.
 */
export async function run(options: RunOptions): Promise<ScoreResult> {
  checkOptions('run', options);
  const { task, data, sharing, prefixes, overlong, docs, limit, output, modelName: name, resume, ...model } = options;
  const { cacheTokens, ...opening } = model;
  const { signal, onProgress } = options;
  const asked = {
    task,
    data,
    sharing,
    prefixes,
    overlong,
    docs,
    limit,
    output,
    modelName: name,
    resume,
    signal,
    onProgress,
  };
  const { loaded, cores, found } = await load(opening, async (loading, request, ui) => {
    requireVocabulary(loading.checkpoint, 'run');
    const withCache = cacheTokens === undefined ? request : { ...request, cacheTokens };
    return packFor(loading, await readSet(withCache, asked), ui);
  });
  try {
    return await scoreOnce(loaded, cores, found, options, (work) => work());
  } finally {
    await loaded.close();
  }
}

/** Checkpoint to artifact. */
export async function compile(options: CompileOptions): Promise<CompileResult> {
  checkOptions('compile', options);
  const { init, precision = 'auto', onProgress, ...rest } = present(options);
  return compileModel({ ...rest, init: initOf(init), precision }, uiOf(onProgress));
}

/** Better schedules for an artifact, measured on this machine; five minutes unless told otherwise. */
export async function tune(options: TuneOptions): Promise<TuneResult> {
  checkOptions('tune', options);
  const { budgetSeconds = 300, threads = detectMachine().cpu.cores, onProgress, ...rest } = present(options);
  return tuneArtifact({ ...rest, budgetSeconds, threads }, uiOf(onProgress));
}

/**
 * Writes a copy of a checkpoint with weights of 4 or 8 bits. Rejects with UserError if the user can fix the problem,
 * with the signal's reason once it is aborted.
 */
export async function quantize(options: QuantizeOptions): Promise<QuantizeResult> {
  checkOptions('quantize', options);
  const { model, output, method = 'gptq', bits = 4, group = 128, symmetric = true, ...rest } = present(options);
  const { actOrder = false, calibration: file, samples = 128, length, seed = 1, onProgress, ...others } = rest;
  const text = { samples, seed, ...defined({ length }) };
  const request: QuantizeRequest = {
    model,
    output,
    method,
    bits,
    group,
    isSymmetric: symmetric,
    byActivation: actOrder,
    ...others,
    ...defined({ calibration: file === undefined ? undefined : { file, ...text } }),
  };
  const { quantize: quantizeModel } = await import('../commands/quantize.js');
  return quantizeModel(request, uiOf(onProgress));
}
