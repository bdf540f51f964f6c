/** What an adapter's tensors make of those of a model, module by module. */
import { UserError } from '../../errors.js';
import { at } from '../../system/at.js';
import { quote } from '../../system/json.js';
import type { Model } from '../model/model.js';
import type { LowRank } from './adapter.js';
import type { NewRows, TensorChange } from './change.js';
import { checkParts, CLASS_HEADS, requireAll, type Resolution } from './checks.js';
import type { Owned } from './collect.js';
import { ADAPTER_HINT } from './config.js';
import type { AdapterTensor, Part } from './files.js';
import { endsOf, EXPERT_PARAMETERS, modulesOf, type Parameter, type Piece } from './modules.js';

export interface Resolved {
  readonly model: Model;
  readonly products: ReadonlyMap<string, LowRank>;
  readonly changes: ReadonlyMap<string, TensorChange>;
  /** Of each product, by its B. */
  readonly scales: ReadonlyMap<AdapterTensor, number>;
}

type Parts = ReadonlyMap<Part, AdapterTensor>;

/** A product, with a way to read the factors of some rows of its parameter. */
interface Product {
  readonly rank: number;
  readonly scale: number;
  readonly read: (piece: Piece) => ReturnType<LowRank['read']>;
}

/** Values of tensors that are read again for each piece of a module are kept, up to so many. */
const KEPT_FLOATS = 1 << 26;
const columnsOf = ({ shape }: Parameter): number => (shape.length === 1 ? 1 : at(shape, shape.length - 1));

function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) out[column * rows + row] = values[row * columns + column]!;
  return out;
}

/** Rows of a matrix by their numbers. */
function gathered(values: Float32Array, columns: number, rows: number, rowOf: (row: number) => number): Float32Array {
  const out = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    const from = rowOf(row) * columns;
    out.set(values.subarray(from, from + columns), row * columns);
  }
  return out;
}

/** The shape of the tensor that a piece of a parameter is. */
function shapeOf(parameter: Parameter, { of, rows, isTransposed }: Piece): readonly number[] {
  if (parameter.shape.length === 1) return [of];
  const columns = columnsOf(parameter);
  return isTransposed === true ? [columns, rows] : [rows, columns];
}

/** A and B of a piece: of Wᵀ, Bᵀ and Aᵀ. */
function factorsOf(
  a: Float32Array,
  b: Float32Array,
  rank: number,
  { isTransposed }: Piece,
): ReturnType<LowRank['read']> {
  if (isTransposed !== true) return { a, b };
  return { a: transposed(b, b.length / rank, rank), b: transposed(a, rank, a.length / rank) };
}

class Resolver {
  readonly products = new Map<string, LowRank>();
  readonly changes = new Map<string, TensorChange>();
  readonly scales = new Map<AdapterTensor, number>();
  private readonly of: Resolution;
  private readonly recent = new Map<AdapterTensor, Float32Array>();

  constructor(of: Resolution) {
    this.of = of;
  }

  fail({ name }: Pick<AdapterTensor, 'name'>, problem: string): never {
    throw new UserError(`${this.of.file.file}: tensor ${quote(name, 160)}: ${problem}`, ADAPTER_HINT);
  }

  /** Throws UserError where a tensor is not of this shape. */
  requireShape(tensor: AdapterTensor, ...shape: readonly number[]): void {
    const { length } = shape;
    if (tensor.shape.length === length && shape.every((extent, i) => tensor.shape[i] === extent)) return;
    const grown =
      tensor.part === 'weight' || tensor.part === 'baseWeight'
        ? ' (tokens that were added to the model are not supported)'
        : '';
    this.fail(
      tensor,
      `its shape is [${tensor.shape.join(', ')}], but config and model require [${shape.join(', ')}]${grown}`,
    );
  }

  /** All values, kept for the next piece. */
  private values(tensor: AdapterTensor): Float32Array {
    const known = this.recent.get(tensor);
    if (known !== undefined) return known;
    const values = this.of.file.read(tensor);
    if (values.length > KEPT_FLOATS) return values;
    for (const [first] of [...this.recent].slice(0, Math.max(0, this.recent.size - 1))) this.recent.delete(first);
    this.recent.set(tensor, values);
    return values;
  }

