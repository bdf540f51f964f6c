/**
 * Reads an artifact and checks everything that can be checked. Every file must have the hash that the manifest gives.
 * The plan must pass its schema and the kernel verifier, must be the one that the graph compiles to, and its schedules
 * must be legal. If the checkpoint is available, it must be the one that was compiled, and its configuration must
 * compile to the graph. Kernels are compiled again from the plan; the sources under kernels/ are for reading only.
 */
import { UserError } from '../../errors.js';
import { SCORE, STEP } from '../../ir/function.js';
import type { GraphModule } from '../../ir/graph/graph.js';
import { scoreOf } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { loadAddon } from '../../runtime/addon.js';
import { pathInside } from '../../system/inside.js';
import { readBounded } from '../../system/read.js';
import { checkAgainstGraph, checkPlan } from '../checkPlan.js';
import { cacheTokensOf, graphDigests, modelFunctions, printFunctions } from '../functions.js';
import { withCache } from '../target.js';
import type { Machine } from '../machine.js';
import { parsePlan } from '../planJson.js';
import { packedCode, type PackedCode } from '../targets/machineCode.js';
import { TARGET_RECORDS, type AnyTarget, type CompiledModel, type Target } from '../targets/index.js';
import { KERNELS, kindOf, readManifest, readPart, rebuild, sha256, type Manifest } from './manifest.js';

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
  /** What a command that rebuilds the artifact should compile. Default: the path in the manifest. */
  readonly path?: string;
}

/** Limit on a file of machine code, in bytes. All kernels of a large model take 3 MB. */
const MAX_CODE_BYTES = 64 << 20;

/** Reads and checks an artifact. Rejects with UserError, whose hint is the command that rebuilds it. */
export async function loadArtifact(
  dir: string,
  machine: Machine,
  { targets = TARGET_RECORDS, checkpoint, path }: LoadArtifactOptions = {},
): Promise<Artifact> {
  const manifest = readManifest(dir, targets);
  const target = kindOf(manifest.target.kind, targets)!;
  return loadAs(dir, manifest, target, machine, checkpoint, path ?? manifest.model.path);
}

/** The machine code of an artifact, not yet read. */
export function codeOf(
  dir: string,
  { manifest, again }: Pick<Artifact, 'manifest' | 'again'>,
  isTrusted: boolean,
): PackedCode {
  return packedCode(manifest.code, {
    isTrusted,
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
  { mask, cacheTokens, kvCache, logits, feeds }: Manifest,
  target: Target<S, D>,
  device: D,
  checkpoint: Checkpoint | undefined,
): Promise<GraphModule> {
  if (checkpoint === undefined) {
    // Imported here because the parser takes 0.3 s to load and is not needed if the checkpoint is available.
    const { parseModule } = await import('../../ir/graph/parser.js');
    const module = parseModule(text);
    for (const name of cacheTokens === undefined ? [SCORE] : [SCORE, STEP])
      if (!module.functions.some((each) => each.name === name)) throw new Error(`it has no function ${name}`);
    return module;
  }
  const options =
    cacheTokens === undefined ? { mask } : { mask, cacheTokens, logits: logits === true, feeds: feeds === true };
  const module = modelFunctions(checkpoint, withCache(target.numerics(device), kvCache), options);
  if (printFunctions(module) !== text)
    throw new Error('this is not the graph that the config.json of the checkpoint compiles to');
  return module;
}

async function loadAs<S, D>(
  dir: string,
  manifest: Manifest,
  target: Target<S, D>,
  machine: Machine,
  checkpoint: Checkpoint | undefined,
  path: string,
): Promise<Artifact> {
  const { arithmetic } = manifest.target;
  const source = { ...manifest.model, path };
  const { cacheTokens, kvCache, logits } = manifest;
  const known = { model: source, arithmetic, cacheTokens, kvCache, logits };
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
  const device = await check('', () => target.restore(manifest.target, machine));
  again = rebuild(dir, { ...known, target: target.option(device) });
  if (checkpoint !== undefined) requireSame(dir, manifest, checkpoint, again);
  const texts = { 'graph.tw': readPart(dir, 'graph.tw', again), 'plan.json': readPart(dir, 'plan.json', again) };
  for (const name of ['graph.tw', 'plan.json'] as const) {
    const actual = sha256(texts[name]);
    if (actual !== manifest.files[name])
      throw new UserError(
        `${dir}: ${name} has hash ${actual.slice(0, 12)}…, ` +
          `the manifest says ${manifest.files[name].slice(0, 12)}…: it was changed after it was compiled`,
        again,
      );
  }
  const plan = parsePlan(texts['plan.json'], `${dir}/plan.json`, again, target.scheduling.schema);
  await check('plan.json', () => {
    checkPlan(plan, (kernel, module, schedule) => target.scheduling.legality(kernel, module, schedule, device));
  });
  const module = await check('graph.tw', () => moduleIn(texts['graph.tw'], manifest, target, device, checkpoint));
  await check('graph.tw and plan.json', () => {
    if (cacheTokensOf({ plan }) !== cacheTokens)
      throw new Error(`it keeps keys and values of other than the ${cacheTokens ?? 0} tokens that the manifest says`);
    const most = tokensIn(scoreOf(plan).capacity);
    if (most !== (manifest.maxTokens ?? most))
      throw new Error(`its largest micro-batch has ${most} tokens, not the ${manifest.maxTokens} of the manifest`);
    checkAgainstGraph(plan, module, withCache(target.numerics(device), kvCache));
  });
  const { mask } = manifest;
  const graphs = graphDigests(module, texts['graph.tw']);
  const isa = target.label(device);
  const cache = kvCache === undefined ? {} : { kvCache };
  const model = { target, device, isa, arithmetic, ...cache, mask, graphText: texts['graph.tw'], graphs, plan };
  return { manifest, model, again };
}
