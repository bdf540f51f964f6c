/** `compile`: checkpoint → artifact, with its kernels compiled into this machine's cache. */
import { resolve, sep } from 'node:path';
import type { ModelReference } from '../driver/artifact/manifest.js';
import { prepareArtifact, saveArtifact } from '../driver/artifact/save.js';
import { type OpenedModel, openOrCompile } from '../driver/compile/open.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import type { Arithmetic, WithTargetChoice } from '../driver/precision.js';
import { type ModelRequest, stepTo, type Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { mayFeed } from '../driver/targets/index.js';
import { UsageError } from '../errors.js';
import { type ContentsOptions, copyCheckpoint, readContents } from '../models/contents.js';
import { requireModelAt } from '../models/model/refusals.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import { requireVocabulary } from './requireVocabulary.js';
import { packedWeightBytes } from './work.js';

export interface CompileRequest extends ModelRequest {
  /** Artifact folder to write. */
  readonly output: string;
  /** Copies the checkpoint into the artifact. */
  readonly packsWeights?: boolean;
  /** Reads all bytes of the weights, so that `verifies` can compare them later; packing does so as well. */
  readonly hashesWeights?: boolean;
}

export interface CompileResult {
  readonly artifact: string;
  /** Instruction set, or `cuda:` and an architecture. */
  readonly isa: string;
  readonly arithmetic: Arithmetic;
  readonly kernels: number;
  /** Number of different kernels; equal kernels of several layers count once. */
  readonly distinctKernels: number;
  readonly arenaBytes: number;
  readonly packedWeightBytes: number;
  readonly seconds: number;
  /** True if no compiler had to run. */
  readonly cached: boolean;
}

/** Model → artifact, with its kernels compiled into this machine's cache. */
export async function compile(asked: WithTargetChoice<CompileRequest>, ui: Ui): Promise<CompileResult> {
  const begin = performance.now();
  requireModelAt(asked.model);
  prepareArtifact(asked.output);
  requireOutside(asked);
  const settled = await settleTarget(asked, ui);
  const request = { ...settled, feeds: mayFeed(settled) };
  const machine = detectMachine();
  ui.phase('open model', request.model);
  const opened = await openOrCompile(request, machine, ui);
  const { model, checkpoint } = opened;
  if (request.logits === true) requireVocabulary(checkpoint, '--logits');
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
