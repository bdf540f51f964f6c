/** Reads a folder or a GGUF file: the model that it describes, and the tensors that it holds. */
import { basename } from 'node:path';
import { defined } from '../system/defined.js';
import { UserError } from '../errors.js';
import { configPathOf, describeGgufModel, loadModel, readConfig } from './config.js';
import type { FormatName } from '../ir/storage.js';
import { quote } from '../system/json.js';
import type { Model } from './family/model.js';
import type { ShapeOf } from './family/tensors.js';
import type { WeightFile } from './family/weightFile.js';
import { readGgufFiles } from './gguf/files.js';
import { describeGguf } from './gguf/settings.js';
import { blockSchemes, ggufName, namedTensors } from './gguf/tensorNames.js';
import { partName } from './meta/partFiles.js';
import { mergeParts } from './meta/parts.js';
import type { StoredTensor } from './family/storedTensors.js';
import { readQuantization, type QuantizationConfig, type QuantizedTensors } from './quantized/index.js';
import { findTokenizer } from './tokenizers/files.js';
import { readWeightFiles } from './weightFiles.js';
import { withPrefix } from './baseModel.js';
import { textTensor } from './wrapper.js';

/** How quantized matrices are stored. */
export type QuantizedStorage = Pick<QuantizedTensors, 'schemes' | 'scales' | 'activations'>;

/** Where a checkpoint's model and weights are from. */
export interface CheckpointSource {
  readonly path: string;
  readonly configPath: string;
  /** What describes the model, for messages. */
  readonly describedBy: string;
  /** What to do where its weights are not those of the model. */
  readonly hint: string;
  /** The model, where its weights are of this type. */
  readonly model: (dtype?: FormatName) => Model;
  readonly headers: readonly WeightFile[];
  readonly found: ReadonlyMap<string, StoredTensor>;
  /** What says how modules are quantized, where several tensors store the matrix of one. */
  readonly quantization?: QuantizationConfig;
  /** Matrices of blocks, of which `found` has the places already. */
  readonly blocks?: QuantizedStorage;
  /** The name of a tensor in its file. */
  readonly show: (name: string) => string;
  /** What to say of files that nothing names. */
  readonly strays: () => string;
  readonly tokenizerPath: string | undefined;
}

const shown = (name: string): string => quote(name, 120).slice(1, -1);

/** Parts of a model as Meta publishes it carry no number of parts: nothing says that the last one is missing. */
const hintOf = (headers: readonly WeightFile[]): string =>
  headers.some(({ file }) => file.endsWith('.pth'))
    ? `if the model is published in more parts, download ${partName(headers.length)} and those behind it; ` +
      'else download params.json and the weights again'
    : 'compare config.json with the weights, or download both again from one revision';

/** The model of a folder. Throws UserError if it is not supported or its files cannot be read. */
export function folderSource(dir: string): CheckpointSource {
  const checked = loadModel(dir); // An unsupported architecture is reported before anything about its weights.
  const configPath = configPathOf(dir);
  const quantization = readQuantization(dir, readConfig(configPath), configPath);
  const { headers, strays, isInParts } = readWeightFiles(dir);
  return {
    path: dir,
    configPath,
    describedBy: basename(configPath),
    hint: hintOf(headers),
    model: (dtype) => (dtype === undefined ? checked : loadModel(dir, dtype)),
    headers,
    found: isInParts
      ? mergeParts(headers, shapesOf(checked))
      : withPrefix(tensorsOf(headers, checked.isWrapped === true), checked),
    ...defined({ quantization }),
    show: shown,
    strays,
    tokenizerPath: findTokenizer(dir),
  };
}

/** The model whose first GGUF file is `file`, which says all of it. Throws UserError as folderSource does. */
export function ggufSource(file: string): CheckpointSource {
  const headers = readGgufFiles(file);
  const { json, modules, ways } = describeGguf(headers);
  const found = namedTensors(headers, modules);
  const schemes = blockSchemes(found);
  return {
    path: file,
    configPath: file,
    describedBy: 'its metadata',
    hint: 'download the file again, or convert the model again with a current converter',
    // Where weights are quantized, those of the published checkpoint were not: nearly all are in bf16.
    model: (dtype = 'bf16') => describeGgufModel(json, file, dtype, ways),
    headers,
    found,
    ...(schemes.size === 0 ? {} : { blocks: { schemes, scales: new Map() } }),
    show: (name) => shown(ggufName(name, modules)),
    strays: () => '',
    tokenizerPath: file,
  };
}

/** The tensors of files that hold each tensor once, by the names of a model that may lie within a multimodal one. */
function tensorsOf(files: readonly WeightFile[], isWrapped: boolean): ReadonlyMap<string, StoredTensor> {
  const found = new Map<string, StoredTensor>();
  for (const { file, entries } of files)
    for (const entry of entries) {
      const name = isWrapped ? textTensor(entry.name) : entry.name;
      if (name === undefined) continue;
      if (isWrapped && found.has(name))
        throw new UserError(`${file}: two tensors are ${quote(name, 120)} of the language model`);
      found.set(name, { ...entry, file });
    }
  return found;
}

function shapesOf({ tensors }: Model): ShapeOf {
  const shapes = new Map(tensors.map(({ name, shape }) => [name, shape]));
  return (name) => shapes.get(name);
}
