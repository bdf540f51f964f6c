/** Models with made-up weights for benchmarks of whole calls: compiled and loaded in this process. */
import { type OpenedModel, openOrCompile } from '../driver/compile/open.js';
import type { Executor } from '../driver/devices/executor.js';
import { loadExecutor } from '../driver/devices/loadReplica.js';
import type { WeightInit } from '../driver/names.js';
import type { Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import type { KvCache, Precision } from '../driver/targets/precision.js';
import type { CpuIsa } from '../ir/plan.js';
import { type BenchTarget, initOf, modelPath } from './optionReader.js';

const ignore = (): void => undefined;
const print = (line: string): void => {
  console.error(line);
};
/** Notes and warnings on the standard error, and no progress. */
const ui: Ui = { phase: ignore, step: ignore, run: ignore, table: ignore, note: print, detail: print, warn: print };

export interface RandomModelOptions {
  /** Folder of a config.json, or one below bench/models; or a GGUF file, which is read with its weights. */
  readonly model: string;
  readonly target: BenchTarget;
  /** Threads that compute on a CPU. */
  readonly threads: number;
  /** Default: auto. */
  readonly precision?: Precision;
  /** Instruction set on a CPU; by default the best that it has. */
  readonly isa?: CpuIsa;
  /** Tokens whose keys and values are kept. */
  readonly cacheTokens: number;
  readonly kvCache?: KvCache;
  /** Tokens of the largest call; by default as `run` has it. */
  readonly batchTokens?: number;
  /** A call of `step` takes tokens that the one before it has drawn. */
  readonly feeds?: boolean;
  /** `step` chooses tokens from whole rows of logits where it is asked to. */
  readonly logits?: boolean;
  /** Default: made-up weights. */
  readonly init?: WeightInit;
  /** The npm script, for messages. */
  readonly script: string;
}

/** Throws UserError. The caller closes the executor. */
export async function openRandomModel(
  options: RandomModelOptions,
): Promise<Pick<OpenedModel, 'model' | 'checkpoint'> & { readonly executor: Executor }> {
  const { model: name, threads, script, ...compiling } = options;
  const { model, checkpoint } = await openOrCompile(
    { model: modelPath(name), init: initOf(name), precision: 'auto', ...compiling },
    detectMachine(),
    ui,
  );
  const executor = await loadExecutor(checkpoint, model, { threads, rebuild: () => `npm run ${script}` }, ui);
  return { model, checkpoint, executor };
}