  /** The product of a module [outputs, inputs]. */
  private product(parts: Parts, key: string, parameter: Parameter): Product {
    const [outputs, inputs] = [at(parameter.shape, 0), columnsOf(parameter)];
    const isEmbedding = parts.has('embeddingA');
    const [a, b] = isEmbedding ? [parts.get('embeddingA'), parts.get('embeddingB')] : [parts.get('A'), parts.get('B')];
    if (a === undefined || b === undefined) this.fail([...parts.values()][0]!, 'its module has one of A and B only');
    const { rank, scale } = this.of.targets.productOf(key);
    this.requireShape(a, rank, isEmbedding ? outputs : inputs);
    this.requireShape(b, isEmbedding ? inputs : outputs, rank);
    this.scales.set(b, scale);
    const read = (piece: Piece): ReturnType<LowRank['read']> =>
      isEmbedding
        ? {
            a: transposed(this.values(b), inputs, rank),
            b: gathered(transposed(this.values(a), rank, outputs), rank, piece.rows, piece.rowOf),
          }
        : factorsOf(this.values(a).slice(), gathered(this.values(b), rank, piece.rows, piece.rowOf), rank, piece);
    return { rank, scale, read };
  }

  /** Products of all experts: A has the expert slowest, B fastest. `isTurned`: factors are those of Wᵀ. */
  private experts(parts: Parts, key: string, { shape }: Parameter, isTurned: boolean): Product {
    const [count, outputs, inputs] = [at(shape, 0), at(shape, 1), at(shape, 2)];
    const { rank, scale } = this.of.targets.productOf(key);
    const [a, b] = [parts.get('A'), parts.get('B')];
    if (a === undefined || b === undefined || parts.size !== 2)
      this.fail([...parts.values()][0]!, 'experts have an A and a B');
    this.requireShape(a, rank * count, isTurned ? outputs : inputs);
    this.requireShape(b, isTurned ? inputs : outputs, rank * count);
    this.scales.set(b, scale);
    const read = ({ rows, rowOf }: Piece): ReturnType<LowRank['read']> => {
      const expert = Math.floor(rowOf(0) / outputs);
      const [columns, lines] = [at(a.shape, 1), at(b.shape, 0)];
      const ownA = this.values(a).slice(expert * rank * columns, (expert + 1) * rank * columns);
      const allB = this.values(b);
      const ownB = new Float32Array(lines * rank);
      for (let line = 0; line < lines; line++)
        for (let r = 0; r < rank; r++) ownB[line * rank + r] = allB[line * rank * count + r * count + expert]!;
      const [left, right] = isTurned ? [transposed(ownA, rank, columns), transposed(ownB, lines, rank)] : [ownB, ownA];
      return { a: right, b: gathered(left, rank, rows, (row) => rowOf(row) % outputs) };
    };
    return { rank, scale, read };
  }

  /** Values of a tensor in the place of a parameter's piece. */
  private newRows(tensor: AdapterTensor, { added, shape, isTurned }: Parameter, piece: Piece): NewRows {
    const { first, rows, rowOf, isTransposed } = piece;
    const columns = shape.length === 1 ? 1 : at(shape, shape.length - 1);
    const { file } = this.of;
    if (isTurned === true || isTransposed === true) {
      const [height, width] = isTransposed === true ? [columns, rows] : [rows, columns];
      const read = (from: number, count: number): Float32Array => {
        const whole = this.values(tensor);
        /** Of the parameter as [out, in]. */
        const valueAt = (row: number, column: number): number =>
          whole[isTurned === true ? column * at(shape, 0) + row : row * columns + column]!;
        const out = new Float32Array(count * width);
        for (let i = 0; i < count; i++)
          for (let j = 0; j < width; j++)
            out[i * width + j] = isTransposed === true ? valueAt(rowOf(j), from + i) : valueAt(rowOf(from + i), j);
        return out;
      };
      return { first, count: height, read };
    }
    return {
      first,
      count: rows,
      read: (from, count) => {
        const out = new Float32Array(count * columns);
        for (let row = 0; row < count;) {
          let run = 1;
          while (row + run < count && rowOf(from + row + run) === rowOf(from + row) + run) run++;
          out.set(file.read(tensor, rowOf(from + row), run), row * columns);
          row += run;
        }
        return added === 0 ? out : out.map((value) => value + added);
      },
    };
  }

