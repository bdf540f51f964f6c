/**
 * The modules of a model as checkpoints on the hub name them, and which of the compiler's tensors their parameters are.
 * Adapters name modules; the graph reads tensors, several of which may lie in one module.
 */
import { UserError } from '../../errors.js';
import type { FormatName } from '../../ir/storage.js';
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import type { Checkpoint } from '../checkpoint.js';
import { describeModel, readConfig } from '../config.js';
import { classOf } from '../families/registry.js';
import type { Model } from '../model/model.js';
import type { ExpectedTensor, ShapeOf } from '../model/tensors.js';

/** A tensor of the graph that is part of a parameter. */
export interface Piece {
  readonly tensor: string;
  /** Rows of the parameter that are the tensor's, or part of its rows. A vector's elements are its rows. */
  readonly rows: number;
  /** Row of the tensor that the piece begins at. */
  readonly first: number;
  /** Rows of the tensor. */
  readonly of: number;
  /** Row of the parameter that row `row` of the piece is. */
  readonly rowOf: (row: number) => number;
}

/** A parameter of a module: a matrix [out, in], a vector, or matrices of experts [experts, out, in]. */
export interface Parameter {
  readonly shape: readonly number[];
  readonly pieces: readonly Piece[];
  /** What the tensors have more than the parameter. */
  readonly added: number;
}

/**
 * `linear`: a matrix of a layer that rides. `router`: one that chooses experts or weighs one; `expert`: of one expert;
 * `head`: of the vocabulary or of classes.
 */
export type ModuleKind = 'linear' | 'router' | 'expert' | 'experts' | 'head' | 'embedding' | 'norm';

export interface BaseModule {
  readonly path: string;
  readonly kind: ModuleKind;
  /** By name: `weight`, `bias`; of experts in one module `gate_up_proj`, `down_proj`. */
  readonly parameters: ReadonlyMap<string, Parameter>;
}

/** How a module of experts holds their matrices since transformers 5, in the order of its parameters. */
export const EXPERT_PARAMETERS = ['gate_up_proj', 'down_proj'] as const;
const IN_ONE = /\.mlp\.experts\.(?:gate_up_proj|down_proj)$/;

const PARAMETER = /^(.+)\.(weight|bias|gate_up_proj|down_proj)$/;

/** Tensors that a model is made of where experts of a layer lie in one module; those of other layers are not wanted. */
const tensorsInOne = ({ stored }: Model): readonly ExpectedTensor[] => {
  if (stored === undefined) return [];
  const shapeOf: ShapeOf = (name) => (IN_ONE.test(name) ? [0] : undefined);
  return stored(shapeOf).filter(({ name, parts }) => IN_ONE.test(name) || parts?.[0]?.name.match(/\.gate\.weight$/));
};

const columnsOf = (shape: readonly number[]): number => (shape.length === 1 ? 1 : at(shape, shape.length - 1));
/** Rows of a parameter, those of all experts one behind another. */
const rowsOf = (shape: readonly number[]): number => shape.reduce((all, extent) => all * extent, 1) / columnsOf(shape);

function piecesOf({ shape, parts, partOf, name }: ExpectedTensor, model: Model): readonly Piece[] {
  const order = model.published?.rowOf ?? ((_: string, row: number) => row);
  if (partOf !== undefined)
    return [
      { tensor: partOf.name, rows: rowsOf([...shape, 1]), first: partOf.first, of: partOf.rows, rowOf: (row) => row },
    ];
  const rows = rowsOf(shape);
  const own = parts ?? [{ name, first: 0, rows, stride: rows, count: 1 }];
  // Vectors of a convolution's factors are no module's matrix.
  return own
    .filter((part) => !('element' in part))
    .map((part) => {
      if (!('stride' in part))
        throw new UserError(`${name}: adapters of models whose matrices are stored as [in, out] are not supported`);
      const { name: tensor, first, rows: block, stride, count } = part;
      const rowOf = (row: number): number => {
        const there = order(tensor, row);
        return first + Math.floor(there / block) * stride + (there % block);
      };
      return { tensor, rows: block * count, first: 0, of: block * count, rowOf };
    });
}

/** Whether some of a matrix is read turned, and some as it is: no product has its rows, and no adapter rides there. */
const isPartlyTurned = ({ parts = [] }: ExpectedTensor): boolean =>
  parts.some((part) => 'columns' in part) && parts.some((part) => 'stride' in part);

