/** Writes an artifact: the whole folder under a temporary name, synced to disk and then renamed. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { DRAFT } from '../../ir/function.js';
import { scoreOf } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { cacheTokensOf, takesLastTokens } from '../../ir/stepping.js';
import { loadAddon } from '../../runtime/addon.js';
import { defined } from '../../system/defined.js';
import { digestFile } from '../../system/digest.js';
import { codeOf, diskProblem, hasEnded, PROCESS_MARK, processMark, quoteForShell } from '../../system/process.js';
import { fileSize, pathInside } from '../../system/read.js';
import { makeFolder, prepareOutput, syncFolder } from '../../system/write.js';
import { slotsOf } from '../adapters/slotsOf.js';
import { choosesFromLogits, returnsHidden } from '../functions.js';
import { isArtifact, MANIFEST } from '../names.js';
import { codeId } from '../program.js';
import { recordOf, type StoredCode } from '../targets/machineCode.js';
import { factsToSave } from '../targets/printedKernels.js';
import type { CompiledModel, MachineCode } from '../targets/target.js';
import { ARTIFACT_VERSION, CHECKPOINT, KERNELS, type Manifest, type ModelReference, sha256 } from './manifest.js';
import { printPlan } from './planJson.js';

export interface ArtifactParts {
  readonly reference: ModelReference;
  readonly model: CompiledModel;
  readonly kernels: Pick<MachineCode, 'sources' | 'code' | 'facts'>;
  /** Machine code of an earlier artifact with the same schedules, if `kernels` has none. */
  readonly stored?: StoredCode | undefined;
  readonly isTuned: boolean;
  /**
   * Copies the checkpoint into the empty folder `dir` and returns the digests of its weights. If absent, the checkpoint
   * stays where it is.
   */
  readonly pack?: ((dir: string) => Promise<ModelReference['contents']>) | undefined;
}