  private change(tensor: AdapterTensor, change: TensorChange): void {
    const known = this.changes.get(change.tensor);
    if (this.products.has(change.tensor)) this.fail(tensor, 'its matrix is changed twice');
    if (known === undefined) return void this.changes.set(change.tensor, change);
    const isVector = [known, change].every(({ shape, added }) => shape.length === 1 && added === undefined);
    if (!isVector || change.shape[0] === change.begins[0]?.count) this.fail(tensor, 'its tensor is changed twice');
    this.changes.set(change.tensor, { ...known, begins: [...known.begins, ...change.begins] });
  }

  /** A module's matrix. `from`: the tensor that it begins as, where it is another's; `begin`: what it begins as. */
  weight({ module, path, wrappers }: Owned, from?: string, begin?: AdapterTensor): void {
    const parts = wrappers[0]!;
    const parameter = module.parameters.get('weight')!;
    const has = parts.has('A') || parts.has('B') || parts.has('embeddingA') || parts.has('embeddingB');
    const { targets } = this.of;
    const product = has ? this.product(parts, targets.has(path) ? path : `${path}.weight`, parameter) : undefined;
    const magnitude = parts.get('magnitude');
    const whole = parts.get('weight') ?? parts.get('baseWeight') ?? begin;
    const tokens = parts.get('tokens');
    const [rows, columns] = [at(parameter.shape, 0), columnsOf(parameter)];
    const ofColumns = parts.has('embeddingA');
    if (magnitude !== undefined) this.requireShape(magnitude, ofColumns ? columns : rows);
    if (magnitude !== undefined && ofColumns && parameter.pieces[0]?.rows !== rows)
      this.fail(magnitude, 'norms of columns of a table that the model reads in part are not supported');
    if (whole !== undefined)
      this.requireShape(whole, ...(parameter.isTurned === true ? [columns, rows] : parameter.shape));
    // Matrices of heads, some of which the graph reads turned, have no slots.
    const rides = module.kind === 'linear' && parameter.pieces.every(({ isTransposed }) => isTransposed !== true);
    const ids = tokens === undefined ? [] : this.tokensOf(path, tokens, rows, columns);
    for (const piece of parameter.pieces) {
      const { tensor } = piece;
      const own = product && { rank: product.rank, scale: product.scale, read: () => product.read(piece) };
      if (own !== undefined && rides && [magnitude, whole, tokens].every((each) => each === undefined)) {
        if (this.products.has(tensor)) this.fail(parts.get('A')!, 'its matrix is changed twice');
        this.products.set(tensor, { tensor, ...own, inputs: columns, outputs: piece.rows });
        continue;
      }
      if (own === undefined && whole === undefined && tokens === undefined) continue;
      this.change([...parts.values(), begin][0]!, {
        tensor,
        shape: shapeOf(parameter, piece),
        from: from ?? tensor,
        begins: whole === undefined ? [] : [this.newRows(whole, parameter, piece)],
        ...(own === undefined ? {} : { product: own }),
        ...(magnitude === undefined
          ? {}
          : {
              magnitude: {
                of: ofColumns || piece.isTransposed === true ? 'columns' : 'rows',
                read: () =>
                  ofColumns ? this.values(magnitude) : gathered(this.values(magnitude), 1, piece.rows, piece.rowOf),
              },
            }),
        ...(tokens === undefined ? {} : { tokens: { ids, read: () => this.values(tokens) } }),
      });
    }
  }