function kindOf(path: string, parameter: string, { role, shape }: ExpectedTensor, model: Model): ModuleKind {
  const heads = model.config.head?.layers.map(({ module }) => module) ?? [];
  if (heads.includes(path)) return 'head';
  if (parameter !== 'weight' && parameter !== 'bias') return 'experts';
  if (role === 'norm') return 'norm';
  if (/\.experts\.\d+\.\w+$/.test(path)) return 'expert';
  if (/\.(?:gate|shared_expert_gate)$/.test(path)) return 'router';
  if (/\.\d+\./.test(path)) return 'linear';
  return shape.length === 2 && path === model.tensors[0]?.name.replace(/\.weight$/, '') ? 'embedding' : 'head';
}

/**
 * All modules of a model, by path. Mixtures of experts have them under the names of both transformers 4 and 5. A tied
 * model has the module of its head as well.
 */
export function modulesOf(model: Model): ReadonlyMap<string, BaseModule> {
  const modules = new Map<string, { path: string; kind: ModuleKind; parameters: Map<string, Parameter> }>();
  const published = model.published?.tensors ?? model.tensors;
  const embedding = published[0]!;
  const tied = model.tied;
  const headName = tied === undefined ? undefined : hubHead(tied.head);
  const add = (tensor: ExpectedTensor, kind?: ModuleKind): void => {
    const [, path, parameter] = PARAMETER.exec(tensor.name) ?? [];
    if (path === undefined || parameter === undefined || isPartlyTurned(tensor)) return;
    const module = modules.get(path) ?? {
      path,
      kind: kind ?? kindOf(path, parameter, tensor, model),
      parameters: new Map(),
    };
    const added = tensor.role === 'norm' && parameter === 'weight' ? (model.published?.addedToNorms ?? 0) : 0;
    module.parameters.set(parameter, { shape: tensor.shape, pieces: piecesOf(tensor, model), added });
    modules.set(path, module);
  };
  for (const tensor of published) add(tensor, tensor === embedding ? 'embedding' : undefined);
  for (const tensor of tensorsInOne(model)) add(tensor);
  if (tied !== undefined && headName !== undefined)
    add({ ...embedding, name: headName, parts: [wholeOf(tied.head, embedding.shape)] }, 'head');
  return modules;
}

const wholeOf = (name: string, shape: readonly number[]) => {
  const rows = at(shape, 0);
  return { name, first: 0, rows, stride: rows, count: 1 };
};

/** The hub's name of a head: files of Meta call it `output`. */
const hubHead = (head: string): string => (head === 'output.weight' ? 'lm_head.weight' : head);

/** Classes that an adapter's task makes of a language model. */
const CLASS_SUFFIX = { SEQ_CLS: 'ForSequenceClassification', TOKEN_CLS: 'ForTokenClassification' } as const;

/**
 * The model that an adapter was trained on: with a head of classes where its task has one and the checkpoint's class
 * does not. `shapeOf`: tensors of the adapter, of which the head is one. Throws UserError where it can have none.
 */
export function modelForTask(
  { model, configPath }: Checkpoint,
  task: keyof typeof CLASS_SUFFIX | undefined,
  shapeOf: ShapeOf,
  hint: string,
): Model {
  if (task === undefined || model.config.head !== undefined) return model;
  const suffix = CLASS_SUFFIX[task];
  const { id2label: _, num_labels: __, label2id: ___, ...json } = readJson(configPath, task, hint);
  const name = String(classOf(json) ?? model.config.architecture).replace(/ForCausalLM$/, suffix);
  if (!name.endsWith(suffix) || 'text_config' in json)
    throw new UserError(`${configPath}: an adapter of task ${task} needs a language model of a known class`, hint);
  const described = describeModel(
    { ...json, architectures: [name] },
    configPath,
    model.config.dtype satisfies FormatName,
  );
  return { ...described, ...defined({ ...described.withHead?.(shapeOf) }) };
}

function readJson(configPath: string, task: string, hint: string): ReturnType<typeof readConfig> {
  if (configPath.endsWith('config.json')) return readConfig(configPath);
  throw new UserError(`${configPath}: an adapter of task ${task} needs the Hugging Face copy of its model`, hint);
}
