/**
 * Reads an artifact and checks everything that can be checked. Every file must have the hash that the manifest gives.
 * The plan must pass its schema and the kernel verifier, must be the one that the graph compiles to, and its schedules
 * must be legal. If the checkpoint is available, it must be the one that was compiled, and its configuration must
 * compile to the graph. Kernels are compiled again from the plan; the sources under kernels/ are for reading only.
 *
 * If the user trusts it, and this program made it, nothing is planned: the plan must pass its schema and the kernel
 * verifier, and its machine code comes with it. What passed is kept in the cache of plans, so that files with the same
 * bytes need not be checked again.
 */
import { cacheTokensOf } from '../../ir/stepping.js';
import { existsSync, readdirSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { UserError } from '../../errors.js';
import { COPY, RESERVED_ROWS, SCORE, STEP } from '../../ir/function.js';
import type { GraphModule } from '../../ir/graph/graph.js';
import { type Plan, scoreOf, type SharedData } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { verifyContents } from '../../models/contents.js';
import { loadAddon } from '../../runtime/addon.js';
import { requireTensor } from '../../runtime/tensorSource.js';
import { defined } from '../../system/defined.js';
import { clipped, isDeeperThan, MAX_JSON_DEPTH } from '../../system/json.js';
import { pathInside, readBounded } from '../../system/read.js';
import { slotsOf } from '../adapters/slotsOf.js';
import { graphDigests, modelFunctions, openModel, printFunctions } from '../functions.js';
import { checkAgainstGraph, checkPlan, legalityOf } from '../plan.js';
import { withAdapters, withCache } from '../precision.js';
import { codeId, programId } from '../program.js';
import { stepTo, type Ui } from '../requests.js';
import type { Machine } from '../targets/cpuDevice.js';
import { type AnyTarget, type CompiledModel, type Target, TARGET_RECORDS } from '../targets/index.js';
import { type KernelFacts, packedCode, type PackedCode } from '../targets/machineCode.js';
import { checkFacts } from '../targets/printedKernels.js';
import type { ManifestFormat, TargetCompiler } from '../targets/target.js';
import { CHECKPOINT, KERNELS, kindOf, type Manifest, readManifest, readPart, rebuild, sha256 } from './manifest.js';
import { keepModel, planKey, printData, readModel, withCacheTokens } from './planCache.js';
import { parsePlan } from './planJson.js';

export interface Artifact {
  readonly manifest: Manifest;
  readonly model: CompiledModel;
  /** The command that rebuilds the artifact. */
  readonly again: string;
}

export interface LoadArtifactOptions {
  readonly targets?: readonly AnyTarget[];
  /** The checkpoint whose weights are to be used. If absent, the graph is checked by itself. */
  readonly checkpoint?: Checkpoint | undefined;
  /** Its plan and its machine code are taken as they are, where this program made them. */
  readonly trusts?: boolean;
  /** What a command that rebuilds the artifact should compile. Default: the path in the manifest. */
  readonly path?: string;
}

/** Limit on a file of machine code, in bytes. All kernels of a large model take 3 MB. */
const MAX_CODE_BYTES = 64 << 20;

/** Reads and checks an artifact. Rejects with UserError, whose hint is the command that rebuilds it. */
export async function loadArtifact(
  dir: string,
  machine: Machine,
  { targets = TARGET_RECORDS, checkpoint, path, trusts = false }: LoadArtifactOptions = {},
): Promise<Artifact> {
  const manifest = readManifest(dir, targets);
  const target = kindOf(manifest.target.kind, targets)!;
  return loadAs(dir, manifest, target, machine, { checkpoint, path: path ?? manifest.model.path, trusts });
}

/** The machine code of an artifact, not yet read. */
export function codeOf(dir: string, { manifest, model, again }: Artifact, isTrusted: boolean): PackedCode {
  return packedCode(manifest.code, {
    isTrusted,
    madeOf: model.known?.kernels?.sources,
    again,
    abi: loadAddon().abi,
    where: dir,
    readFile: (name) => readBounded(pathInside(dir, `${KERNELS}/${name}`, again), MAX_CODE_BYTES, again),
  });
}

function requireSame(dir: string, { model }: Manifest, checkpoint: Checkpoint, again: string): void {
  if (checkpoint.fingerprint() !== model.fingerprint)
    throw new UserError(
      `${dir}: the checkpoint ${checkpoint.path} is not the one that was compiled: it has changed since, or is another`,
      again,
    );
}

/** The module of the text. If there is a checkpoint, its functions must be the checkpoint's own. */
async function moduleIn<S, D>(
  text: string,
  { mask, cacheTokens, kvCache, logits, feeds, hidden }: Manifest,
  compiler: TargetCompiler<S, D>,
  device: D,
  checkpoint: Checkpoint | undefined,
): Promise<GraphModule> {
  if (checkpoint === undefined) {
    // Imported here because the parser takes 0.3 s to load and is not needed if the checkpoint is available.
    const { parseModule } = await import('../../ir/graph/parser.js');
    const module = parseModule(text);
    for (const name of cacheTokens === undefined ? [SCORE] : [SCORE, STEP, COPY])
      if (!module.functions.some((each) => each.name === name)) throw new Error(`it has no function ${name}`);
    return module;
  }
  const options =
    cacheTokens === undefined
      ? { mask }
      : { mask, cacheRows: RESERVED_ROWS, logits: logits === true, feeds: feeds === true, hidden: hidden === true };
  const module = modelFunctions(checkpoint, withCache(compiler.numerics(device), kvCache), options);
  if (printFunctions(module) !== text)
    throw new Error('this is not the graph that the config.json of the checkpoint compiles to');
  return module;
}

async function loadAs<S, D>(
  dir: string,
  manifest: Manifest,
  target: Target<S, D>,
  machine: Machine,
  { checkpoint, path, trusts }: Pick<Required<LoadArtifactOptions>, 'checkpoint' | 'path' | 'trusts'>,
): Promise<Artifact> {
  const { compiler } = target;
  const { arithmetic } = manifest.target;
  const source = { ...manifest.model, path };
  const { cacheTokens, kvCache, logits, adapters } = manifest;
  const known = { model: source, arithmetic, cacheTokens, kvCache, logits, adapters };
  let again = rebuild(dir, { ...known, target: target.name });
  const check = async <T>(name: string, run: () => T | Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      const where = name === '' ? dir : `${dir}: ${name}`;
      throw new UserError(`${where}: ${error instanceof Error ? error.message : String(error)}`, again, {
        cause: error,
      });
    }
  };
  const device = await check('', () => target.manifest.restore(manifest.target, machine));
  again = rebuild(dir, { ...known, target: target.manifest.option(device) });
  if (checkpoint !== undefined) requireSame(dir, manifest, checkpoint, again);
  const read = (name: keyof Manifest['files']): string => {
    const text = readPart(dir, name, again);
    const actual = sha256(text);
    const stated = manifest.files[name] ?? '';
    if (actual !== stated)
      throw new UserError(
        `${dir}: ${name} has hash ${actual.slice(0, 12)}…, ` +
          `the manifest says ${stated.slice(0, 12)}…: it was changed after it was compiled`,
        again,
      );
    return text;
  };
  const isDirect = trusts && manifest.program === codeId() && hasCode(manifest);
  const texts: ArtifactTexts = {
    graph: read('graph.tw'),
    plan: read('plan.json'),
    ...(isDirect ? { kernels: read('kernels.json') } : {}),
  };
  const key = checkedKey(manifest, target, device, isDirect ? undefined : checkpoint, isDirect);
  const kept = readModel(key, target);
  const requireTensors = (plan: Plan<S>): Promise<void> =>
    check('plan.json', () => {
      if (isDirect && checkpoint !== undefined) requireWeights(plan, checkpoint);
    });
  if (kept !== undefined) {
    await requireTensors(kept.plan);
    return { manifest, model: withCacheTokens(kept, cacheTokens), again };
  }
  const plan = parsePlan(texts.plan, `${dir}/plan.json`, again, compiler.scheduling.schema);
  const requireStated = (): void => {
    const keeps = cacheTokensOf({ plan }) !== undefined;
    if (keeps !== (cacheTokens !== undefined))
      throw new Error(`it keeps ${keeps ? '' : 'no '}keys and values, and the manifest says otherwise`);
    if (!isDeepStrictEqual(slotsOf(plan), adapters))
      throw new Error('its slots for adapters are not those of the manifest');
    const most = tokensIn(scoreOf(plan).capacity);
    if (most !== (manifest.maxTokens ?? most))
      throw new Error(`its largest micro-batch has ${most} tokens, not the ${manifest.maxTokens} of the manifest`);
  };
  const { mask } = manifest;
  const isa = compiler.label(device);
  const cache = kvCache === undefined ? {} : { kvCache };
  const limit = defined({ cacheTokens });
  const facts = { target, device, isa, arithmetic, ...limit, ...cache, mask, graphText: texts.graph, plan };
  if (texts.kernels !== undefined) {
    const kernels = await check('kernels.json', () => parseFacts(texts.kernels!, target.manifest));
    await check('plan.json', () => {
      checkPlan(plan);
      checkFacts(plan, kernels);
      requireStated();
    });
    await requireTensors(plan);
    const { 'graph.tw': all, 'plan.json': digest } = manifest.files;
    const graphs = { all, score: manifest.scoreGraph ?? all };
    return { manifest, model: keepModel(key, { ...facts, graphs, known: { plan, digest, kernels } }), again };
  }
  await check('plan.json', () => {
    checkPlan(plan, legalityOf(compiler.scheduling, device));
  });
  const module = await check('graph.tw', () => moduleIn(texts.graph, manifest, compiler, device, checkpoint));
  await check('graph.tw and plan.json', () => {
    requireStated();
    checkAgainstGraph(plan, module, withAdapters(withCache(compiler.numerics(device), kvCache), adapters));
  });
  return { manifest, model: keepModel(key, { ...facts, graphs: graphDigests(module, texts.graph) }), again };
}

