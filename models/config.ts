/**
 * The model that a config.json describes: its family, the text_config of a multimodal model, and a head that is tied to
 * the embeddings.
 */
import { dirname, join } from 'node:path';
import { UserError } from '../errors.js';
import type { FormatName } from '../ir/storage.js';
import { defined } from '../system/defined.js';
import { isGiven, isRecord, quote } from '../system/json.js';
import { fileSize, readInto, readJsonObject, withFile } from '../system/read.js';
import { classOf, findArchitecture, unsupported } from './families/registry.js';
import type { HeadRecord } from './heads/head.js';
import type { Architecture, Json, Model, StoredWays } from './model/model.js';
import {
  besideSteps,
  FAMILIES_HINT,
  otherKind,
  refuseDraft,
  refuseOtherFolder,
  requireWholeModel,
} from './model/refusals.js';
import { type ShapeOf, type StoredTensor, weightFormat, type WholeTensor } from './model/tensors.js';
import { configOfParams, countParts, FIRST_PART, inParamsWords, isMetaParams, meta } from './weights/meta.js';
import { readTorchFile } from './weights/stateDict.js';

// Multimodal models, whose config.json holds that of a language model as `text_config`. Only that part is read: texts
// without pictures or sound are those of the language model alone.

/** Keys that the outer file may have for both. */
const SHARED_KEYS = [
  'tie_word_embeddings',
  'dtype',
  'torch_dtype',
  'bos_token_id',
  'eos_token_id',
  'quantization_config',
] as const;

/**
 * The language model's own config.json inside that of a multimodal model; undefined if there is none. A key that only
 * the outer file has, such as the element type, holds for both. Throws UserError.
 */
export function textConfig(json: Json, where: string): Json | undefined {
  const text = json['text_config'] ?? flatText(json);
  if (!isGiven(text)) return undefined;
  if (!isRecord(text)) throw new UserError(`${where}: text_config: expected an object, got ${quote(text)}`);
  const outer = SHARED_KEYS.filter((key) => !isGiven(text[key]) && isGiven(json[key])).map((key) => [key, json[key]]);
  return withPlainPositions({ ...text, ...(Object.fromEntries(outer) as Json) });
}

/** Models whose positions have parts for time, height and width, which are one number in texts; and their families. */
const PICTURED: Readonly<Record<string, string>> = {
  qwen2_vl: 'qwen2',
  qwen2_vl_text: 'qwen2',
  qwen2_5_vl: 'qwen2',
  qwen2_5_vl_text: 'qwen2',
  qwen3_vl_text: 'qwen3',
  qwen3_vl_moe_text: 'qwen3_moe',
};

const familyOf = ({ model_type: type }: Json): string | undefined =>
  typeof type === 'string' && Object.hasOwn(PICTURED, type) ? PICTURED[type] : undefined;

/** Files of transformers 4, which have the keys of texts beside `vision_config`. */
const flatText = (json: Json): Json | undefined =>
  familyOf(json) !== undefined && isRecord(json['vision_config'])
    ? Object.fromEntries(Object.entries(json).filter(([key]) => key !== 'architectures' && key !== 'vision_config'))
    : undefined;

/** The text model of pictures as one of its family, whose rotary settings say nothing of sections. */
function withPlainPositions(text: Json): Json {
  const family = familyOf(text);
  if (family === undefined) return text;
  const { architectures, ...others } = text;
  const plain = ['rope_scaling', 'rope_parameters'].flatMap((key) => {
    const stated = text[key];
    if (!isRecord(stated)) return [];
    const { mrope_section, mrope_interleaved, ...own } = stated;
    const types = ['type', 'rope_type'].flatMap((name) => (own[name] === 'mrope' ? [[name, 'default'] as const] : []));
    return [[key, { ...own, ...Object.fromEntries(types) }] as const];
  });
  return { ...others, ...Object.fromEntries(plain), model_type: family };
}

/** Modules beside the language model. */
const OTHER_MODULES =
  /^(?:model\.)?(?:vision_tower|vision_model|visual|multi_modal_projector|mm_projector|audio_tower|embed_vision)\./;

/**
 * The name of a tensor in the language model alone; undefined for one of another module. Older files put the whole
 * model below `language_model`, newer ones what is below `model`.
 */
export function textTensor(name: string): string | undefined {
  if (OTHER_MODULES.test(name)) return undefined;
  if (name.startsWith('language_model.')) return name.slice('language_model.'.length);
  return name.startsWith('model.language_model.') ? `model.${name.slice('model.language_model.'.length)}` : name;
}

// The model that config.json of a Hugging Face checkpoint describes, or params.json of one as Meta publishes it.

