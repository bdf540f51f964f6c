/** Which module of a model each tensor of an adapter's file belongs to. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { textTensor } from '../config.js';
import type { Model } from '../model/model.js';
import { ADAPTER_HINT } from './config.js';
import type { AdapterFile, AdapterTensor, Part } from './files.js';
import { type BaseModule, type Ends, endsOf } from './modules.js';

/** What an adapter has of a module. */
export interface Owned {
  readonly module: BaseModule;
  /** Path of the module in the file. */
  readonly path: string;
  /** Wrappers around one module, the outermost first, each with its tensors. */
  readonly wrappers: readonly Map<Part, AdapterTensor>[];
}

const INNER = /\.base_layer$/;

/**
 * What a model's path may be in a file: of a model without a head, or below a language model's own name. transformers 5
 * has one name for all heads.
 */
function pathsOf(path: string, { head }: Ends): readonly string[] {
  const text = textTensor(`${path}.weight`)?.replace(/\.weight$/, '');
  return [path, `model.${path}`, ...(text === undefined ? [] : [text]), ...(path === 'lm_head' ? [head] : [])];
}

export interface Collected {
  /** By path of the module in the model. */
  readonly owned: ReadonlyMap<string, Owned>;
  /** The path of a module in the words of the file. */
  readonly nameOf: (path: string) => string;
  /** Tensors of modules beside the language model of a multimodal one. */
  readonly beside: number;
}

/** Throws UserError for a tensor of no module of the model, and for two tensors of one. */
export function collect(
  { file, tensors }: AdapterFile,
  modules: ReadonlyMap<string, BaseModule>,
  model: Model,
): Collected {
  const owned = new Map<string, { module: BaseModule; path: string; wrappers: Map<Part, AdapterTensor>[] }>();
  const ends = endsOf(model);
  let beside = 0;
  let renamed: readonly [from: string, to: string] = ['', ''];
  for (const tensor of tensors) {
    let raw = tensor.path;
    let depth = 0;
    for (; INNER.test(raw); depth++) raw = raw.replace(INNER, '');
    const module = pathsOf(raw, ends)
      .map((path) => modules.get(path))
      .find((found) => found !== undefined);
    if (module === undefined) {
      if (model.isWrapped === true && textTensor(`${raw}.weight`) === undefined) {
        beside++;
        continue;
      }
      if (model.isIgnored(`${raw}.${tensor.part}`)) continue;
      throw new UserError(`${file}: tensor ${quote(tensor.name, 160)}: the model has no such module`, ADAPTER_HINT);
    }
    const own = owned.get(module.path) ?? { module, path: raw, wrappers: [] };
    owned.set(module.path, own);
    while (own.wrappers.length <= depth) own.wrappers.push(new Map());
    const parts = own.wrappers[depth]!;
    if (parts.has(tensor.part) || own.path !== raw)
      throw new UserError(`${file}: tensor ${quote(tensor.name, 160)}: a second one of its module`, ADAPTER_HINT);
    parts.set(tensor.part, tensor);
    if (raw !== module.path && /\.\d+\./.test(raw)) renamed = prefixesOf(module.path, raw);
  }
  const [from, to] = renamed;
  const head = owned.get(ends.head)?.path ?? ends.head;
  const nameOf = (path: string): string =>
    path === ends.head ? head : path.startsWith(from) ? to + path.slice(from.length) : path;
  return { owned, beside, nameOf };
}

/** The beginnings in which two paths of one module differ. */
function prefixesOf(path: string, other: string): readonly [string, string] {
  let same = 0;
  while (same < Math.min(path.length, other.length) && path.at(-1 - same) === other.at(-1 - same)) same++;
  return [path.slice(0, path.length - same), other.slice(0, other.length - same)];
}
