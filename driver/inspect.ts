/** A model opened for looking at it: what every pass left, what no pass recognised, and the plan. */
import { tokensIn } from '../ir/scoring.js';
import { UsageError, UserError } from '../errors.js';
import { scoreOf, type CpuIsa, type LinkedFunction } from '../ir/plan.js';
import { printKernels } from '../ir/text/kernelPrinter.js';
import { printGraph } from '../ir/text/printer.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { ModelConfig } from '../models/model.js';
import type { MaskKind } from '../models/mask.js';
import type { Observer, Stage } from '../passes/pipeline.js';
import { unrecognised } from '../passes/unrecognised.js';
import { loadArtifact } from './artifact.js';
import { isArtifact, type WeightInit } from './names.js';
import { compileModel, type CompiledModel } from './compile.js';
import { detectMachine, type Machine } from './machine.js';
import type { Arithmetic, Precision, TargetName } from './target.js';
import { openModel } from './model.js';
import { targetOf } from './targets/index.js';

export interface InspectRequest {
  /** A checkpoint folder, a config.json (with `init` random), or an artifact. */
  readonly model: string;
  readonly init: WeightInit;
  readonly precision: Precision;
  /** Default: the CPU. */
  readonly target?: TargetName;
  readonly isa?: CpuIsa;
  readonly mask?: MaskKind;
  /** Largest micro-batch, tokens. */
  readonly maxTokens?: number;
}

/** The graph or the kernels as one pass left them; a second run of a pass is `name.2`. */
export type RecordedStage = Stage & { readonly changed: boolean };

export interface Inspection {
  readonly request: InspectRequest;
  readonly isArtifact: boolean;
  /** Artifacts only. */
  readonly isTuned: boolean;
  readonly model: CompiledModel;
  /** Instruction set, or `cuda:` and an architecture. */
  readonly isa: string;
  readonly arithmetic: Arithmetic;
  readonly plan: LinkedFunction<unknown>;
  /** Absent where an artifact's checkpoint is not where it was. */
  readonly checkpoint: Checkpoint | undefined;
  readonly config: ModelConfig | undefined;
  /** In order; an artifact without its checkpoint has the final graph only. */
  readonly stages: readonly RecordedStage[];
  /** What no pass recognised and generic kernels compute, a line each. */
  readonly unrecognised: readonly string[];
  /** What is not as it should be, though it does not keep anyone from looking. */
  readonly notes: readonly string[];
}

/** Keeps each observed stage, numbering repeats of a pass. */
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

/** Compiles (or loads) the model and keeps every stage. Reads no weights and runs no compiler. Throws UserError. */
export async function inspectModel(request: InspectRequest, machine: Machine = detectMachine()): Promise<Inspection> {
  if (isArtifact(request.model)) return inspectArtifact(request, machine);
  const checkpoint = openModel(request.model, request.init);
  const { target: name = 'cpu', precision, isa } = request;
  const target = targetOf(name);
  const device = target.choose(
    { target: name, precision, ...(isa === undefined ? {} : { isa }) },
    machine,
    checkpoint.config.dtype,
  );
  const { stages, observe } = recordStages();
  const compiled = compileModel(checkpoint, target, device, {
    observe,
    ...(request.mask === undefined ? {} : { mask: request.mask }),
    ...(request.maxTokens === undefined ? {} : { maxTokens: request.maxTokens }),
  });
  return {
    request,
    isArtifact: false,
    isTuned: false,
    model: compiled,
    isa: compiled.isa,
    arithmetic: compiled.arithmetic,
    plan: scoreOf(compiled.plan),
    checkpoint,
    config: checkpoint.config,
    stages,
    unrecognised: unrecognised(scoreOf(compiled.plan)),
    notes: [],
  };
}

async function inspectArtifact(request: InspectRequest, machine: Machine): Promise<Inspection> {
  const { manifest, model } = await loadArtifact(request.model, machine);
  const notes: string[] = [];
  let checkpoint: Checkpoint | undefined;
  try {
    checkpoint = openModel(manifest.model.path, manifest.model.init);
    if (checkpoint.fingerprint() !== manifest.model.fingerprint) {
      notes.push(`${manifest.model.path} has changed since it was compiled: running the artifact would be refused`);
      checkpoint = undefined;
    }
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    notes.push(`the checkpoint is not where it was: ${error.message}`);
  }
  const { parseGraph } = await import('../ir/text/parser.js');
  const last: RecordedStage = {
    level: 'graph',
    name: 'artifact',
    reason: 'the graph that the plan was made of',
    graph: parseGraph(model.graphText),
    changed: true,
  };
  const stages = checkpoint === undefined ? undefined : replay(checkpoint, model);
  if (checkpoint !== undefined && stages === undefined)
    notes.push("compiling the checkpoint today gives another graph, so only the artifact's own is shown");
  return {
    request,
    isArtifact: true,
    isTuned: manifest.tuned,
    model,
    isa: model.isa,
    arithmetic: model.arithmetic,
    plan: scoreOf(model.plan),
    checkpoint,
    config: checkpoint?.config,
    stages: stages ?? [last],
    unrecognised: unrecognised(scoreOf(model.plan)),
    notes,
  };
}

/** The passes again, if they still lead to the artifact's graph. */
function replay(checkpoint: Checkpoint, model: CompiledModel): readonly RecordedStage[] | undefined {
  const { stages, observe } = recordStages();
  const plan = scoreOf(model.plan);
  const bias = plan.kernels.some((kernel) => kernel.anchor === 'attention' && kernel.mask.kind === 'bias');
  const again = compileModel(checkpoint, model.target, model.device, {
    maxTokens: tokensIn(plan.capacity),
    observe,
    ...(bias ? { mask: 'slidingWindow' as const } : {}),
  });
  return again.graphText === model.graphText ? stages : undefined;
}

/** The stage that `wanted` names: a pass (the last run of it), `pass.2`, or a number from 0. Throws UserError. */
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

export const stageText = (stage: Stage): string =>
  stage.level === 'graph' ? printGraph(stage.graph) : printKernels(stage.module);

/** Ops of a graph, or kernels. */
export const stageSize = (stage: Stage): number =>
  stage.level === 'graph' ? stage.graph.nodes.length : stage.module.kernels.length;

/** Elements of all tensors of the checkpoint. */
export const parameterCount = (checkpoint: Checkpoint): number =>
  [...checkpoint.tensors.values()].reduce(
    (sum, { shape }) => sum + shape.reduce((product, extent) => product * extent, 1),
    0,
  );