const CONFIG_BYTES = 1 << 20;
const WANTED = 'give the folder of a Hugging Face checkpoint: config.json and *.safetensors';
const OTHER_SETTING = `${FAMILIES_HINT}; if config.json is damaged, download it again`;

/**
 * The model that a parsed config.json or params.json describes, or the language model of a multimodal one. `where` (its
 * path) starts every message. `fallbackDType` is the element type of the weights if the file names none. `rows`: those
 * of the embedding table, for a params.json that leaves them to the tokenizer. Throws UserError, one line.
 */
export function describeModel(json: unknown, where: string, fallbackDType: FormatName = 'f32', rows?: number): Model {
  if (!isRecord(json)) throw new UserError(`${where}: expected a JSON object, got ${quote(json)}`);
  if (isMetaParams(json)) return describeMeta(json, where, fallbackDType, rows);
  refuseDraft(json, where);
  const text = textConfig(json, where);
  if (text !== undefined) return describeWrapped(json, text, where, fallbackDType);
  const { family, note, headless, head } = findArchitecture(json, where);
  if (head !== undefined) return describeClasses(family, head, json, where, fallbackDType);
  const model = family.describe(json, where, fallbackDType);
  if (headless !== undefined && model.tied === undefined)
    throw new UserError(
      `${where}: architecture ${quote(headless)} is a model without a head, as models for embeddings are, ` +
        'and tie_word_embeddings does not say that its embeddings are one',
      FAMILIES_HINT,
    );
  return { ...model, ...defined({ note, headless }) };
}

/** A family's model with a head of classes. How many they are, its weights may say. */
function describeClasses(
  family: Architecture,
  { kind, layers }: HeadRecord,
  json: Json,
  where: string,
  fallbackDType: FormatName,
): Model {
  const architecture = String(classOf(json));
  const { hiddenSize: hidden } = family.describe(json, where, fallbackDType).config;
  const withHead = (shapeOf: ShapeOf): Model =>
    family.describe(
      json,
      where,
      fallbackDType,
      {},
      {
        architecture,
        head: { kind, layers: layers({ json, hidden, shapeOf }) },
      },
    );
  return { ...withHead(() => undefined), withHead };
}

/** The language model of a multimodal one, whose own class is not that of a language model. */
function describeWrapped(json: Json, text: Json, where: string, fallbackDType: FormatName): Model {
  const kind = otherKind(json['model_type'], classOf(json));
  if (kind !== undefined && kind.wrapsOne !== true) throw unsupported(json, where);
  requireWholeModel(json, where);
  const place = `${where}: text_config`;
  const { family, note } = findArchitecture(text, place, true);
  const model = wrapped(family.describe({ ...family.textDefaults, ...text }, place, fallbackDType));
  return note === undefined ? model : { ...model, note };
}

function describeMeta(json: Json, where: string, fallbackDType: FormatName, rows: number | undefined): Model {
  try {
    return meta.describe(configOfParams(json, where, rows), where, fallbackDType);
  } catch (error) {
    if (!(error instanceof UserError) || !error.message.startsWith(where)) throw error;
    const problem = error.message.slice(where.length);
    throw new UserError(`${where}${inParamsWords(problem)}`, error.hint, { cause: error });
  }
}

const wrapped = ({ tied, withBiases, ...model }: Model): Model => ({
  ...model,
  summary: `the language model of a multimodal one, ${model.summary}`,
  isWrapped: true,
  ...defined({
    tied: tied && { ...tied, untied: () => wrapped(tied.untied()) },
    withBiases:
      withBiases &&
      ((modules: readonly string[]) => {
        const biased = withBiases(modules);
        return biased && wrapped(biased);
      }),
  }),
});

/** The model that the metadata of a GGUF file describes, in the words of config.json. Throws UserError, one line. */
export const describeGgufModel = (json: Json, where: string, fallbackDType: FormatName, ways: StoredWays): Model =>
  findArchitecture(json, where).family.describe(json, where, fallbackDType, ways);

/** The JSON of the file at `path`. Throws UserError. */
export const readConfig = (path: string): Json => readJsonObject(path, CONFIG_BYTES, WANTED).value;

/** The model of the file at `path`. Throws UserError if the file is missing or the model is not supported. */
export function readModel(path: string, fallbackDType?: FormatName): Model {
  const value = readConfig(path);
  try {
    const rows =
      isMetaParams(value) && value['vocab_size'] === -1 ? embeddingRows(dirname(path), value['dim']) : undefined;
    return besideSteps(dirname(path), describeModel(value, path, fallbackDType, rows));
  } catch (error) {
    throw error instanceof UserError && error.hint === undefined
      ? new UserError(error.message, OTHER_SETTING, { cause: error })
      : error;
  }
}

/**
 * Rows of the embedding table in a folder as Meta publishes it; undefined if there are no weights. Of a model in parts,
 * each has some columns of it, or some rows.
 */
