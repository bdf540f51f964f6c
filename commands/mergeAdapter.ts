/**
 * A checkpoint and an adapter → a checkpoint of the same model with the adapter in its weights: W + s·B·A, DoRA,
 * biases, whole modules. Sums are taken in float64 and rounded once. Tensors are read and written some rows at a time.
 */
import { CheckpointFolder, prepareFolder, storedTensors } from '../driver/quantize/tensors.js';
import type { Ui } from '../driver/requests.js';
import { UserError } from '../errors.js';
import { FORMATS, type FormatName } from '../ir/storage.js';
import { asChange, type TensorChange } from '../models/adapters/change.js';
import { openAdapter, type ResolvedAdapter } from '../models/adapters/open.js';
import { changedRows, rowsOf, stepOf } from '../models/adapters/values.js';
import { type Checkpoint, openCheckpoint } from '../models/checkpoint.js';
import { readConfig, textTensor } from '../models/config.js';
import { besideWeights } from '../models/contents.js';
import type { Json } from '../models/model/model.js';
import { isTurnedPart, type TensorPart, type WeightEntry, weightFormat } from '../models/model/tensors.js';
import { layOut } from '../models/weights/safetensors.js';
import { findGgufModel, readWeightFiles } from '../models/weights/weightFiles.js';
import { at } from '../system/at.js';
import { printPythonJson } from '../system/json.js';

export interface MergeAdapterRequest {
  /** Folder of a Hugging Face checkpoint. */
  readonly model: string;
  /** Folder of an adapter for it. */
  readonly adapter: string;
  /** Folder to write; nothing may be there. */
  readonly output: string;
  /** Element type of tensors that change. Default: as they are stored. */
  readonly dtype?: FormatName;
  readonly signal?: AbortSignal;
}

export interface MergeAdapterResult {
  readonly output: string;
  /** SHA-256 of what the adapter computes with. */
  readonly adapter: string;
  /** Tensors of the files with other values than before, and those that are as they were. */
  readonly changed: number;
  readonly kept: number;
  readonly bytes: number;
  readonly seconds: number;
}

/** The checkpoint, if an adapter can be merged into it. Throws UserError, one line. */
function openMergeable(path: string): Checkpoint {
  const others = 'name the folder of the 16-bit Hugging Face checkpoint, or give the adapter as it is: --adapter DIR';
  if (findGgufModel(path) !== undefined)
    throw new UserError(`${path}: adapters are not merged into GGUF files`, others);
  const checkpoint = openCheckpoint(path);
  if (checkpoint.quantized !== undefined)
    throw new UserError(`${path}: its weights are quantized: merged ones would have to be quantized again`, others);
  if (!checkpoint.configPath.endsWith('config.json'))
    throw new UserError(`${path}: has no config.json, which other tools need to read the result`, others);
  return checkpoint;
}

/** Rows of a stored tensor that a part has, from row `row` of the part on, as a place in the tensor's elements. */
type Put = (values: Float64Array, row: number, place: (element: number, from: Float64Array) => void) => void;

function putOf(part: TensorPart, columns: number): Put {
  if (!('stride' in part)) throw new Error(`${part.name}: columns of a matrix are none of a published model`);
  return (values, row, place) => {
    const count = values.length / columns;
    for (let i = 0; i < count;) {
      const own = row + i;
      const run = Math.min(count - i, part.rows - (own % part.rows));
      const there = part.first + Math.floor(own / part.rows) * part.stride + (own % part.rows);
      place(there * columns, values.subarray(i * columns, (i + run) * columns));
      i += run;
    }
  };
}

/** A tensor of the files that is written, with its parts by the names of the graph. */
interface Written extends Omit<WeightEntry, 'offset'> {
  readonly source?: { readonly file: string; readonly offset: number; readonly dtype: string };
  readonly parts: readonly TensorPart[];
}

