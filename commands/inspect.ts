/** A model opened for inspection: what every pass produced, what no pass recognized, and the plan. */
import { cacheTokensOf } from '../ir/stepping.js';
import { type Artifact, checkpointOf, codeOf, loadArtifact, verifyWeights } from '../driver/artifact/load.js';
import type { Manifest } from '../driver/artifact/manifest.js';
import { type CompiledModel, compileModel } from '../driver/compile/compile.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { openModel, storedFormats } from '../driver/functions.js';
import { isArtifact } from '../driver/names.js';
import { arithmeticName, type WithTargetChoice } from '../driver/precision.js';
import type { ArtifactRequest, ModelRequest } from '../driver/requests.js';
import { detectMachine, type Machine } from '../driver/targets/cpuDevice.js';
import { targetOf } from '../driver/targets/index.js';
import { UsageError, UserError } from '../errors.js';
import { SCORE } from '../ir/function.js';
import type { Graph, GraphModule } from '../ir/graph/graph.js';
import { type LinkedFunction, scoreOf } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { requireSameTokens } from '../models/draft/draftModel.js';
import type { ModelConfig } from '../models/model/model.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import type { Observer, CompilerStage } from '../passes/runPasses.js';
import { unrecognized } from '../passes/unrecognized.js';
import { defined } from '../system/defined.js';

export interface InspectRequest
  extends Omit<ModelRequest, 'logits' | 'feeds' | 'dump' | 'signal'>, Omit<ArtifactRequest, 'trustsCode'> {}

/** The graph or the kernels after one pass. A second run of a pass is called `name.2`. */
export type RecordedStage = CompilerStage & { readonly changed: boolean };

/** What an artifact contains besides its plan. */
export interface ArtifactContents {
  /** Whether the artifact contains the checkpoint. */
  readonly isPacked: boolean;
  /**
   * How its weights are identified: by samples of every tensor; by hashes of all bytes, not compared now; or by hashes
   * that were compared.
   */
  readonly weights: 'sampled' | 'hashed' | 'verified';
  /** Its machine code; absent if it was compiled without any. */
  readonly code:
    | {
        readonly machine: string;
        readonly compiler: string;
        readonly abi: number;
        readonly files: number;
        readonly codeBytes: number;
      }
    | undefined;
}

export interface Inspection {
  readonly request: InspectRequest;
  readonly isArtifact: boolean;
  /** Artifacts only. */
  readonly isTuned: boolean;
  /** Artifacts only. */
  readonly contents?: ArtifactContents;
  readonly model: CompiledModel;
  /** Instruction set, or `cuda:` and an architecture. */
  readonly isa: string;
  /** And the cache. */
  readonly arithmetic: string;
  readonly plan: LinkedFunction<unknown>;
  /** Absent if an artifact's checkpoint was moved or removed. */
  readonly checkpoint: Checkpoint | undefined;
  readonly config: ModelConfig | undefined;
  /** In order. An artifact without its checkpoint has the final graph only. */
  readonly stages: readonly RecordedStage[];
  /** What generic kernels compute because no pass recognized it, one line each. */
  readonly unrecognized: readonly string[];
  /** Problems that do not prevent inspection. */
  readonly notes: readonly string[];
}

/** Keeps each observed stage and numbers repeated passes. */
function recordStages(): { stages: RecordedStage[]; observe: Observer } {
  const stages: RecordedStage[] = [];
  const counts = new Map<string, number>();
  let last: unknown;
  const observe: Observer = (stage) => {
    const count = (counts.get(stage.name) ?? 0) + 1;
    counts.set(stage.name, count);
    const program = stage.level === 'graph' ? stage.graph : stage.module;
    const name = count === 1 ? stage.name : `${stage.name}.${count}`;
    stages.push({ ...stage, name, changed: program !== last });
    last = program;
  };
  return { stages, observe };
}

/** What was made of a model for the kind of machine that is asked for, or that is here. */
export const inspect = async (asked: WithTargetChoice<InspectRequest>): Promise<Inspection> =>
  inspectModel(await settleTarget(asked));

