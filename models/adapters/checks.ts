/** Whether an adapter's tensors are those that its configuration says, of modules that the model has. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import type { Model } from '../model/model.js';
import type { Collected, Owned } from './collect.js';
import { ADAPTER_HINT, type AdapterConfig } from './config.js';
import type { AdapterFile, AdapterTensor, Part } from './files.js';
import { type BaseModule, EXPERT_PARAMETERS } from './modules.js';
import type { Targets } from './targets.js';

/** An adapter's file and configuration, and the model that it is resolved for. */
export interface Resolution {
  readonly config: AdapterConfig;
  readonly file: AdapterFile;
  readonly targets: Targets;
  readonly model: Model;
  readonly modules: ReadonlyMap<string, BaseModule>;
  readonly collected: Collected;
}

/** Throws UserError: what is wrong with a tensor. */
export type Fail = (tensor: Pick<AdapterTensor, 'name'>, problem: string) => never;

/** Modules that PEFT saves for classifiers. */
export const CLASS_HEADS: readonly string[] = ['score', 'classifier'];

/** Whether an adapter has a module whole: one that contains it, or itself, ends in one of these names. */
function isSaved(path: string, names: readonly string[]): boolean {
  for (let end = path.length; end > 0; end = path.lastIndexOf('.', end - 1))
    if (names.some((name) => path.slice(0, end).endsWith(name))) return true;
  return false;
}

/** Throws UserError where a module's tensors are not those that the configuration says. */
export function checkParts(
  fail: Fail,
  { config, targets, model }: Resolution,
  { module, path, wrappers }: Owned,
  saved: readonly string[],
): void {
  const [parts, inner] = [wrappers[0]!, wrappers[1]];
  if (inner !== undefined) fail([...inner.values()][0] ?? [...parts.values()][0]!, 'it lies in two wrappers');
  const isTarget = targets.has(path) || targets.hasParameter(`${path}.weight`);
  const isWhole = isSaved(path, saved);
  const isEnd = module.kind === 'embedding' || module.kind === 'head';
  const isTable = module.kind === 'embedding' || module.kind === 'positions';
  const isTiedHead = config.keepsTie && module.kind === 'head' && model.tied !== undefined;
  const isProduct = parts.has('A') || parts.has('embeddingA');
  const problemOf = (part: Part): string | undefined => {
    switch (part) {
      case 'A':
      case 'B':
        if (module.kind === 'norm' || isTable) return 'its module has no such product';
        return isTarget || isTiedHead ? undefined : 'the config does not target its module';
      case 'embeddingA':
      case 'embeddingB':
        if (!isTable) return 'its module is no embedding';
        return isTarget ? undefined : 'the config does not target its module';
      case 'productBias':
        return config.hasProductBiases ? undefined : 'lora_bias is not set';
      case 'magnitude':
        return config.hasMagnitudes && isProduct ? undefined : 'use_dora is not set, or its product is missing';
      case 'tokens':
        return module.kind === 'embedding' || module.kind === 'head' ? undefined : 'its module has no rows of tokens';
      case 'weight':
        if (isProduct) return 'its module has a product as well';
        return isWhole || isEnd ? undefined : 'modules_to_save does not name its module';
      case 'baseWeight':
        return isEnd ? undefined : 'only embeddings and heads are saved beside their products';
      case 'bias':
      case 'baseBias':
        if (isWhole || config.biases === 'all' || isEnd) return undefined;
        return config.biases === 'lora_only' && isTarget ? undefined : `bias is "${config.biases}"`;
      default:
        return part satisfies never;
    }
  };
  for (const [part, tensor] of parts) {
    const problem = problemOf(part);
    if (problem !== undefined) fail(tensor, problem);
  }
  const [first] = parts.values();
  if (isProduct && config.hasMagnitudes && !parts.has('magnitude'))
    fail(first!, 'use_dora is set, and its module has no magnitudes');
  if (parts.has('A') && config.hasProductBiases && !parts.has('productBias'))
    fail(first!, 'lora_bias is set, and its module has no bias of B');
  if (isWhole && !isProduct && !(config.keepsTie && isEnd))
    for (const name of module.parameters.keys())
      if (!parts.has(name as Part)) fail(first!, `modules_to_save names its module, whose ${name} is missing`);
}

/** Throws UserError for a module that the configuration means and the file lacks. */
export function requireAll(of: Resolution, saved: readonly string[]): void {
  const { collected, targets, modules, config, model } = of;
  const lacks = (path: string, what: string): never => {
    throw new UserError(`${of.file.file}: no tensors of ${quote(path, 160)}, which ${what}`, ADAPTER_HINT);
  };
  const used = new Set<string>();
  for (const { path: own, kind, parameters } of modules.values()) {
    const path = collected.nameOf(own);
    const has = collected.owned.has(own);
    for (const name of saved) if (isSaved(path, [name])) used.add(name);
    // Mixtures have their modules under two names, of which a file has one; a tied head follows the embedding.
    const isTwice = kind === 'experts' || kind === 'expert' || kind === 'router';
    const follows = config.keepsTie && kind === 'head' && model.tied !== undefined;
    const isTarget =
      kind === 'experts'
        ? EXPERT_PARAMETERS.filter((name) => targets.hasParameter(`${path}.${name}`)).length > 0
        : kind !== 'norm' && targets.has(path);
    const isWide = config.targets === 'all linear' && (kind === 'head' || kind === 'embedding' || kind === 'positions');
    for (const name of parameters.keys())
      if (kind !== 'experts' && targets.hasParameter(`${path}.${name}`) && !has && !isTwice)
        lacks(path, 'target_parameters name');
    if (has || follows || isWide) continue;
    if (isTarget && (kind === 'experts' || !isTwice)) lacks(path, 'the config targets');
    if (!isTwice && isSaved(path, saved)) lacks(path, 'modules_to_save names');
  }
  const idle = config.saved.find((name) => !used.has(name) && !CLASS_HEADS.includes(name));
  if (idle !== undefined)
    throw new UserError(`${config.where}: modules_to_save: the model has no ${quote(idle, 120)}`, ADAPTER_HINT);
  for (const [name] of config.tokens) {
    const isKnown = [...collected.owned.values()].some(
      ({ path, module, wrappers }) =>
        wrappers[0]!.has('tokens') &&
        (name === undefined ? module.kind === 'embedding' : path === name || path.endsWith(`.${name}`)),
    );
    const isTiedHead =
      model.tied !== undefined && name !== undefined && `.${model.tied.head}`.endsWith(`.${name}.weight`);
    if (!isKnown && !isTiedHead) lacks(name ?? 'the embedding', 'trainable_token_indices name');
  }
  targets.requireMatched();
}
