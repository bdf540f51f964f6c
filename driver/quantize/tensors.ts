/** The tensors of the checkpoint that is written: where each lies in its file, and where its bytes are from. */
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
import { layOut } from '../../models/weights/safetensors.js';
import { readWeightFiles } from '../../models/weights/weightFiles.js';
import { printPythonJson } from '../../system/json.js';
import { tensorValues } from '../tensorValues.js';
import { CheckpointFolder } from './folder.js';
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
export class QuantizedTensors {
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
      if ('columns' in part) throw new Error(`${tensor.name} has parts whose rows are columns`);
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