function writeSynced(path: string, content: string | Uint8Array): void {
  const bytes = Buffer.from(content);
  const file = openSync(path, 'wx');
  try {
    for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at, bytes.length - at);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

const ANOTHER = 'free some space, or give another -o';

const UNFINISHED = new RegExp(`^\\.(${PROCESS_MARK})\\.(new|old)$`);

/**
 * Proves, before any work is done, that an artifact can be written to `dir`, and repairs what a process that was killed
 * while writing left there. Throws UserError.
 */
export function prepareArtifact(dir: string): void {
  const target = resolve(dir);
  try {
    prepareOutput(dirname(target));
    for (const name of readdirSync(dirname(target))) {
      if (!name.startsWith(`${basename(target)}.`)) continue;
      const [, mark, kind] = UNFINISHED.exec(name.slice(basename(target).length)) ?? [];
      if (mark === undefined || !hasEnded(mark)) continue;
      const left = join(dirname(target), name);
      // The process was killed between the two renames of saveArtifact: the earlier artifact is still the valid one.
      if (kind === 'old' && !existsSync(target)) renameSync(left, target);
      else rmSync(left, { recursive: true, force: true });
    }
  } catch (error) {
    throw error instanceof UserError
      ? new UserError(error.message, ANOTHER, { cause: error })
      : diskProblem(dir, error, ANOTHER);
  }
  const isThere = existsSync(target);
  if (!isThere && lstatSync(target, { throwIfNoEntry: false }) !== undefined)
    throw new UserError(`${dir}: is a link to nothing`, `remove it: rm ${quoteForShell(dir)}`);
  if (isThere && !isArtifact(target))
    throw new UserError(`${dir}: is there already and is not an artifact`, 'give another -o');
}

function writeKernels(
  dir: string,
  { sources }: Pick<MachineCode, 'sources'>,
  { files }: Pick<StoredCode, 'files'>,
): void {
  makeFolder(dir);
  // Headers lie in folders, as units include them.
  const folders = new Set(sources.map(({ name }) => dirname(name)).filter((folder) => folder !== '.'));
  for (const folder of folders) makeFolder(join(dir, folder));
  for (const { name, text } of sources) writeSynced(join(dir, name), text);
  for (const folder of folders) syncFolder(join(dir, folder));
  for (const { name, bytes } of files) writeSynced(join(dir, name), bytes);
  syncFolder(dir);
}

async function packInto(dir: string, pack: NonNullable<ArtifactParts['pack']>): Promise<ModelReference['contents']> {
  makeFolder(dir);
  const contents = await pack(dir);
  syncFolder(dir);
  return contents;
}

/** Writes the artifact as a whole or not at all. */
export async function saveArtifact(
  dir: string,
  { reference, model, kernels, stored, isTuned, pack }: ArtifactParts,
): Promise<void> {
  if (model.plan.functions.some((fn) => fn.interface.name === DRAFT))
    throw new UserError(`${dir}: an artifact holds no draft`, 'compile the model without one');
  const { code, facts } = kernels;
  const own = code === undefined ? stored : { record: recordOf(code, loadAddon().abi), files: code.files };
  const target = resolve(dir);
  const plan = printPlan(model.plan);
  const known = own === undefined || facts === undefined ? undefined : factsToSave(facts, own.record.sources);
  const knownText = known && `${JSON.stringify(known)}\n`;
  const cacheTokens = cacheTokensOf(model);
  const fresh = `${target}.${processMark()}.new`;
  const old = `${target}.${processMark()}.old`;
  try {
    makeFolder(dirname(target));
    rmSync(fresh, { recursive: true, force: true });
    makeFolder(fresh);
    writeSynced(join(fresh, 'graph.tw'), model.graphText);
    writeSynced(join(fresh, 'plan.json'), plan);
    if (knownText !== undefined) writeSynced(join(fresh, 'kernels.json'), knownText);
    writeKernels(join(fresh, KERNELS), kernels, own ?? { files: [] });
    const packed = pack === undefined ? undefined : await packInto(join(fresh, CHECKPOINT), pack);
    const { tokenizer, contents = packed } = reference;
    const manifest: Manifest = {
      format: 'tilewright',
      version: ARTIFACT_VERSION,
      target: { ...model.target.manifest.describe(model.device) },
      mask: model.mask,
      maxTokens: tokensIn(scoreOf(model.plan).capacity),
      ...defined({ cacheTokens, kvCache: model.kvCache }),
      ...(choosesFromLogits(model) ? { logits: true } : {}),
      ...(takesLastTokens(model.plan) ? { feeds: true } : {}),
      ...(returnsHidden(model) ? { hidden: true } : {}),
      ...defined({ adapters: slotsOf(model.plan) }),
      model: {
        path: resolve(reference.path),
        isPacked: pack !== undefined,
        fingerprint: reference.fingerprint,
        init: reference.init,
        ...defined({ tokenizer }),
        ...defined({ contents: contents && { ...contents } }),
      },
      tuned: isTuned,
      scoreGraph: model.graphs.score,
      program: codeId(),
      files: {
        'graph.tw': model.graphs.all,
        'plan.json': sha256(plan),
        ...defined({ 'kernels.json': knownText === undefined ? undefined : sha256(knownText) }),
      },
      ...defined({ code: own && { ...own.record, files: { ...own.record.files } } }),
    };
    writeSynced(join(fresh, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`);
    syncFolder(fresh);
    if (existsSync(target)) renameSync(target, old);
    renameSync(fresh, target);
    syncFolder(dirname(target));
    rmSync(old, { recursive: true, force: true });
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    if (existsSync(old) && !existsSync(target)) renameSync(old, target);
    if (error instanceof UserError || codeOf(error) === '') throw error;
    throw diskProblem(dir, error, ANOTHER);
  }
}

/**
 * Puts the checkpoint of the artifact `from` into the folder `dir` of its successor. The two may be hard links to one
 * file: the earlier artifact is removed once the new one is in place.
 */
export async function keepCheckpoint(from: string, dir: string): Promise<void> {
  for (const name of readdirSync(join(from, CHECKPOINT))) {
    const path = pathInside(from, `${CHECKPOINT}/${name}`);
    try {
      linkSync(path, join(dir, name));
    } catch {
      await digestFile(path, { sizeBytes: fileSize(path) ?? 0, copyTo: join(dir, name) });
    }
  }
}
