/** A model as the user names it — checkpoint, config.json or artifact — compiled. */
import { UserError } from '../errors.js';
import type { Checkpoint } from '../models/checkpoint.js';
import {
  artifactId,
  loadArtifact,
  readManifest,
  rebuild,
  rebuildFor,
  type ModelReference,
  type Rebuild,
} from './artifact.js';
import { isArtifact, type WeightInit } from './names.js';
import { compileModel, type CompiledModel } from './compile.js';
import { Dump } from './dump.js';
import type { Machine } from './machine.js';
import { cudaFactsOf } from './devices/gpu.js';
import { openModel } from './model.js';
import type { CompileRequest, Ui } from './requests.js';

export interface OpenedModel {
  readonly checkpoint: Checkpoint;
  readonly reference: ModelReference;
  readonly model: CompiledModel;
  /** Hash of what is computed. */
  readonly id: string;
  readonly isArtifact: boolean;
}

/** A model whose checkpoint is known; compiling it, or reading its artifact, takes a second or two for a large one. */
export interface Opening {
  readonly checkpoint: Checkpoint;
  readonly target: CompiledModel['target'];
  finish(): Promise<OpenedModel>;
}

/** Opens the checkpoint. Throws UserError where that cannot be; what is wrong with the rest is said by finish(). */
export function beginOpening(request: Omit<CompileRequest, 'output'>, machine: Machine, ui: Ui): Opening {
  if (isArtifact(request.model)) return beginArtifact(request.model, machine);
  const target = request.target ?? 'cpu';
  const checkpoint = openModel(request.model, request.init);
  const finish = async (): Promise<OpenedModel> => {
    const cuda = cudaFactsOf(target);
    ui.phase('compile');
    const dump = request.dump === undefined ? undefined : new Dump(request.dump);
    const model = compileModel(checkpoint, machine, {
      precision: request.precision,
      ...(cuda === undefined ? {} : { cuda }),
      ...(request.isa === undefined ? {} : { isa: request.isa }),
      ...(request.mask === undefined ? {} : { mask: request.mask }),
      ...(request.maxTokens === undefined ? {} : { maxTokens: request.maxTokens }),
      ...(dump === undefined ? {} : { observe: (stage) => dump.stage(stage) }),
    });
    dump?.plan(model);
    const reference = referenceTo(request.model, checkpoint, request.init);
    return { checkpoint, reference, model, id: artifactId(reference, model), isArtifact: false };
  };
  return { checkpoint, target: target === 'cpu' ? 'cpu' : 'cuda', finish };
}

export const openOrCompile = async (
  request: Omit<CompileRequest, 'output'>,
  machine: Machine,
  ui: Ui,
): Promise<OpenedModel> => beginOpening(request, machine, ui).finish();

export const referenceTo = (path: string, checkpoint: Checkpoint, init: WeightInit): ModelReference => ({
  path,
  fingerprint: checkpoint.fingerprint(),
  init,
});

/** The checkpoint that an artifact names. */
function beginArtifact(dir: string, machine: Machine): Opening {
  const named = readManifest(dir);
  const checkpoint = openModel(named.model.path, named.model.init);
  const finish = async (): Promise<OpenedModel> => {
    const { manifest, model } = await loadArtifact(dir, machine);
    const fingerprint = checkpoint.fingerprint();
    if (fingerprint !== manifest.model.fingerprint) {
      throw new UserError(
        `${dir}: the checkpoint ${manifest.model.path} has changed since it was compiled`,
        rebuild(dir, {
          model: manifest.model,
          arithmetic: model.arithmetic,
          ...(model.target === 'cuda' ? { cuda: model.facts.arch } : {}),
        }),
      );
    }
    const reference: ModelReference = { path: manifest.model.path, fingerprint, init: manifest.model.init };
    return { checkpoint, reference, model, id: artifactId(reference, model), isArtifact: true };
  };
  return { checkpoint, target: named.target.kind, finish };
}

/** Opens an artifact and the checkpoint it names, and checks that they still belong together. */
export const openArtifact = async (dir: string, machine: Machine): Promise<OpenedModel> =>
  beginArtifact(dir, machine).finish();

/** The commands that make what was opened at `path` for other targets. */
export const rebuildOpened = (path: string, { reference, model, isArtifact: isOne }: OpenedModel): Rebuild =>
  rebuildFor(isOne ? path : 'model.tw', reference, model.arithmetic);