/** Compiles (or loads) the model and keeps every stage. Reads no weights and runs no compiler. Throws UserError. */
export async function inspectModel(request: InspectRequest, machine: Machine = detectMachine()): Promise<Inspection> {
  if (isArtifact(request.model)) return inspectArtifact(request, machine);
  const checkpoint = openModel(request.model, request.init, request.draftModel);
  requireSameTokens(checkpoint);
  const { target: name = 'cpu', precision, isa } = request;
  const target = targetOf(name);
  const device = target.compiler.choose(
    { target: name, precision, ...defined({ isa }) },
    machine,
    checkpoint.config.dtype,
    storedFormats(checkpoint, precision),
  );
  const { stages, observe } = recordStages();
  const { mask, batchTokens, cacheTokens, kvCache } = request;
  const options = defined({ mask, batchTokens, cacheTokens, kvCache });
  const compiled = compileModel(checkpoint, target, device, options, observe);
  return {
    request,
    isArtifact: false,
    isTuned: false,
    model: compiled,
    isa: compiled.isa,
    arithmetic: arithmeticName(compiled),
    plan: scoreOf(compiled.plan),
    checkpoint,
    config: checkpoint.config,
    stages,
    unrecognized: unrecognized(scoreOf(compiled.plan)),
    notes: checkpoint.warnings,
  };
}

/**
 * The checkpoint of an artifact, if running the artifact would use it; otherwise undefined, with a note that says why.
 */
function usableCheckpoint(request: InspectRequest, manifest: Manifest, notes: string[]): Checkpoint | undefined {
  try {
    const checkpoint = checkpointOf(request.model, manifest, request.checkpoint);
    const { path: dir, config, tokenizerPath } = checkpoint;
    if (checkpoint.fingerprint() !== manifest.model.fingerprint) {
      notes.push(`${dir} is not the checkpoint that was compiled: running the artifact would be refused`);
      return undefined;
    }
    const { tokenizer } = manifest.model;
    const found = tokenizerPath === undefined ? undefined : describeTokenizer(dir, config.vocabSize).hash;
    if (tokenizer !== undefined && found !== tokenizer)
      notes.push(`the tokenizer in ${dir} has changed: running the artifact would be refused`);
    return checkpoint;
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    notes.push(`${error.message}${error.hint === undefined ? '' : `; ${error.hint}`}`);
    return undefined;
  }
}

/** What an artifact contains besides its plan. Notes name the files of machine code that are damaged. */
function describeContents(dir: string, artifact: Artifact, isVerified: boolean, notes: string[]): ArtifactContents {
  const { code, model } = artifact.manifest;
  const packed = codeOf(dir, artifact, false);
  let codeBytes = 0;
  for (const name of Object.keys(code?.files ?? {})) {
    try {
      codeBytes += packed.read(name).length;
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      notes.push(error.message);
    }
  }
  return {
    isPacked: model.isPacked,
    weights: isVerified ? 'verified' : model.contents === undefined ? 'sampled' : 'hashed',
    code:
      code === undefined
        ? undefined
        : {
            machine: code.machine,
            compiler: code.compiler,
            abi: code.abi,
            files: Object.keys(code.files).length,
            codeBytes,
          },
  };
}

