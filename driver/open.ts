/** A model as the user names it — checkpoint, config.json or artifact — compiled. */
import { UserError } from '../errors.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { artifactId, isArtifact, loadArtifact, rebuild, type ModelReference } from './artifact.js';
import { compileModel, type CompiledModel } from './compile.js';
import { Dump } from './dump.js';
import type { Machine } from './machine.js';
import { cudaFactsOf } from './gpu.js';
import { openModel, type WeightInit } from './model.js';
import type { CompileRequest, Ui } from './requests.js';

export interface OpenedModel {
  readonly checkpoint: Checkpoint;
  readonly reference: ModelReference;
  readonly model: CompiledModel;
  /** Hash of what is computed. */
  readonly id: string;
  readonly isArtifact: boolean;
}

export async function openOrCompile(request: Omit<CompileRequest, 'output'>, machine: Machine, ui: Ui): Promise<OpenedModel> {
  if (isArtifact(request.model)) return openArtifact(request.model, machine);
  const cuda = cudaFactsOf(request.target ?? 'cpu');
  const checkpoint = openModel(request.model, request.init);
  ui.phase('compile');
  const dump = request.dump === undefined ? undefined : new Dump(request.dump);
  const model = compileModel(checkpoint, machine, {
    precision: request.precision,
    ...(cuda === undefined ? {} : { cuda }),
    ...(request.isa === undefined ? {} : { isa: request.isa }),
    ...(request.mask === undefined ? {} : { mask: request.mask }),
    ...(request.maxTokens === undefined ? {} : { maxTokens: request.maxTokens }),
    ...(dump === undefined ? {} : { observe: (stage, graph) => dump.graph(stage, graph) }),
  });
  dump?.plan(model);
  const reference = referenceTo(request.model, checkpoint, request.init);
  return { checkpoint, reference, model, id: artifactId(reference, model), isArtifact: false };
}

export const referenceTo = (path: string, checkpoint: Checkpoint, init: WeightInit): ModelReference =>
  ({ path, fingerprint: checkpoint.fingerprint(), init });

/** Opens an artifact and the checkpoint it names, and checks that they still belong together. */
export async function openArtifact(dir: string, machine: Machine): Promise<OpenedModel> {
  const { manifest, model } = await loadArtifact(dir, machine);
  const checkpoint = openModel(manifest.model.path, manifest.model.init);
  const fingerprint = checkpoint.fingerprint();
  if (fingerprint !== manifest.model.fingerprint) {
    throw new UserError(`${dir}: the checkpoint ${manifest.model.path} has changed since it was compiled`, rebuild(dir, { model: manifest.model, arithmetic: model.arithmetic, ...(model.target === 'cuda' ? { cuda: model.facts.arch } : {}) }));
  }
  const reference: ModelReference = { path: manifest.model.path, fingerprint, init: manifest.model.init };
  return { checkpoint, reference, model, id: artifactId(reference, model), isArtifact: true };
}
