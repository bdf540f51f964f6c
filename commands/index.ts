/**
 * The commands as functions: the public interface of tilewright. What `compile` does not need (tokenizers, the
 * evaluation) is loaded on demand.
 */
import { resolve, sep } from 'node:path';
import type { ModelReference } from '../driver/artifact/manifest.js';
import { prepareArtifact, saveArtifact } from '../driver/artifact/save.js';
import { type OpenedModel, openOrCompile } from '../driver/compile/open.js';
import { chooseTarget, type ChosenTarget } from '../driver/devices/chooseTarget.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { isArtifact } from '../driver/names.js';
import {
  type CompileRequest,
  type CompileResult,
  type RunRequest,
  type RunResult,
  stepTo,
  type TasksRequest,
  type TuneRequest,
  type TuneResult,
  type Ui,
} from '../driver/requests.js';
import type { Asked } from '../driver/targets/precision.js';
import { mayFeed } from '../driver/targets/index.js';
import { UsageError } from '../errors.js';
import { type ContentsOptions, copyCheckpoint, readContents } from '../models/contents.js';
import { requireModelAt } from '../models/model/refusals.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import type { ContinueListener } from './continueAll.js';
import type { Conversation, ConverseRequest } from './converse.js';
import type { GenerateRequest, GenerateResult } from './generate.js';
import { packedWeightBytes } from './work.js';

/** Model → artifact, with its kernels compiled into this machine's cache. */
export async function compile(asked: Asked<CompileRequest>, ui: Ui): Promise<CompileResult> {
  const begin = performance.now();
  requireModelAt(asked.model);
  prepareArtifact(asked.output);
  requireOutside(asked);
  const { target: _, ...rest } = asked;
  const settled = await settleTarget(asked, ui);
  const request = { ...rest, ...settled, feeds: mayFeed(settled) };
  const machine = detectMachine();
  ui.phase('open model', request.model);
  const opened = await openOrCompile(request, machine, ui);
  const { model, checkpoint } = opened;
  for (const line of checkpoint.warnings) ui.warn(line);
  const { functions } = model.plan;
  const launches = functions.flatMap((fn) => fn.launches);
  const signatures = new Set(launches.map((launch) => launch.signature));
  ui.phase('compile kernels', `${signatures.size} different of ${launches.length}`);
  const compiled = await model.target.compiler.compile(model, {
    onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
  });
  const { output, packsWeights = false, signal } = request;
  const progress = {
    signal,
    onProgress: (done: number, total: number): void => stepTo(ui, { done, total, unit: 'bytes' }),
  };
  const reference = await identify(opened, request, progress, ui);
  ui.phase(packsWeights ? 'copy checkpoint' : 'write', output);
  await saveArtifact(output, {
    reference,
    model,
    kernels: compiled,
    isTuned: false,
    ...(packsWeights ? { pack: (dir) => copyCheckpoint(checkpoint, dir, progress) } : {}),
  });
  return {
    artifact: request.output,
    isa: model.isa,
    arithmetic: model.arithmetic,
    kernels: launches.length,
    distinctKernels: signatures.size,
    // Functions take turns in one arena.
    arenaBytes: Math.max(...functions.map((fn) => fn.arenaBytes)),
    packedWeightBytes: packedWeightBytes(model.plan),
    seconds: (performance.now() - begin) / 1000,
    cached: compiled.isCached,
  };
}

/** Weights are read in place, so their folder must not be the one that is about to be replaced. */
function requireOutside({
  model,
  output,
  packsWeights,
}: Pick<CompileRequest, 'model' | 'output' | 'packsWeights'>): void {
  if (packsWeights !== true && `${resolve(model)}${sep}`.startsWith(`${resolve(output)}${sep}`))
    throw new UsageError(
      `${output}: holds the checkpoint that is to be compiled, and would be replaced`,
      'give another -o, or keep the checkpoint in the artifact: --pack-weights',
    );
}

/** The manifest's facts about the checkpoint besides its fingerprint. */
async function identify(
  { reference, checkpoint }: OpenedModel,
  { hashesWeights, packsWeights }: CompileRequest,
  options: ContentsOptions,
  ui: Ui,
): Promise<ModelReference> {
  const { path, tokenizerPath, config } = checkpoint;
  const tokenizer = tokenizerPath === undefined ? {} : { tokenizer: describeTokenizer(path, config.vocabSize).hash };
  if (hashesWeights !== true || packsWeights === true) return { ...reference, ...tokenizer };
  ui.phase('hash weights');
  return { ...reference, ...tokenizer, contents: await readContents(checkpoint, options) };
}

/** Artifact → the same artifact with the best schedules found within a time budget. */
export async function tune(request: TuneRequest, ui: Ui): Promise<TuneResult> {
  const { artifact: model } = request;
  if (isArtifact(model)) await settleTarget({ model, init: { kind: 'checkpoint' } }, ui);
  return (await import('./tuneModel.js')).tuneModel(request, ui);
}

/** Checkpoint or artifact, and a question set → results. */
export async function run(asked: Asked<RunRequest>, ui: Ui): Promise<RunResult> {
  requireModelAt(asked.model);
  if (asked.compareWith !== undefined) return (await import('./compareWith.js')).runCompared(asked, ui, run);
  const { target: _, ...rest } = asked;
  const request = { ...rest, ...(await settleTarget(asked, ui)) };
  noteNothingIsWritten(request, ui);
  return (await import('./runModel.js')).runModel(request, ui);
}

/** Checkpoint or artifact, and tasks of lm-evaluation-harness → results in its layout. */
export async function runTasks(asked: Asked<TasksRequest>, ui: Ui): Promise<RunResult> {
  requireModelAt(asked.model);
  if (asked.compareWith !== undefined) return (await import('./compareWith.js')).runCompared(asked, ui, runTasks);
  const { target: _, ...rest } = asked;
  const request = { ...rest, ...(await settleTarget(asked, ui)) };
  noteNothingIsWritten(request, ui);
  return (await import('./runTasks.js')).runTasks(request, ui);
}

/** Checkpoint or artifact, and prompts → texts. */
export async function generate(
  asked: Asked<GenerateRequest>,
  ui: Ui,
  listener: ContinueListener = {},
): Promise<GenerateResult> {
  requireModelAt(asked.model);
  const { target: _, ...rest } = asked;
  const request = { ...rest, ...(await settleTarget(asked, ui)) };
  return (await import('./generate.js')).generate(request, ui, listener);
}

/** Checkpoint or artifact → a model that is spoken to. */
export async function converse(asked: Asked<ConverseRequest>, ui: Ui): Promise<Conversation> {
  requireModelAt(asked.model);
  const { target: _, ...rest } = asked;
  const request = { ...rest, ...(await settleTarget(asked, ui)) };
  return (await import('./converse.js')).converse(request, ui);
}

function noteNothingIsWritten({ output, isDryRun }: Pick<RunRequest, 'output' | 'isDryRun'>, ui: Ui): void {
  if (output === undefined && isDryRun !== true) ui.note('no --out: results are printed, nothing is written');
}

/** The target that was requested, or the choice of `auto`. The device is reported first. */
export async function settleTarget(
  asked: Parameters<typeof chooseTarget>[0],
  ui: Pick<Ui, 'note' | 'detail'>,
): Promise<Pick<ChosenTarget, 'target'>> {
  const { target, device, detail } = await chooseTarget(asked);
  ui.note(`device: ${device}`);
  if (detail !== undefined) ui.detail(detail);
  return target === undefined ? {} : { target };
}
