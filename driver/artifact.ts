/**
 * The artifact folder name.tw/: manifest.json, graph.tw, plan.json, kernels/. Weights stay in the checkpoint, named by
 * path and fingerprint. Loading trusts nothing: every file must have the hash the manifest gives, the plan must pass
 * its schema and the kernel verifier and be the one that graph.tw compiles to (its schedules apart, which must be
 * legal), and machine code is always made anew from the plan (or found in this machine's cache); the sources under
 * kernels/ are for reading.
 */
import { createHash } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, openSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { diskProblem } from '../system/errno.js';
import { isRunning } from '../system/process.js';
import { decodeUtf8, readBounded } from '../system/read.js';
import { makeFolder, prepareOutput, writeAll } from '../system/write.js';
import { checkAgainstGraph, checkPlan } from './checkPlan.js';
import type { Machine } from './machine.js';
import { isArtifact, MANIFEST, type WeightInit } from './names.js';
import { parsePlan, printPlan } from './planJson.js';
import { ARITHMETICS, type Arithmetic } from './target.js';
import { TARGET_RECORDS, type AnyTarget, type CompiledModel, type Rebuild, type Target } from './targets/index.js';

/** Bump when the plan's meaning, the kernel ABI or the folder's layout changes. */
export const ARTIFACT_VERSION = 2;

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const hash = z.string().regex(/^[0-9a-f]{64}$/);

const manifestSchema = z.strictObject({
  format: z.literal('tilewright'),
  version: z.number().int(),
  target: z.looseObject({ kind: z.string().max(40), arithmetic: z.enum(ARITHMETICS) }),
  model: z.strictObject({
    path: z.string().max(4096),
    fingerprint: z.string().max(200),
    init: z.union([
      z.strictObject({ kind: z.literal('checkpoint') }),
      z.strictObject({ kind: z.literal('random'), seed: z.number().int().nonnegative() }),
    ]),
  }),
  tuned: z.boolean(),
  files: z.strictObject({ 'graph.tw': hash, 'plan.json': hash }),
});
export type Manifest = z.infer<typeof manifestSchema>;

export interface Artifact {
  readonly manifest: Manifest;
  readonly model: CompiledModel;
}

export interface ModelReference {
  readonly path: string;
  readonly fingerprint: string;
  readonly init: WeightInit;
}

/** Identity of what is computed: model, arithmetic and plan. Names journals and results. */
export const artifactId = (reference: ModelReference, model: CompiledModel): string =>
  sha256(
    JSON.stringify([
      ARTIFACT_VERSION,
      reference.fingerprint,
      reference.init,
      model.isa,
      model.arithmetic,
      sha256(model.graphText),
    ]),
  ).slice(0, 16);