/** The files of an artifact that say what is computed. */
interface ArtifactTexts {
  readonly graph: string;
  readonly plan: string;
  /** Only where its machine code is to be used as it is. */
  readonly kernels?: string;
}

const hasCode = ({ code, files, scoreGraph }: Manifest): boolean =>
  code !== undefined && files['kernels.json'] !== undefined && scoreGraph !== undefined;

/** Throws UserError where a weight of the plan reads a tensor that the checkpoint does not have, or has otherwise. */
function requireWeights({ weights, constants }: SharedData, { tensors }: Checkpoint): void {
  const own = new Set(constants.map(({ name }) => name));
  for (const { sources, k, scalesOf, columnScale, slots } of weights) {
    if (slots !== undefined) continue;
    const columns = scalesOf?.k ?? k;
    for (const { tensor, rows } of sources) if (!own.has(tensor)) requireTensor(tensors, tensor, rows, columns);
    if (columnScale !== undefined) requireTensor(tensors, columnScale, 1, columns);
  }
}

/** Throws an Error where the text is not what an artifact says of its kernels. */
function parseFacts<D>(text: string, format: Pick<ManifestFormat<D>, 'kernels'>): KernelFacts {
  if (isDeeperThan(text, MAX_JSON_DEPTH)) throw new Error(`is nested more than ${MAX_JSON_DEPTH} deep`);
  const parsed = format.kernels.safeParse(JSON.parse(text));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Error(
    issue === undefined ? 'is not what it should be' : clipped(`${issue.path.join('.')}: ${issue.message}`),
  );
}