/** What all is written: the base's tensors, and those that it lacks. */
function writtenTensors(
  checkpoint: Checkpoint,
  { model }: ResolvedAdapter,
  changes: ReadonlyMap<string, TensorChange>,
  dtype: FormatName | undefined,
): readonly Written[] {
  const stored = new Map(storedTensors(checkpoint).map((tensor) => [tensor.name, tensor]));
  const open = new Set(changes.keys());
  const whole = (name: string, rows: number): TensorPart => ({ name, first: 0, rows, stride: rows, count: 1 });
  const dropped = new Set(
    model.config.head === undefined || checkpoint.config.head !== undefined
      ? []
      : ['lm_head.weight', 'embed_out.weight'],
  );
  const kept = readWeightFiles(checkpoint.path).headers.flatMap(({ file, entries }) =>
    entries.flatMap((entry): Written[] => {
      const named = checkpoint.model.isWrapped === true ? textTensor(entry.name) : entry.name;
      if (named !== undefined && dropped.has(named)) return [];
      const { parts: own, partOf } = stored.get(named ?? '') ?? {};
      const rows = entry.shape[0] ?? 1;
      const parts = partOf === undefined ? (own ?? (named === undefined ? [] : [whole(named, rows)])) : [];
      const source = { file, offset: entry.offset, dtype: entry.dtype };
      const isChanged = parts.some(({ name }) => changes.has(name));
      for (const { name } of parts) open.delete(name);
      const { name, shape, byteLength } = entry;
      if (!isChanged) return [{ name, dtype: entry.dtype, shape, byteLength, source, parts: [] }];
      return [{ ...sized(name, shape, dtype ?? weightFormat(entry.dtype)!), source, parts }];
    }),
  );
  const plain = dtype ?? checkpoint.config.dtype;
  const alias = model.tied === undefined ? checkpoint.model.tied?.head : undefined;
  if (alias !== undefined && !changes.has(alias)) open.add(alias);
  const added = [...open].map((name): Written => {
    const shape = changes.get(name)?.shape ?? checkpoint.tensors.get(checkpoint.model.tied!.embedding)!.shape;
    return { ...sized(name, shape, plain), parts: [whole(name, at(shape, 0))] };
  });
  return [...kept, ...added];
}

const NAMES: Readonly<Record<FormatName, string>> = { f32: 'F32', f16: 'F16', bf16: 'BF16' };
const sized = (name: string, shape: readonly number[], format: FormatName): Omit<WeightEntry, 'offset'> => ({
  name,
  dtype: NAMES[format],
  shape,
  byteLength: FORMATS[format].bytes(
    1,
    shape.reduce((all, extent) => all * extent, 1),
  ),
});

/** config.json of the result. Throws UserError for a model that config.json has no words for. */
function configOf(checkpoint: Checkpoint, { model, path }: ResolvedAdapter): Json {
  const json = readConfig(checkpoint.configPath);
  const biases = (config: object): string => JSON.stringify((config as { biased?: unknown }).biased ?? []);
  if (biases(model.config) !== biases(checkpoint.config))
    throw new UserError(
      `${path}: its products have biases (lora_bias) where the model has none, which config.json cannot say`,
      'give the adapter as it is: --adapter DIR',
    );
  const untied = model.tied === undefined && checkpoint.model.tied !== undefined;
  const { head, architecture } = model.config;
  const classes = head !== undefined && checkpoint.config.head === undefined ? head.layers.at(-1)!.rows : undefined;
  const labels = Array.from({ length: classes ?? 0 }, (_, i) => `LABEL_${i}`);
  return {
    ...json,
    ...(untied ? { tie_word_embeddings: false } : {}),
    ...(classes === undefined
      ? {}
      : {
          architectures: [architecture],
          id2label: Object.fromEntries(labels.map((label, i) => [i, label])),
          label2id: Object.fromEntries(labels.map((label, i) => [label, i])),
        }),
  };
}

