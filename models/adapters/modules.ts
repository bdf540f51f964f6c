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
import { type ExpectedTensor, isTurnedPart, type ShapeOf } from '../model/tensors.js';

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
  /** The graph reads it turned: rows of the parameter are columns of the tensor. */
  readonly isTransposed?: true;
}

/** A parameter of a module: a matrix [out, in], a vector, or matrices of experts [experts, out, in]. */
export interface Parameter {
  readonly shape: readonly number[];
  readonly pieces: readonly Piece[];
  /** What the tensors have more than the parameter. */
  readonly added: number;
  /** Files hold it as [in, out]. What PEFT puts beside it is as for [out, in] all the same. */
  readonly isTurned?: true;
}

/**
 * `linear`: a matrix that rides. `router`: one that chooses experts or weighs one; `expert`: of one expert; `head`: of
 * the vocabulary or of classes; `embedding`: of tokens; `positions`: a table with a row for each position.
 */
export type ModuleKind = 'linear' | 'router' | 'expert' | 'experts' | 'head' | 'embedding' | 'positions' | 'norm';

export interface BaseModule {
  readonly path: string;
  readonly kind: ModuleKind;
  /** By name: `weight`, `bias`; of experts in one module `gate_up_proj`, `down_proj`. */
  readonly parameters: ReadonlyMap<string, Parameter>;
}

/** How a module of experts holds their matrices since transformers 5, in the order of its parameters. */
export const EXPERT_PARAMETERS = ['gate_up_proj', 'down_proj'] as const;
/** Of most families, and of those that have a name of their own for the module. */
const IN_ONE = [/\.mlp\.experts\.(?:gate_up_proj|down_proj)$/, /\.experts\.(?:gate_up_proj|down_proj)$/] as const;

const PARAMETER = /^(.+)\.(weight|bias|gate_up_proj|down_proj)$/;

/** Tensors that a model is made of where experts of a layer lie in one module; those of other layers are not wanted. */
function tensorsInOne({ stored }: Model): readonly ExpectedTensor[] {
  for (const inOne of IN_ONE) {
    const shapeOf: ShapeOf = (name) => (inOne.test(name) ? [0] : undefined);
    const all = stored?.(shapeOf) ?? [];
    if (all.some(({ name }) => inOne.test(name)))
      return all.filter(({ name, parts }) => inOne.test(name) || parts?.[0]?.name.match(/\.gate\.weight$/));
  }
  return [];
}

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
  const isTurned = own.every(isTurnedPart);
  return own.flatMap((part): Piece[] => {
    // Vectors of a convolution's factors are no module's matrix.
    if ('element' in part || 'width' in part) return [];
    const { name: tensor, first } = part;
    if (!isTurnedPart(part)) {
      const { rows: block, stride, count } = part;
      const rowOf = (row: number): number => {
        const there = order(tensor, row);
        return first + Math.floor(there / block) * stride + (there % block);
      };
      return [{ tensor, rows: block * count, first: 0, of: block * count, rowOf }];
    }
    // The matrix is [out, in]: its rows from `first` on are the columns of the tensor.
    if (!isTurned)
      return [{ tensor, rows: part.columns, first: 0, of: part.rows, rowOf: (row) => first + row, isTransposed: true }];
    // The matrix is [in, out]: its columns are the rows of the tensor. Experts lie one behind another.
    const before = (first / part.columns) * columnsOf(shape);
    const rowOf = (row: number): number => before + part.from + order(tensor, row) * (part.step ?? 1);
    return [{ tensor, rows: part.rows, first: 0, of: part.rows, rowOf }];
  });
}

/** The parameter that a tensor of the files holds; one of shape [in, out] is turned. */
function parameterOf(tensor: ExpectedTensor, model: Model, added: number): Parameter {
  const pieces = piecesOf(tensor, model);
  if (tensor.parts?.every(isTurnedPart) !== true) return { shape: tensor.shape, pieces, added };
  const { shape } = tensor;
  return { shape: [...shape.slice(0, -2), shape.at(-1)!, shape.at(-2)!], pieces, added, isTurned: true };
}

const POSITIONS = /(?:^|\.)(?:wpe|embed_positions)$/;

function kindOf(path: string, parameter: string, { role }: ExpectedTensor, { config }: Model, ends: Ends): ModuleKind {
  if (config.head?.layers.some(({ module }) => module === path) === true || path === ends.head) return 'head';
  if (path === ends.embedding) return 'embedding';
  if (parameter !== 'weight' && parameter !== 'bias') return 'experts';
  if (role === 'norm') return 'norm';
  if (/\.experts\.\d+\.\w+$/.test(path)) return 'expert';
  if (/\.(?:gate|shared_expert_gate)$/.test(path)) return 'router';
  return POSITIONS.test(path) ? 'positions' : 'linear';
}

/** Paths of the modules at both ends of a model. */
export interface Ends {
  readonly embedding: string;
  readonly head: string;
}

/** Ends of a model: its first matrix is the embedding's, and its last the head's where that is not the embedding. */
export function endsOf({ published, tensors, tied }: Model): Ends {
  const all = published?.tensors ?? tensors;
  const head = tied === undefined ? all.findLast(({ role }) => role === 'matrix')!.name : hubHead(tied.head);
  return { embedding: modulePath(all[0]!.name), head: modulePath(head) };
}

const modulePath = (tensor: string): string => tensor.replace(/\.weight$/, '');

/**
 * All modules of a model, by path. Mixtures of experts have them under the names of both transformers 4 and 5. A tied
 * model has the module of its head as well.
 */
export function modulesOf(model: Model): ReadonlyMap<string, BaseModule> {
  const modules = new Map<string, { path: string; kind: ModuleKind; parameters: Map<string, Parameter> }>();
  const published = model.published?.tensors ?? model.tensors;
  const embedding = published[0]!;
  const tied = model.tied;
  const ends = endsOf(model);
  const add = (tensor: ExpectedTensor): void => {
    const [, path, parameter] = PARAMETER.exec(tensor.name) ?? [];
    if (path === undefined || parameter === undefined) return;
    const module = modules.get(path) ?? {
      path,
      kind: kindOf(path, parameter, tensor, model, ends),
      parameters: new Map(),
    };
    const added = tensor.role === 'norm' && parameter === 'weight' ? (model.published?.addedToNorms ?? 0) : 0;
    module.parameters.set(parameter, parameterOf(tensor, model, added));
    modules.set(path, module);
  };
  for (const tensor of published) add(tensor);
  for (const tensor of tensorsInOne(model)) add(tensor);
  if (tied !== undefined) add({ ...embedding, name: hubHead(tied.head), parts: [wholeOf(tied.head, embedding.shape)] });
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
  const name = String(classOf(json) ?? model.config.architecture).replace(/(?:ForCausalLM|LMHeadModel)$/, suffix);
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