function embeddingRows(dir: string, hidden: unknown): number | undefined {
  const path = join(dir, FIRST_PART);
  if (fileSize(path) === undefined) return undefined;
  const shape = readTorchFile(path).entries.find(({ name }) => name === 'tok_embeddings.weight')?.shape;
  return shape?.[1] === hidden && shape?.[0] !== undefined ? shape[0] * countParts(dir) : shape?.[0];
}

/** The file that describes the model in `dir`: params.json only if there is no config.json. */
export function configPathOf(dir: string): string {
  const [config, params] = [join(dir, 'config.json'), join(dir, 'params.json')];
  return fileSize(config) === undefined && fileSize(params) !== undefined ? params : config;
}

/**
 * The model of the checkpoint folder `dir`. Throws UserError if it has no description or the model is not supported.
 */
export function loadModel(dir: string, fallbackDType?: FormatName): Model {
  const path = configPathOf(dir);
  refuseOtherFolder(dir, path);
  return readModel(path, fallbackDType);
}

// Checkpoints of a model without its head, as `LlamaModel.save_pretrained` writes them: names lack the prefix that the
// whole model has for it, such as `model.`.

const moduleOf = (name: string): string => name.slice(0, name.indexOf('.') + 1);

/** `found` by the names of the whole model, if no name has the prefix of its first tensor, the embeddings. */
export function withPrefix<T>(
  found: ReadonlyMap<string, T>,
  { tensors, tied }: Pick<Model, 'tensors' | 'tied'>,
): ReadonlyMap<string, T> {
  const prefix = moduleOf(tensors[0]?.name ?? '');
  const beside = new Set([...tensors.map(({ name }) => name), tied?.head ?? ''].map(moduleOf));
  if ([...found.keys()].some((name) => name.startsWith(prefix))) return found;
  return new Map([...found].map(([name, tensor]) => [beside.has(moduleOf(name)) ? name : prefix + name, tensor]));
}

// Models whose configuration says that the head is the embedding table, beside what the weights hold: as transformers
// does, a head in the files that differs from the table is used, and a table that is missing is the head.

/** Bytes of each tensor that are compared at once. */
const CHUNK_BYTES = 1 << 20;

export interface SettledHead {
  /** The tensors of the files; the head under the name of the table where there is no table. */
  readonly found: ReadonlyMap<string, StoredTensor>;
  /** True if the model is tied by its configuration and has a head of its own in the files. */
  readonly isOwn: boolean;
}

/** Compares bytes from the start on, and stops at the first chunk that differs. */
function haveSameBytes(a: WholeTensor, b: WholeTensor): boolean {
  if (a.byteLength !== b.byteLength) return false;
  if (a.file === b.file && a.offset === b.offset) return true; // torch.save stores shared memory once.
  return withFile(a.file, (left) =>
    withFile(b.file, (right) => {
      const [own, other] = [Buffer.alloc(CHUNK_BYTES), Buffer.alloc(CHUNK_BYTES)];
      for (let at = 0; at < a.byteLength; at += CHUNK_BYTES) {
        const size = Math.min(CHUNK_BYTES, a.byteLength - at);
        const chunk = readInto(left, a.offset + at, own.subarray(0, size));
        if (!chunk.equals(readInto(right, b.offset + at, other.subarray(0, size)))) return false;
      }
      return true;
    }),
  );
}

const isFloats = (stored: StoredTensor): stored is WholeTensor =>
  'file' in stored && weightFormat(stored.dtype) !== undefined;

/** Whether two tensors are the same floats, stored the same way. */
const areEqual = (a: StoredTensor, b: StoredTensor): boolean =>
  isFloats(a) && isFloats(b) && a.dtype === b.dtype && a.shape.join() === b.shape.join() && haveSameBytes(a, b);

/**
 * What the head of a model is among the tensors `found`. `isQuantized`: modules may be stored as other tensors than
 * `weight`; a head that is stored so is not the table. Reads both tensors where the files hold both.
 */
export function settleHead(
  { tied }: Pick<Model, 'tied'>,
  found: ReadonlyMap<string, StoredTensor>,
  isQuantized: boolean,
): SettledHead {
  if (tied === undefined) return { found, isOwn: false };
  const table = found.get(tied.embedding);
  const head = found.get(tied.head);
  const module = tied.head.replace(/weight$/, '');
  const isPart = (name: string): boolean => name.startsWith(module) && name !== tied.head && name !== `${module}bias`;
  if (isQuantized && [...found.keys()].some(isPart)) return { found, isOwn: true };
  if (head === undefined) return { found, isOwn: false };
  if (table !== undefined) return { found, isOwn: !areEqual(table, head) };
  return { found: new Map([...found, [tied.embedding, head]]), isOwn: false };
}
