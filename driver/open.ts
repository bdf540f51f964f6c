/** A model as the user names it — checkpoint, config.json or artifact — compiled. */
import { UserError } from '../errors.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { artifactId, loadArtifact, readManifest, rebuild, rebuildFor, type ModelReference } from './artifact.js';
import { isArtifact, type WeightInit } from './names.js';
import { compileModel } from './compile.js';
import { Dump } from './dump.js';
import type { Machine } from './machine.js';
import { openModel } from './model.js';
import type { CompileRequest, Ui } from './requests.js';
import { TARGET_RECORDS, targetOf, type AnyTarget, type CompiledModel, type Rebuild } from './targets/index.js';

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
  readonly target: AnyTarget;
  finish(): Promise<OpenedModel>;
}

/** What is to be opened, for any target of those at hand. */
export type OpenRequest = Omit<CompileRequest, 'output' | 'target'> & { readonly target?: string };

/** Opens the checkpoint. Throws UserError where that cannot be; what is wrong with the rest is said by finish(). */
export function beginOpening(
  request: OpenRequest,
  machine: Machine,
  ui: Ui,
  targets: readonly AnyTarget[] = TARGET_RECORDS,
): Opening {
  if (isArtifact(request.model)) return beginArtifact(request.model, machine, targets);
  const { target: name = 'cpu', precision } = request;
  const target = targetOf(name, targets);
  const checkpoint = openModel(request.model, request.init);
  const finish = async (): Promise<OpenedModel> => {
    const wanted = { target: name, precision, ...(request.isa === undefined ? {} : { isa: request.isa }) };
    const device = target.choose(wanted, machine, checkpoint.config.dtype);
    ui.phase('compile');
    const dump = request.dump === undefined ? undefined : new Dump(request.dump);
    const model = compileModel(checkpoint, target, device, {
      ...(request.mask === undefined ? {} : { mask: request.mask }),
      ...(request.maxTokens === undefined ? {} : { maxTokens: request.maxTokens }),
      ...(dump === undefined ? {} : { observe: (stage) => dump.stage(stage) }),
    });
    dump?.plan(model);
    const reference = referenceTo(request.model, checkpoint, request.init);
    return { checkpoint, reference, model, id: artifactId(reference, model), isArtifact: false };
  };
  return { checkpoint, target, finish };
}

export const openOrCompile = async (
  request: OpenRequest,
  machine: Machine,
  ui: Ui,
  targets: readonly AnyTarget[] = TARGET_RECORDS,
): Promise<OpenedModel> => beginOpening(request, machine, ui, targets).finish();

export const referenceTo = (path: string, checkpoint: Checkpoint, init: WeightInit): ModelReference => ({
  path,
  fingerprint: checkpoint.fingerprint(),
  init,
});

/** The checkpoint that an artifact names. */
function beginArtifact(dir: string, machine: Machine, targets: readonly AnyTarget[]): Opening {
  const named = readManifest(dir, targets);
  const checkpoint = openModel(named.model.path, named.model.init);
  const finish = async (): Promise<OpenedModel> => {
    const { manifest, model } = await loadArtifact(dir, machine, targets);
    const fingerprint = checkpoint.fingerprint();
    if (fingerprint !== manifest.model.fingerprint) {
      throw new UserError(
        `${dir}: the checkpoint ${manifest.model.path} has changed since it was compiled`,
        rebuild(dir, {
          model: manifest.model,
          arithmetic: model.arithmetic,
          target: model.target.option(model.device),
        }),
      );
    }
    const reference: ModelReference = { path: manifest.model.path, fingerprint, init: manifest.model.init };
    return { checkpoint, reference, model, id: artifactId(reference, model), isArtifact: true };
  };
  return { checkpoint, target: targetOf(named.target.kind, targets), finish };
}

/** Opens an artifact and the checkpoint it names, and checks that they still belong together. */
export const openArtifact = async (
  dir: string,
  machine: Machine,
  targets: readonly AnyTarget[] = TARGET_RECORDS,
): Promise<OpenedModel> => beginArtifact(dir, machine, targets).finish();

/** The commands that make what was opened at `path` for other targets. */
export const rebuildOpened = (path: string, { reference, model, isArtifact: isOne }: OpenedModel): Rebuild =>
  rebuildFor(isOne ? path : 'model.tw', reference, model.arithmetic);
