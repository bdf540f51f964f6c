/** Adapters with random numbers for any checkpoint in safetensors, written as PEFT writes them. */
import { closeSync, mkdirSync, openSync, readdirSync, readSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { random, safetensorsFile, type StoredTensor } from '../e2e/smallModel.js';

export interface RandomAdapter {
  readonly seed: number;
  readonly rank?: number;
  /** Modules with products: patterns of ends of their paths. */
  readonly targets: RegExp;
  readonly hasMagnitudes?: boolean;
  readonly hasProductBiases?: boolean;
  /** Biases of the base that are replaced. */
  readonly biases?: 'all' | 'lora_only';
  /** Modules that it has whole, and the shapes of those that the base lacks. */
  readonly saved?: readonly string[];
  readonly added?: Readonly<Record<string, readonly number[]>>;
  /** Rows of the embedding that are its own. */
  readonly tokens?: readonly number[];
  /** Matrices of layers are stored as [in, out]. */
  readonly isTurned?: true;
  /** Experts of a layer in one module: paths by the number of the layer, experts, and widths [hidden, intermediate]. */
  readonly experts?: {
    readonly path: string;
    readonly count: number;
    readonly widths: readonly [number, number];
    /** Factors are those of matrices [in, out]. */
    readonly isTurned?: true;
  };
  /** Keys of adapter_config.json beside those that follow. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** Names and shapes of a checkpoint's tensors. */
export function shapesOf(model: string): ReadonlyMap<string, readonly number[]> {
  const shapes = new Map<string, readonly number[]>();
  for (const file of readdirSync(model).filter((name) => name.endsWith('.safetensors'))) {
    const fd = openSync(join(model, file), 'r');
    const length = Buffer.alloc(8);
    readSync(fd, length, 0, 8, 0);
    const header = Buffer.alloc(Number(length.readBigUInt64LE()));
    readSync(fd, header, 0, header.length, 8);
    closeSync(fd);
    const entries = JSON.parse(header.toString()) as Readonly<Record<string, { readonly shape: readonly number[] }>>;
    for (const [name, { shape }] of Object.entries(entries)) if (name !== '__metadata__') shapes.set(name, shape);
  }
  return shapes;
}

/** Writes an adapter of the checkpoint into a folder. */
export function writeRandomAdapter(model: string, dir: string, asked: RandomAdapter): void {
  const { seed, rank = 8, targets, saved = [], added = {}, tokens, experts, biases } = asked;
  mkdirSync(dir, { recursive: true });
  const next = random(seed);
  const tensors: StoredTensor[] = [];
  const add = (name: string, shape: readonly number[], width = 0.5, middle = 0): void => {
    const count = shape.reduce((all, extent) => all * extent, 1);
    const values = Float32Array.from({ length: count }, () => middle + (next() - 0.5) * width);
    tensors.push({ name: `base_model.model.${name}`, shape, values });
  };
  const shapes = shapesOf(model);
  const isSaved = (path: string): boolean => saved.some((name) => path.endsWith(name));
  for (const [name, shape] of shapes) {
    const [, path = name, parameter] = /^(.+)\.(weight|bias)$/.exec(name) ?? [];
    if (isSaved(path)) {
      add(name, shape, 0.3, /norm/.test(path) ? 1 : 0);
      continue;
    }
    const isTarget = targets.test(path);
    if (parameter === 'bias' && (biases === 'all' || (biases === 'lora_only' && isTarget)))
      add(isTarget ? `${path}.base_layer.bias` : name, shape);
    if (parameter !== 'weight' || !isTarget) continue;
    const isTable = /embed_tokens$|wte$|wpe$/.test(path);
    const [rows = 0, columns = 0] = asked.isTurned === true && !isTable ? shape.toReversed() : shape;
    if (isTable) {
      add(`${path}.lora_embedding_A`, [rank, rows]);
      add(`${path}.lora_embedding_B`, [columns, rank]);
    } else {
      add(`${path}.lora_A.weight`, [rank, columns]);
      add(`${path}.lora_B.weight`, [rows, rank]);
      if (asked.hasProductBiases === true) add(`${path}.lora_B.bias`, [rows]);
    }
    if (asked.hasMagnitudes === true) add(`${path}.lora_magnitude_vector`, [isTable ? columns : rows], 0.6, 1.2);
  }
  for (const [name, shape] of Object.entries(added)) add(name, shape);
  if (tokens !== undefined)
    add('model.embed_tokens.token_adapter.trainable_tokens_delta', [tokens.length, shapes.get(EMBEDDING)![1]!]);
  if (experts !== undefined) {
    const {
      path,
      count,
      widths: [hidden, inner],
      isTurned,
    } = experts;
    for (let layer = 0; shapes.has(`model.layers.${layer}.input_layernorm.weight`); layer++) {
      const module = path.replace('*', String(layer));
      const here = new RegExp(`^model\\.layers\\.${layer}\\..*\\.experts\\.`);
      if (![...shapes.keys()].some((name) => here.test(name))) continue;
      const product = (wrapper: string, inputs: number, outputs: number): void => {
        const [from, to] = isTurned === true ? [outputs, inputs] : [inputs, outputs];
        add(`${wrapper}.lora_A.weight`, [rank * count, from]);
        add(`${wrapper}.lora_B.weight`, [to, rank * count]);
      };
      product(`${module}.base_layer`, hidden, 2 * inner);
      product(module, inner, hidden);
    }
  }
  writeFileSync(join(dir, 'adapter_model.safetensors'), safetensorsFile(tensors));
  writeFileSync(
    join(dir, 'adapter_config.json'),
    JSON.stringify({
      ...{ peft_type: 'LORA', task_type: 'CAUSAL_LM', base_model_name_or_path: 'base', r: rank, lora_alpha: 2 * rank },
      ...{ use_dora: asked.hasMagnitudes ?? false, lora_bias: asked.hasProductBiases ?? false, bias: biases ?? 'none' },
      ...(saved.length === 0 ? {} : { modules_to_save: saved }),
      ...(tokens === undefined ? {} : { trainable_token_indices: tokens }),
      ...(experts === undefined ? {} : { target_parameters: ['experts.gate_up_proj', 'experts.down_proj'] }),
      ...asked.config,
    }),
  );
}

const EMBEDDING = 'model.embed_tokens.weight';