  /** Of a head that is kept tied, PEFT writes the embedding's product turned. Throws UserError where it is another. */
  requireTied(embedding: Owned, { wrappers }: Owned): void {
    const [of, parts] = [embedding.wrappers[0]!, wrappers[0]!];
    for (const [own, other] of [
      ['A', 'embeddingB'],
      ['B', 'embeddingA'],
    ] as const) {
      const [turned, tensor] = [of.get(other), parts.get(own)];
      if (tensor === undefined) continue;
      if (turned === undefined) this.fail(tensor, 'ensure_weight_tying is set, and the embedding has no such product');
      const [rows, columns] = [at(turned.shape, 0), at(turned.shape, 1)];
      this.requireShape(tensor, columns, rows);
      const expected = transposed(this.values(turned), rows, columns);
      const values = this.values(tensor);
      if (values.some((value, i) => value !== expected[i]))
        this.fail(tensor, 'ensure_weight_tying is set, and it is not the embedding’s');
    }
  }

  private tokensOf(path: string, tensor: AdapterTensor, rows: number, columns: number): readonly number[] {
    const { tokens } = this.of.config;
    const own = tokens.find(([name]) => name === undefined || path === name || path.endsWith(`.${name}`));
    if (own === undefined) this.fail(tensor, 'trainable_token_indices does not name its module');
    const [, ids] = own;
    const beyond = ids.find((id) => id >= rows);
    if (beyond !== undefined) this.fail(tensor, `token ${beyond} is none of ${rows}`);
    this.requireShape(tensor, ids.length, columns);
    return ids;
  }

  /** A module's bias: the adapter's own, and that of its product. `isNew`: the base has none. */
  bias({ module, path, wrappers }: Owned, isNew: boolean): void {
    const parts = wrappers[0]!;
    const whole = parts.get('bias') ?? parts.get('baseBias');
    const ofProduct = parts.get('productBias');
    if (whole === undefined && ofProduct === undefined) return;
    const parameter = module.parameters.get('bias');
    if (parameter === undefined) this.fail(whole ?? ofProduct!, 'its module has no bias');
    for (const tensor of [whole, ofProduct])
      if (tensor !== undefined) this.requireShape(tensor, at(parameter.shape, 0));
    const { scale } = this.of.targets.productOf(path);
    for (const piece of parameter.pieces)
      this.change((whole ?? ofProduct)!, {
        tensor: piece.tensor,
        shape: [piece.of],
        from: isNew ? undefined : piece.tensor,
        begins: whole === undefined ? [] : [this.newRows(whole, parameter, piece)],
        ...(ofProduct === undefined
          ? {}
          : { added: { scale, read: () => gathered(this.values(ofProduct), 1, piece.rows, piece.rowOf) } }),
      });
  }

  /** Experts of a layer in one module. */
  allExperts({ module, path, wrappers }: Owned): void {
    const wanted = EXPERT_PARAMETERS.filter((name) => this.of.targets.hasParameter(`${path}.${name}`));
    const tensor = [...wrappers.flatMap((parts) => [...parts.values()])][0]!;
    if (wanted.length !== wrappers.length)
      this.fail(
        tensor,
        `target_parameters name ${wanted.length} of the parameters of its experts, not ${wrappers.length}`,
      );
    // The parameter that is wrapped first lies within.
    const wrapped = wrappers.map((parts, depth) => {
      const name = wanted.at(-1 - depth)!;
      return { name, parts, parameter: module.parameters.get(name)! };
    });
    // Whether PEFT took the last two dimensions for [in, out] depends on its version and on that of transformers. It
    // did so for all parameters of a module, of which square ones do not tell.
    const isTurned = wrapped.some(({ parts, parameter: { shape } }) => {
      const [outputs, inputs] = [at(shape, 1), at(shape, 2)];
      return outputs !== inputs && parts.get('A')?.shape[1] === outputs && parts.get('B')?.shape[0] === inputs;
    });
    for (const { name, parts, parameter } of wrapped) {
      const product = this.experts(parts, `${path}.${name}`, parameter, isTurned);
      for (const piece of parameter.pieces)
        this.change(tensor, {
          tensor: piece.tensor,
          shape: [piece.rows, columnsOf(parameter)],
          from: piece.tensor,
          begins: [],
          product: { rank: product.rank, scale: product.scale, read: () => product.read(piece) },
        });
    }
  }
}