function writeSynced(path: string, text: string): void {
  const file = openSync(path, 'wx');
  try {
    writeAll(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

const ANOTHER = 'free some space, or give another -o';

/**
 * Proves, before any work is done for it, that an artifact can be written to `dir`, and puts right what a process that
 * was killed while writing it left there. Throws UserError.
 */
export function prepareArtifact(dir: string): void {
  const target = resolve(dir);
  try {
    prepareOutput(dirname(target));
    for (const name of readdirSync(dirname(target))) {
      if (!name.startsWith(`${basename(target)}.`)) continue;
      const [, pid, kind] = /^\.(\d{1,10})\.(new|old)$/.exec(name.slice(basename(target).length)) ?? [];
      if (pid === undefined || isRunning(Number(pid))) continue;
      const left = join(dirname(target), name);
      // Killed between the two renames of saveArtifact: the one before is still the artifact.
      if (kind === 'old' && !existsSync(target)) renameSync(left, target);
      else rmSync(left, { recursive: true, force: true });
    }
  } catch (error) {
    throw error instanceof UserError
      ? new UserError(error.message, ANOTHER, { cause: error })
      : diskProblem(dir, error, ANOTHER);
  }
  if (existsSync(target) && !isArtifact(target))
    throw new UserError(`${dir}: is there already and is not an artifact`, 'give another -o');
}

/** Writes the folder beside its place and renames it: an artifact is there whole or not at all. */
export function saveArtifact(
  dir: string,
  reference: ModelReference,
  model: CompiledModel,
  sources: readonly { name: string; text: string }[],
  isTuned: boolean,
): void {
  const target = resolve(dir);
  const plan = printPlan(model.plan);
  const manifest: Manifest = {
    format: 'tilewright',
    version: ARTIFACT_VERSION,
    target: { ...model.target.describe(model.device) },
    model: { path: resolve(reference.path), fingerprint: reference.fingerprint, init: reference.init },
    tuned: isTuned,
    files: { 'graph.tw': sha256(model.graphText), 'plan.json': sha256(plan) },
  };
  const fresh = `${target}.${process.pid}.new`;
  const old = `${target}.${process.pid}.old`;
  try {
    makeFolder(dirname(target));
    rmSync(fresh, { recursive: true, force: true });
    makeFolder(join(fresh, 'kernels'));
    writeSynced(join(fresh, 'graph.tw'), model.graphText);
    writeSynced(join(fresh, 'plan.json'), plan);
    for (const source of sources) writeSynced(join(fresh, 'kernels', source.name), source.text);
    writeSynced(join(fresh, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`);
    if (existsSync(target)) renameSync(target, old);
    renameSync(fresh, target);
    rmSync(old, { recursive: true, force: true });
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    if (existsSync(old) && !existsSync(target)) renameSync(old, target);
    throw diskProblem(dir, error, ANOTHER);
  }
}

/**
 * The most that each file of an artifact may have, bytes. A layer takes 6 KB of the graph and at most 20 KB of the plan: a
 * model of 80 layers needs about a twentieth of this.
 */
const MAX_BYTES = { [MANIFEST]: 1 << 20, 'graph.tw': 8 << 20, 'plan.json': 32 << 20 } as const;

function readPart(dir: string, name: keyof typeof MAX_BYTES, again: string): string {
  const path = join(dir, name);
  return decodeUtf8(readBounded(path, MAX_BYTES[name], again), path, again);
}

/** A word as a POSIX shell reads it back: paths come from files. */
const word = (text: string): string => (/^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** What a command need not say. */
const DEFAULT_TARGET = 'cpu';

/** The command that makes the artifact anew, with the same arithmetic where that is known. */
export function rebuild(
  dir: string,
  known: {
    readonly model?: Pick<ModelReference, 'path'> & { readonly init?: WeightInit };
    /** As `--target` names it. */
    readonly target?: string;
    readonly arithmetic?: Arithmetic;
  } = {},
): string {
  const { arithmetic, target = DEFAULT_TARGET } = known;
  const isDefault = target === DEFAULT_TARGET;
  const model = known.model === undefined ? '<checkpoint>' : word(known.model.path);
  const init = known.model?.init?.kind === 'random' ? ` --init random:${known.model.init.seed}` : '';
  const precision =
    arithmetic === 'f32' || (!isDefault && arithmetic !== undefined) ? ` --precision ${arithmetic}` : '';
  return `tilewright compile ${model}${init}${isDefault ? '' : ` --target ${target}`}${precision} -o ${word(dir)}`;
}

/** The commands that make the artifact at `dir` for other targets. The default target chooses its own arithmetic. */
export const rebuildFor =
  (dir: string, model: Pick<ModelReference, 'path' | 'init'>, arithmetic: Arithmetic): Rebuild =>
  (target) =>
    rebuild(dir, { model, ...(target === DEFAULT_TARGET ? {} : { arithmetic, target }) });

/** Reads what an artifact is of, and nothing else of it. Throws UserError. */
export function readManifest(dir: string, targets: readonly AnyTarget[] = TARGET_RECORDS): Manifest {
  if (!statSync(dir).isDirectory()) throw new UserError(`${dir}: is not an artifact folder`, rebuild(dir));
  return parseManifest(dir, readPart(dir, MANIFEST, rebuild(dir)), targets);
}

/** Reads and checks an artifact. Rejects with UserError, which names the command that makes it anew. */
export async function loadArtifact(
  dir: string,
  machine: Machine,
  targets: readonly AnyTarget[] = TARGET_RECORDS,
): Promise<Artifact> {
  const manifest = readManifest(dir, targets);
  return { manifest, model: await loadModel(dir, manifest, kindOf(manifest.target.kind, targets)!, machine) };
}

async function loadModel<S, D>(
  dir: string,
  manifest: Manifest,
  target: Target<S, D>,
  machine: Machine,
): Promise<CompiledModel<S, D>> {
  const { arithmetic } = manifest.target;
  let again = rebuild(dir, { model: manifest.model, arithmetic, target: target.name });
  const check = <T>(name: string, run: () => T): T => {
    try {
      return run();
    } catch (error) {
      const where = name === '' ? dir : `${dir}: ${name}`;
      throw new UserError(`${where}: ${error instanceof Error ? error.message : String(error)}`, again, {
        cause: error,
      });
    }
  };
  const device = check('', () => target.restore(manifest.target, machine));
  again = rebuild(dir, { model: manifest.model, arithmetic, target: target.option(device) });
  const texts = { 'graph.tw': readPart(dir, 'graph.tw', again), 'plan.json': readPart(dir, 'plan.json', again) };
  for (const name of ['graph.tw', 'plan.json'] as const) {
    const actual = sha256(texts[name]);
    if (actual !== manifest.files[name])
      throw new UserError(
        `${dir}: ${name} has hash ${actual.slice(0, 12)}…, the manifest says ${manifest.files[name].slice(0, 12)}…: it was changed after it was compiled`,
        again,
      );
  }
  // Here, not above: only artifacts are parsed, and the parser takes 0.3 s to load.
  const { parseGraph } = await import('../ir/text/parser.js');
  const plan = parsePlan(texts['plan.json'], `${dir}/plan.json`, again, target.scheduling.schema);
  check('plan.json', () => {
    checkPlan(plan, (kernel, module, schedule) => target.scheduling.legality(kernel, module, schedule, device));
  });
  check('graph.tw and plan.json', () => {
    checkAgainstGraph(plan, parseGraph(texts['graph.tw']), target.numerics(device));
  });
  return { target, device, isa: target.label(device), arithmetic, graphText: texts['graph.tw'], plan };
}

const kindOf = (kind: string, targets: readonly AnyTarget[]): AnyTarget | undefined =>
  targets.find(({ name }) => name === kind);

/** What every version's manifest has had: enough to say which version it is and how to make the artifact anew. */
const anyVersion = z.looseObject({
  version: z.number(),
  model: z.looseObject({ path: z.string().max(4096) }).optional(),
});

function parseManifest(dir: string, text: string, targets: readonly AnyTarget[]): Manifest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new UserError(`${dir}: manifest.json is not JSON`, rebuild(dir));
  }
  const any = anyVersion.safeParse(json);
  const again = rebuild(dir, any.data?.model === undefined ? {} : { model: { path: any.data.model.path } });
  if (any.success && any.data.version !== ARTIFACT_VERSION)
    throw new UserError(
      `${dir}: made by artifact version ${any.data.version}; this tilewright reads ${ARTIFACT_VERSION}`,
      again,
    );
  const refuse = (path: readonly PropertyKey[], problem: string): UserError =>
    new UserError(`${dir}: manifest.json: ${[...path.map(String), ''].join('.').slice(0, -1)}: ${problem}`, again);
  const parsed = manifestSchema.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw refuse(issue?.path ?? [], issue?.message ?? 'not a manifest');
  }
  const { target } = parsed.data;
  const record = kindOf(target.kind, targets);
  if (record === undefined) throw refuse(['target', 'kind'], `there is no target ${JSON.stringify(target.kind)}`);
  const described = record.manifest.safeParse(target);
  if (!described.success) {
    const [issue] = described.error.issues;
    throw refuse(['target', ...(issue?.path ?? [])], issue?.message ?? `not a machine for ${record.name}`);
  }
  return parsed.data;
}