async function inspectArtifact(request: InspectRequest, machine: Machine): Promise<Inspection> {
  const artifact = await loadArtifact(request.model, machine);
  const { manifest, model } = artifact;
  const notes: string[] = [];
  const checkpoint = usableCheckpoint(request, manifest, notes);
  notes.push(...(checkpoint?.warnings ?? []));
  const isVerified = request.verifies === true;
  if (isVerified) {
    if (checkpoint === undefined) throw new UserError(`${request.model}: there are no weights to verify`, notes.at(-1));
    await verifyWeights(request.model, artifact, checkpoint, { phase: () => undefined, step: () => undefined });
  }
  const { parseModule } = await import('../ir/graph/parser.js');
  const last: RecordedStage = {
    level: 'graph',
    name: 'artifact',
    does: 'The optimized graph, as the artifact keeps it.',
    reason: 'the graph that the plan was made of',
    graph: scoreIn(parseModule(model.graphText)),
    changed: true,
  };
  const stages = checkpoint === undefined ? undefined : replay(checkpoint, model);
  if (checkpoint !== undefined && stages === undefined)
    notes.push('the config.json of the checkpoint compiles to another graph: running the artifact would be refused');
  return {
    request,
    isArtifact: true,
    isTuned: manifest.tuned,
    contents: describeContents(request.model, artifact, isVerified, notes),
    model,
    isa: model.isa,
    arithmetic: arithmeticName(model),
    plan: scoreOf(model.plan),
    checkpoint,
    config: checkpoint?.config,
    stages: stages ?? [last],
    unrecognized: unrecognized(scoreOf(model.plan)),
    notes,
  };
}

/** Throws where there is none; reading an artifact has refused it before. */
function scoreIn({ functions }: GraphModule): Graph {
  const score = functions.find(({ name }) => name === SCORE);
  if (score === undefined) throw new Error(`The artifact has no function ${SCORE}.`);
  return score;
}

/** Runs the passes again, if they still produce the artifact's graph. */
function replay(checkpoint: Checkpoint, model: CompiledModel): readonly RecordedStage[] | undefined {
  const { stages, observe } = recordStages();
  const { target, device, mask, kvCache } = model;
  const batchTokens = tokensIn(scoreOf(model.plan).capacity);
  const options = { batchTokens, mask, ...defined({ cacheTokens: cacheTokensOf(model), kvCache }) };
  const again = compileModel(checkpoint, target, device, options, observe);
  return again.graphText === model.graphText ? stages : undefined;
}

/** The stage that `wanted` names: a pass (its last run), `pass.2`, or a number from 0. Throws UserError. */
export function findStage(inspection: Inspection, wanted: string): RecordedStage {
  const { stages } = inspection;
  const byNumber = /^\d{1,3}$/.test(wanted) ? stages[Number(wanted)] : undefined;
  const runs = stages.filter(
    ({ name }) => name === wanted || (name.startsWith(`${wanted}.`) && /^\d+$/.test(name.slice(wanted.length + 1))),
  );
  const found = byNumber ?? stages.find(({ name }) => name === wanted && name.includes('.')) ?? runs.at(-1);
  if (found === undefined) {
    throw new UsageError(
      `there is no pass ${JSON.stringify(wanted)} in this compilation`,
      `passes, in order: ${stages.map(({ name }, i) => `${i} ${name}`).join(', ')}`,
    );
  }
  return found;
}

/** The function of a model that a stage is of: `score`, `step`. */
export const functionOf = (stage: CompilerStage): string =>
  stage.level === 'graph' ? stage.graph.name : stage.module.interface.name;

/** What the pass of `stage` was given: the stage before it of the same function. Throws UsageError if it has none. */
export function stageBefore({ stages }: Pick<Inspection, 'stages'>, stage: RecordedStage): RecordedStage {
  const own = stages.filter((each) => functionOf(each) === functionOf(stage));
  const before = own[own.indexOf(stage) - 1];
  if (before === undefined)
    throw new UsageError(`${stage.name} is the first stage: no pass made it`, `name a pass: ${own[1]?.name ?? 'none'}`);
  if (before.level !== stage.level)
    throw new UsageError(
      `${stage.name} makes kernels of the graph: their texts have no line in common`,
      `show what it made: --pass ${stage.name}`,
    );
  return before;
}

/** Number of ops in a graph, or of kernels. */
export const stageSize = (stage: CompilerStage): number =>
  stage.level === 'graph' ? stage.graph.nodes.length : stage.module.kernels.length;

/** Number of elements in all tensors of the checkpoint. */
export const parameterCount = (checkpoint: Checkpoint): number =>
  [...checkpoint.tensors.values()].reduce(
    (sum, { shape }) => sum + shape.reduce((product, extent) => product * extent, 1),
    0,
  );