const CHANGING: readonly Part[] = ['A', 'B', 'embeddingA', 'embeddingB', 'weight', 'baseWeight', 'tokens'];
const isChanged = (owned: Owned | undefined): owned is Owned =>
  owned !== undefined && CHANGING.some((part) => owned.wrappers[0]!.has(part));

/**
 * Embedding and head of a model that ties them: as PEFT does, they part where an adapter changes one of them, unless it
 * was told to keep them together, or changes rows of tokens.
 */
function resolveTied(resolver: Resolver, { config, model, collected, modules }: Resolution): Model {
  const { tied } = model;
  if (tied === undefined) return model;
  const ends = endsOf(model);
  const [embedding, head] = [collected.owned.get(ends.embedding), collected.owned.get(ends.head)];
  if (!isChanged(embedding) && !isChanged(head)) return model;
  if (config.keepsTie) {
    if (!isChanged(embedding))
      resolver.fail(
        [...head!.wrappers[0]!.values()][0]!,
        'ensure_weight_tying is set, and the embedding is not changed',
      );
    if (head !== undefined) resolver.requireTied(embedding, head);
    resolver.weight(embedding);
    return model;
  }
  const tokens = embedding?.wrappers[0]!.get('tokens');
  if (tokens !== undefined && !isChanged(head)) {
    resolver.weight(embedding!);
    return model;
  }
  const base = embedding?.wrappers[0]!.get('baseWeight') ?? head?.wrappers[0]!.get('baseWeight');
  if (isChanged(embedding)) resolver.weight(embedding);
  const ofHead = head ?? {
    module: modules.get(ends.head)!,
    path: '',
    wrappers: [new Map()],
  };
  resolver.weight(ofHead, tied.embedding, base);
  return tied.untied();
}

/** The model with biases where products have some and it has none; the tensors that it then has more are zeros. */
function withBiases(resolver: Resolver, { collected, modules }: Resolution, model: Model): Model {
  const lacking = [...collected.owned.values()].filter(
    ({ module, wrappers }) => wrappers[0]!.has('productBias') && !module.parameters.has('bias'),
  );
  const [first] = lacking;
  if (first === undefined) return model;
  const biased = model.withBiases?.(lacking.map(({ module }) => module.path));
  if (biased === undefined)
    resolver.fail(
      first.wrappers[0]!.get('productBias')!,
      'lora_bias is set, and one of these modules can have no bias here',
    );
  const all = modulesOf(biased);
  for (const owned of lacking) resolver.bias({ ...owned, module: all.get(owned.module.path)! }, true);
  for (const [path, { parameters }] of all)
    for (const { tensor, of } of modules.get(path)?.parameters.has('bias') === true
      ? []
      : (parameters.get('bias')?.pieces ?? []))
      if (!resolver.changes.has(tensor))
        resolver.changes.set(tensor, { tensor, shape: [of], from: undefined, begins: [] });
  return biased;
}

/** Throws UserError for what does not fit the model or its own configuration. */
export function resolveModules(of: Resolution): Resolved {
  const { collected, config, model } = of;
  const resolver = new Resolver(of);
  const saved = [...config.saved, ...(config.head === undefined ? [] : CLASS_HEADS)];
  const isTiedEnd = ({ module }: Owned): boolean =>
    model.tied !== undefined && (module.kind === 'embedding' || module.kind === 'head');
  for (const owned of collected.owned.values()) {
    if (owned.module.kind === 'experts') {
      resolver.allExperts(owned);
      continue;
    }
    checkParts((tensor, problem) => resolver.fail(tensor, problem), of, owned, saved);
    if (!isTiedEnd(owned)) resolver.weight(owned);
    if (owned.module.parameters.has('bias') || !owned.wrappers[0]!.has('productBias')) resolver.bias(owned, false);
  }
  requireAll(of, saved);
  const changed = withBiases(resolver, of, resolveTied(resolver, of));
  const { products, changes, scales } = resolver;
  return { model: changed, products, changes, scales };
}
