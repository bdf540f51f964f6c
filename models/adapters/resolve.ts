/** What an adapter's tensors make of those of a model, module by module. */
import { UserError } from '../../errors.js';
import { at } from '../../system/at.js';
import { quote } from '../../system/json.js';
import type { Checkpoint } from '../checkpoint.js';
import type { Model } from '../model/model.js';
import type { LowRank } from './adapter.js';
import type { TensorChange } from './change.js';
import type { Collected, Owned } from './collect.js';
import { ADAPTER_HINT, type AdapterConfig } from './config.js';
import type { AdapterFile, AdapterTensor, Part } from './files.js';
import type { BaseModule, Parameter, Piece } from './modules.js';
import type { Targets } from './targets.js';

export interface Resolution {
  readonly config: AdapterConfig;
  readonly file: AdapterFile;
  readonly targets: Targets;
  readonly model: Model;
  readonly modules: ReadonlyMap<string, BaseModule>;
  readonly collected: Collected;
  readonly checkpoint: Checkpoint;
}

export interface Resolved {
  readonly model: Model;
  readonly products: ReadonlyMap<string, LowRank>;
  readonly changes: ReadonlyMap<string, TensorChange>;
  /** Of each product, by its B. */
  readonly scales: ReadonlyMap<AdapterTensor, number>;
  readonly warnings: readonly string[];
}

/** A product of a parameter, as the file has it. */
interface Product {
  readonly a: AdapterTensor;
  readonly b: AdapterTensor;
  readonly rank: number;
  readonly scale: number;
}

const columnsOf = ({ shape }: Parameter): number => at(shape, shape.length - 1);

class Resolver {
  private readonly of: Resolution;
  readonly products = new Map<string, LowRank>();
  readonly changes = new Map<string, TensorChange>();
  readonly scales = new Map<AdapterTensor, number>();
  readonly warnings: string[] = [];

  constructor(of: Resolution) {
    this.of = of;
  }

  fail(tensor: Pick<AdapterTensor, 'name'>, problem: string): never {
    throw new UserError(`${this.of.file.file}: tensor ${quote(tensor.name, 160)}: ${problem}`, ADAPTER_HINT);
  }

  /** Throws UserError where a tensor is not of this shape. */
  require(tensor: AdapterTensor, ...shape: readonly number[]): void {
    if (tensor.shape.length !== shape.length || shape.some((extent, i) => tensor.shape[i] !== extent))
      this.fail(
        tensor,
        `its shape is [${tensor.shape.join(', ')}], but config and model require [${shape.join(', ')}]`,
      );
  }

  /** The product in a wrapper, of `experts` matrices [outputs, inputs]. */
  product(parts: ReadonlyMap<Part, AdapterTensor>, key: string, outputs: number, inputs: number, experts = 1): Product {
    const [a, b] = [parts.get('A')!, parts.get('B')!];
    const { rank, scale } = this.of.targets.productOf(key);
    this.require(a, rank * experts, inputs);
    this.require(b, outputs, rank * experts);
    this.scales.set(b, scale);
    return { a, b, rank, scale };
  }

  linear({ module, path }: Owned, parts: ReadonlyMap<Part, AdapterTensor>): void {
    const weight = module.parameters.get('weight')!;
    const product = this.product(parts, path, at(weight.shape, 0), columnsOf(weight));
    for (const piece of weight.pieces) this.products.set(piece.tensor, this.lowRank(product, piece, columnsOf(weight)));
  }

  /** The rows of a product that are a tensor's. */
  lowRank({ a, b, rank, scale }: Product, { tensor, rows, rowOf }: Piece, inputs: number): LowRank {
    const { file } = this.of;
    return {
      tensor,
      rank,
      inputs,
      outputs: rows,
      scale,
      read: () => {
        const all = file.read(b);
        const own = new Float32Array(rows * rank);
        for (let row = 0; row < rows; row++) {
          const from = rowOf(row) * rank;
          own.set(all.subarray(from, from + rank), row * rank);
        }
        return { a: file.read(a), b: own };
      },
    };
  }
}

/** Throws UserError for what does not fit the model or its own configuration. */
export function resolveModules(of: Resolution): Resolved {
  const { collected, targets, model, modules, config } = of;
  const resolver = new Resolver(of);
  for (const module of modules.values()) {
    const path = collected.nameOf(module.path);
    const owned = collected.owned.get(module.path);
    const parts = owned?.wrappers[0];
    const isTarget = module.kind !== 'experts' && targets.has(path);
    if (owned === undefined || parts === undefined) {
      if (isTarget && module.kind === 'linear')
        throw new UserError(
          `${of.file.file}: no tensors of ${quote(path, 160)}, which the config targets`,
          ADAPTER_HINT,
        );
      continue;
    }
    const [other] = [...parts.values()].filter(({ part }) => part !== 'A' && part !== 'B');
    if (module.kind !== 'linear' || other !== undefined || config.hasMagnitudes)
      resolver.fail(other ?? [...parts.values()][0]!, 'not supported yet');
    if (!isTarget) resolver.fail([...parts.values()][0]!, 'the config does not target its module');
    const missing = parts.has('A') ? (parts.has('B') ? undefined : 'lora_B') : 'lora_A';
    if (missing !== undefined) resolver.fail([...parts.values()][0]!, `its module has no ${missing}`);
    resolver.linear(owned, parts);
  }
  targets.requireMatched();
  const { products, changes, scales, warnings } = resolver;
  return { model, products, changes, scales, warnings };
}
