/** The tensors of the checkpoint that is written: where each lies in its file, and where its bytes are from. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UsageError, UserError } from '../../errors.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { textTensor } from '../../models/config.js';
import { besideWeights } from '../../models/contents.js';
import type { Json } from '../../models/model/model.js';
import {
  type ExpectedTensor,
  placesOf,
  type StoredTensor,
  type TensorLocation,
  type WeightEntry,
} from '../../models/model/tensors.js';
import { quantizedTensors, readMethod } from '../../models/quantized/index.js';
import { gptqBytes, type GptqCodes, type GptqSettings, gptqTensors } from '../../models/quantized/packed.js';
import { layOut, type SafetensorsLayout } from '../../models/weights/safetensors.js';
import { readWeightFiles } from '../../models/weights/weightFiles.js';
import { codeOf } from '../../system/process.js';
import { bytes } from '../../system/text.js';
import { printPythonJson } from '../../system/json.js';
import { diskProblem, hasEnded, PROCESS_MARK, processMark } from '../../system/process.js';
import { readRange, withFile } from '../../system/read.js';
import { makeFolder, prepareOutput, syncFolder } from '../../system/write.js';
import { tensorValues } from '../tensorValues.js';
import type { ChosenMatrix } from './matrices.js';

const WEIGHT = /\.weight$/;

/** A tensor of the model's files, and its name in the model; undefined where a multimodal model has it beside. */
interface SourceTensor extends WeightEntry {
  readonly file: string;
  readonly named: string | undefined;
}

function sourceTensors({ path, model }: Checkpoint): readonly SourceTensor[] {
  return readWeightFiles(path).headers.flatMap(({ file, entries }) =>
    entries.map((entry) => ({ ...entry, file, named: model.isWrapped === true ? textTensor(entry.name) : entry.name })),
  );
}

/** The model's tensors as its files hold them, some with several matrices in one. */
export function storedTensors(checkpoint: Checkpoint): readonly ExpectedTensor[] {
  const { model } = checkpoint;
  if (model.stored === undefined) return model.tensors;
  const shapes = new Map(sourceTensors(checkpoint).map(({ named, shape }) => [named, shape]));
  return model.stored((name) => shapes.get(name));
}

/** A quantized checkpoint on its way to disk. What is written can be read at once. */
export class QuantizedCheckpoint {
  private readonly checkpoint: Checkpoint;
  private readonly settings: GptqSettings;
  private readonly config: Json;
  private readonly folder: CheckpointFolder;
  private readonly sources: readonly SourceTensor[];
  private readonly places: ReadonlyMap<string, WeightEntry>;
  /** Names in the files of the matrices that are quantized, by their names in the model. */
  private readonly fileNames: ReadonlyMap<string, string>;

  /** Takes the space that all tensors need. `config`: what config.json will say of them. */
  constructor(
    output: string,
    checkpoint: Checkpoint,
    matrices: readonly ChosenMatrix[],
    settings: GptqSettings,
    config: Json,
  ) {
    this.checkpoint = checkpoint;
    this.settings = settings;
    this.config = config;
    this.sources = sourceTensors(checkpoint);
    const chosen = new Map(matrices.map((matrix) => [matrix.tensor.name, matrix]));
    const layout = layOut(
      this.sources
        .flatMap((source) => {
          const matrix = chosen.get(source.named ?? '');
          if (matrix === undefined) return [source];
          return gptqTensors(source.name.replace(WEIGHT, ''), [matrix.rows, matrix.k], settings);
        })
        .map(({ name, dtype, shape, byteLength }) => ({ name, dtype, shape, byteLength })),
    );
    this.places = new Map(layout.entries.map((entry) => [entry.name, entry]));
    this.fileNames = new Map(
      this.sources.flatMap(({ name, named }) => (named !== undefined && chosen.has(named) ? [[named, name]] : [])),
    );
    this.folder = new CheckpointFolder(output, layout);
  }

  /** Values of a matrix [rows, k] as the checkpoint has them. */
  values({ tensor, rows, k }: ChosenMatrix): Float32Array {
    const { tensors } = this.checkpoint;
    if (tensor.parts === undefined) return Float32Array.from(tensorValues(tensors, tensor.name, k).data);
    const values = new Float32Array(rows * k);
    for (const part of tensor.parts) {
      if (!('stride' in part)) throw new Error(`${tensor.name} has parts that are no rows of it`);
      const { data } = tensorValues(tensors, part.name, k);
      for (let row = 0; row < part.rows * part.count; row++) {
        const block = Math.floor(row / part.rows);
        const at = part.first + block * part.stride + (row % part.rows);
        values.set(data.subarray(row * k, (row + 1) * k), at * k);
      }
    }
    return values;
  }

  /** Writes the codes of a matrix. Returns what a runtime reads of the file in its place, as our reader finds it. */
  write({ tensor }: ChosenMatrix, codes: GptqCodes): readonly TensorLocation[] {
    const module = this.fileNames.get(tensor.name)!.replace(WEIGHT, '');
    const own = tensor.name.replace(WEIGHT, '');
    const stored = new Map<string, StoredTensor>();
    for (const [name, data] of gptqBytes(codes, this.settings)) {
      const place = this.places.get(`${module}.${name}`)!;
      this.folder.write(place, data);
      stored.set(`${own}.${name}`, { ...place, name: `${own}.${name}`, file: this.folder.weights });
    }
    const { found, problems } = quantizedTensors(readMethod(this.config, 'what was written'), stored, [tensor]);
    const [problem] = problems;
    if (problem !== undefined) throw new Error(`${problem.tensor}: ${problem.text}`);
    return placesOf(found.get(tensor.name)!, tensor.parts);
  }