/** Names the model of files that have passed: by all that the checks read. */
function checkedKey<S, D>(
  manifest: Manifest,
  target: Target<S, D>,
  device: D,
  checkpoint: Checkpoint | undefined,
  isDirect: boolean,
): string {
  const { target: described, mask, maxTokens, cacheTokens, kvCache, logits, feeds, hidden, adapters } = manifest;
  const { files, scoreGraph } = manifest;
  const model = checkpoint && planKey({ checkpoint, target, device, options: {} });
  const keeps = cacheTokens !== undefined;
  const stated = { described, mask, maxTokens, keeps, kvCache, logits, feeds, hidden, adapters, files, scoreGraph };
  return sha256(printData(['artifact', programId(), isDirect, target.name, device, model, stated]));
}

/** Folder of the checkpoint inside an artifact. Throws UserError if one of its files lies elsewhere. */
function packedCheckpoint(dir: string, again: string): string {
  const path = pathInside(dir, CHECKPOINT, again);
  const names = existsSync(path) ? readdirSync(path).filter((name) => !name.startsWith('.')) : [];
  for (const name of names) pathInside(dir, `${CHECKPOINT}/${name}`, again);
  return path;
}

/** The checkpoint of an artifact: packed inside it, at the path in the manifest, or at the path that the user gives. */
export const checkpointOf = (dir: string, manifest: Manifest, elsewhere: string | undefined): Checkpoint =>
  openModel(checkpointPath(dir, manifest, elsewhere), manifest.model.init);

/** The folder or file of that checkpoint. Throws UserError if it is not there. */
export function checkpointPath(
  dir: string,
  { model, target, cacheTokens, kvCache, logits, adapters }: Manifest,
  elsewhere: string | undefined,
): string {
  const { arithmetic, kind } = target;
  const again = rebuild(dir, { model, arithmetic, target: kind, cacheTokens, kvCache, logits, adapters });
  const path = elsewhere ?? (model.isPacked ? packedCheckpoint(dir, again) : model.path);
  if (!existsSync(path))
    throw new UserError(
      `${dir}: its checkpoint ${path} is not there`,
      model.isPacked ? again : 'say where it is now: --checkpoint DIR',
    );
  return path;
}

/**
 * Compares all bytes of the weights with those that were compiled. Throws UserError if they differ or no hashes exist.
 */
export async function verifyWeights(
  dir: string,
  { manifest: { model }, again }: Artifact,
  checkpoint: Checkpoint,
  ui: Pick<Ui, 'phase' | 'step'>,
  signal?: AbortSignal,
): Promise<void> {
  if (model.contents === undefined)
    throw new UserError(
      `${dir}: holds no hashes of all bytes of its weights to verify them by`,
      `${again} --hash-weights`,
    );
  ui.phase('verify weights');
  await verifyContents(checkpoint, model.contents, {
    signal,
    hint: again,
    onProgress: (done, total) => stepTo(ui, { done, total, unit: 'bytes' }),
  });
}