/** Writes one tensor: rows of its parts with what the adapter makes of them. */
function writeTensor(
  folder: CheckpointFolder,
  { parts }: Written,
  place: WeightEntry,
  checkpoint: Checkpoint,
  changes: ReadonlyMap<string, TensorChange>,
): void {
  const { encode, bytes } = FORMATS[weightFormat(place.dtype)!];
  const stored = place.shape.length === 1 ? 1 : at(place.shape, place.shape.length - 1);
  const write = (element: number, values: Float64Array): void =>
    folder.write({ offset: place.offset + bytes(1, element) }, encode(values));
  const { tied } = checkpoint.model;
  const valuesOf = ({ name }: TensorPart) => {
    const isTied = tied !== undefined && name === tied.head && !checkpoint.tensors.has(name);
    const from = isTied ? tied.embedding : name;
    const shape = checkpoint.tensors.get(from)?.shape ?? [];
    const change = changes.get(name) ?? { tensor: name, shape, from, begins: [] };
    const source = change.from === undefined ? undefined : checkpoint.tensors.get(change.from);
    const [rows, columns] = [at(change.shape, 0), change.shape[1] ?? 1];
    return { rows, columns, step: stepOf(columns), read: changedRows(change, source && rowsOf(source)) };
  };
  for (const part of parts) {
    if (isTurnedPart(part)) continue;
    const { rows, columns, step, read } = valuesOf(part);
    const put = putOf(part, columns);
    for (let first = 0; first < rows; first += step) put(read(first, Math.min(step, rows - first)), first, write);
  }
  // Columns of several matrices may take turns in the same rows of the file, which are written together.
  const turned = parts.filter(isTurnedPart);
  for (const first of new Set(turned.map((part) => part.first))) {
    const own = turned.filter((part) => part.first === first);
    const lines = new Float64Array(at(own, 0).columns * stored);
    for (const part of own) {
      const { rows, columns, step, read } = valuesOf(part);
      for (let row = 0; row < rows; row += step) {
        const count = Math.min(step, rows - row);
        const values = read(row, count);
        for (let i = 0; i < count; i++)
          for (let column = 0; column < columns; column++)
            lines[column * stored + part.from + (row + i) * (part.step ?? 1)] = values[i * columns + column]!;
      }
    }
    write(first * stored, lines);
  }
}

/** Vectors whose elements lie in several tensors of the files are not merged. */
function requireWhole(checkpoint: Checkpoint, changes: ReadonlyMap<string, TensorChange>): void {
  for (const { partOf } of storedTensors(checkpoint))
    if (partOf !== undefined && changes.has(partOf.name))
      throw new UserError(
        `${checkpoint.path}: adapters of ${partOf.name} are not merged`,
        'give the adapter as it is: --adapter DIR',
      );
}

/**
 * Writes a copy of a checkpoint with an adapter merged into it. Throws UserError, one line, for what cannot be merged
 * or written; rejects with the signal's reason. Nothing is left behind then.
 */
export async function mergeAdapter(request: MergeAdapterRequest, ui: Ui): Promise<MergeAdapterResult> {
  const begin = performance.now();
  const { model: path, adapter: dir, output, dtype, signal } = request;
  ui.phase('open model', path);
  prepareFolder(output);
  const checkpoint = openMergeable(path);
  const adapter = openAdapter(dir, checkpoint);
  for (const line of [...checkpoint.warnings, ...adapter.warnings]) ui.warn(line);
  const changes = new Map(adapter.changes);
  for (const product of adapter.products.values()) changes.set(product.tensor, asChange(product));
  const config = configOf(checkpoint, adapter);
  requireWhole(checkpoint, changes);
  const written = writtenTensors(checkpoint, adapter, changes, dtype);
  const layout = layOut(
    written.map(({ name, dtype: own, shape, byteLength }) => ({ name, dtype: own, shape, byteLength })),
  );
  const places = new Map(layout.entries.map((entry) => [entry.name, entry]));
  const folder = new CheckpointFolder(output, layout);
  let done = 0;
  try {
    ui.phase('merge', output);
    for (const tensor of written) {
      signal?.throwIfAborted();
      const place = places.get(tensor.name)!;
      if (tensor.parts.length > 0) writeTensor(folder, tensor, place, checkpoint, changes);
      else folder.copy(place, tensor.source!.file, tensor.source!);
      done += place.byteLength;
      ui.step(done / layout.sizeBytes, { done, total: layout.sizeBytes, unit: 'bytes' });
      // Signals and displays have their turn.
      await new Promise((resolve) => setImmediate(resolve));
    }
    ui.phase('write', output);
    folder.finish(new Map([['config.json', `${printPythonJson(config, 2)}\n`]]), besideWeights(checkpoint));
  } finally {
    folder.abandon();
  }
  const changed = written.filter(({ parts }) => parts.length > 0).length;
  return {
    output,
    adapter: adapter.hash,
    changed,
    kept: written.length - changed,
    bytes: layout.sizeBytes,
    seconds: (performance.now() - begin) / 1000,
  };
}