  /** Copies all other tensors and files, and puts the folder in its place. */
  finish(config: Json): void {
    for (const source of this.sources) {
      const place = this.places.get(source.name);
      if (place !== undefined) this.folder.copy(place, source.file, source);
    }
    const print = (value: Json): string => `${printPythonJson(value, 2)}\n`;
    const texts = new Map([
      ['config.json', print(config)],
      ['quantize_config.json', print(this.config)],
    ]);
    this.folder.finish(texts, besideWeights(this.checkpoint));
  }

  abandon(): void {
    this.folder.abandon();
  }
}

const ANOTHER = 'free some space, or give another folder';
const WEIGHTS = 'model.safetensors';
const PIECE_BYTES = 8 << 20;
/** Space to leave free beside the checkpoint, bytes: a full disk affects everybody. */
const SPARE_BYTES = 64 << 20;

function writeBytes(fd: number, data: Uint8Array, offset: number): void {
  for (let at = 0; at < data.length;) at += writeSync(fd, data, at, data.length - at, offset + at);
}

/** Runs `write`, with errors of the system as UserError. */
function guarded<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    if (codeOf(error) === '' || error instanceof UserError) throw error;
    throw diskProblem(path, error, ANOTHER);
  }
}

/** The bytes of a file; who may do what with it stays behind. */
function copyTo(fd: number, target: string, path: string): void {
  withFile(path, (from, size) => {
    for (let at = 0; at < size; at += PIECE_BYTES) {
      const piece = readRange(from, at, Math.min(PIECE_BYTES, size - at));
      guarded(target, () => writeBytes(fd, piece, at));
    }
  });
}

const UNFINISHED = new RegExp(`^\\.(${PROCESS_MARK})\\.new$`);

/** What processes that were killed left beside `target`. */
function removeLeftovers(target: string): void {
  for (const name of readdirSync(dirname(target))) {
    if (!name.startsWith(`${basename(target)}.`)) continue;
    const mark = UNFINISHED.exec(name.slice(basename(target).length))?.[1];
    if (mark !== undefined && hasEnded(mark)) rmSync(join(dirname(target), name), { recursive: true, force: true });
  }
}

/**
 * Proves, before any work is done, that a new folder can be written there. Throws UsageError where something is there
 * already, UserError where it cannot be written.
 */
export function prepareFolder(path: string): void {
  const target = resolve(path);
  if (existsSync(target))
    throw new UsageError(`${path}: is there already`, 'give the path of a new folder, or delete it');
  try {
    prepareOutput(dirname(target));
    removeLeftovers(target);
  } catch (error) {
    throw error instanceof UserError
      ? new UserError(error.message, ANOTHER, { cause: error })
      : diskProblem(path, error, ANOTHER);
  }
}

export class CheckpointFolder {
  /** Absolute path of the weights while they are written. */
  readonly weights: string;
  private readonly target: string;
  private readonly folder: string;
  private readonly layout: SafetensorsLayout;
  private fd: number | undefined;

  /** Nothing is there before the first tensor is written. Throws UserError where the disk has no room. */
  constructor(path: string, layout: SafetensorsLayout) {
    this.target = resolve(path);
    this.folder = `${this.target}.${processMark()}.new`;
    this.weights = join(this.folder, WEIGHTS);
    this.layout = layout;
    const { bavail, bsize } = guarded(path, () => statfsSync(dirname(this.target)));
    if (bavail * bsize < layout.sizeBytes + SPARE_BYTES)
      throw new UserError(
        `${path}: the checkpoint takes ${bytes(layout.sizeBytes)}, the disk has ${bytes(bavail * bsize)} left`,
        ANOTHER,
      );
  }

  private open(): number {
    rmSync(this.folder, { recursive: true, force: true });
    makeFolder(this.folder);
    this.fd = openSync(this.weights, 'wx');
    ftruncateSync(this.fd, this.layout.sizeBytes);
    writeBytes(this.fd, this.layout.header, 0);
    return this.fd;
  }

  write({ offset }: Pick<WeightEntry, 'offset'>, data: Uint8Array): void {
    guarded(this.weights, () => {
      writeBytes(this.fd ?? this.open(), data, offset);
    });
  }

  /** Copies a tensor as it is stored elsewhere. */
  copy(to: WeightEntry, file: string, from: Pick<WeightEntry, 'offset'>): void {
    withFile(file, (fd) => {
      for (let at = 0; at < to.byteLength; at += PIECE_BYTES)
        this.write(
          { offset: to.offset + at },
          readRange(fd, from.offset + at, Math.min(PIECE_BYTES, to.byteLength - at)),
        );
    });
  }

  /** Adds the other files, and moves the folder to its place. */
  finish(texts: ReadonlyMap<string, string>, copied: readonly string[]): void {
    guarded(this.target, () => {
      fsyncSync(this.fd!);
      this.close();
      for (const [name, text] of texts) this.add(name, (fd) => writeBytes(fd, Buffer.from(text), 0));
      for (const path of copied) this.add(basename(path), (fd) => copyTo(fd, this.target, path));
      syncFolder(this.folder);
      if (existsSync(this.target)) throw new UsageError(`${this.target}: is there by now`, 'give another folder');
      renameSync(this.folder, this.target);
      syncFolder(dirname(this.target));
    });
  }

  /** Leaves nothing behind where it was not finished. */
  abandon(): void {
    this.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  private close(): void {
    if (this.fd !== undefined) closeSync(this.fd);
    this.fd = undefined;
  }

  /** A file of the folder, synced. */
  private add(name: string, write: (fd: number) => void): void {
    const fd = openSync(join(this.folder, name), 'wx');
    try {
      write(fd);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  }
}
