/**
 * Plans that were made before, in the cache folder, and compiled models as bytes: what the cache keeps, and what a
 * process that plans hands to one that loads.
 *
 * An entry is found by everything that a plan depends on: the model as its configuration and its tensors say, the
 * machine, the options and this program's code. So what is found is what planning would give, and is used as it is;
 * cacheEntries.ts says whom that trusts.
 */
import { createHash } from 'node:crypto';
import type { Plan } from '../../ir/plan.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { MaskKind } from '../../models/model/model.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import { defined } from '../../system/defined.js';
import { keepCacheEntry, readCacheEntry } from '../cacheEntries.js';
import type { KvCache } from '../precision.js';
import { programId } from '../program.js';
import { TARGET_RECORDS } from '../targets/index.js';
import type { KernelFacts } from '../targets/machineCode.js';
import type { AnyTarget, CompiledModel, KnownPlan, Target } from '../targets/target.js';

/** Ends the header. JSON has no line breaks of its own. The plan, its kernels and the graph follow. */
const END = 10;

type Header = Omit<CompiledModel, 'target' | 'graphText' | 'plan' | 'known'> & {
  readonly target: string;
  /** SHA-256 of the plan's bytes, or of the bytes that they were read from. */
  readonly digest: string;
  readonly planBytes: number;
  /** What came with the plan about its kernels; 0: nothing. */
  readonly kernelBytes: number;
};

/** Marks a value that JSON does not have. No name of a plan contains it. */
const MARK = '\u0001';
const MAP = 'map';

/** Numbers of JSON that are read as those that JSON.stringify does not write. */
const NUMBERS: Readonly<Record<string, string>> = { inf: '1e999', '-inf': '-1e999', '-0': '-0' };

function replaced(_: string, value: unknown): unknown {
  if (typeof value === 'number') {
    if (value === Infinity) return `${MARK}inf`;
    if (value === -Infinity) return `${MARK}-inf`;
    if (Object.is(value, -0)) return `${MARK}-0`;
  }
  return value instanceof Map ? { [MARK + MAP]: [...value] } : value;
}

/** JSON of data, of numbers without NaN and of maps. */
export const printData = (data: unknown): string =>
  JSON.stringify(data, replaced).replaceAll(/"\\u0001(-?\w+)"(?!:)/g, (whole, name: string) => NUMBERS[name] ?? whole);

/** The other way, for data with maps. Without maps, JSON.parse does it ten times as fast. */
const parseMaps = (text: string): unknown =>
  JSON.parse(text, (_, value: unknown) =>
    typeof value === 'object' && value !== null && `${MARK}${MAP}` in value
      ? new Map(value[`${MARK}${MAP}`] as readonly [unknown, unknown][])
      : value,
  );

/** A compiled model, and its bytes. */
export interface PackedModel {
  readonly bytes: Uint8Array;
  /** The model, whose plan is known now. */
  readonly model: CompiledModel;
}

/** The bytes of a compiled model, and the model with the digest of its plan. Numbers keep their bits. */
export function packKnown(model: CompiledModel): PackedModel {
  const { target, graphText, plan, known: before, ...facts } = model;
  const planJson = Buffer.from(printData(plan));
  const known: KnownPlan =
    before?.plan === plan ? before : { plan, digest: createHash('sha256').update(planJson).digest('hex') };
  const kernels = Buffer.from(known.kernels === undefined ? '' : JSON.stringify(known.kernels));
  const sizes = { planBytes: planJson.length, kernelBytes: kernels.length };
  const header: Header = { ...facts, target: target.name, digest: known.digest, ...sizes };
  const bytes = Buffer.concat([Buffer.from(`${printData(header)}\n`), planJson, kernels, Buffer.from(graphText)]);
  const same: CompiledModel = { ...model, known };
  packed.set(same, bytes);
  return { bytes, model: same };
}

/** Models and the bytes that they were read from or written to. */
const packed = new WeakMap<CompiledModel, Uint8Array>();

/** The bytes of a compiled model. One that came of bytes has them still. */
export const packModel = (model: CompiledModel): Uint8Array => packed.get(model) ?? packKnown(model).bytes;

/** The same model with memory for the keys and values of other tokens. Nothing of its plan depends on their number. */
export function withCacheTokens<S, D>(
  model: CompiledModel<S, D>,
  cacheTokens: number | undefined,
): CompiledModel<S, D> {
  if (model.cacheTokens === cacheTokens) return model;
  // The text of the graph stays as it is, decoded or not.
  const same: CompiledModel = Object.defineProperty(
    Object.defineProperties({}, Object.getOwnPropertyDescriptors(model)) as CompiledModel,
    'cacheTokens',
    { value: cacheTokens, enumerable: true },
  );
  const bytes = packed.get(model as CompiledModel);
  if (bytes !== undefined) {
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const end = buffer.indexOf(END);
    const header = { ...(parseMaps(buffer.toString('utf8', 0, end)) as Header), ...defined({ cacheTokens }) };
    packed.set(same, Buffer.concat([Buffer.from(printData(header)), buffer.subarray(end)]));
  }
  return same as CompiledModel<S, D>;
}

/** The model of the bytes that packModel made. The text of its graph is decoded when it is read. */
export function unpackModel(bytes: Uint8Array, targets: readonly AnyTarget[] = TARGET_RECORDS): CompiledModel {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const begin = buffer.indexOf(END) + 1;
  const { target, digest, planBytes, kernelBytes, ...facts } = parseMaps(buffer.toString('utf8', 0, begin)) as Header;
  const record = targets.find(({ name }) => name === target);
  if (record === undefined) throw new Error(`A packed model is for ${target}, which is no target.`);
  const [planEnd, end] = [begin + planBytes, begin + planBytes + kernelBytes];
  const plan = JSON.parse(buffer.toString('utf8', begin, planEnd)) as Plan<unknown>;
  const kernels =
    kernelBytes === 0 ? {} : { kernels: JSON.parse(buffer.toString('utf8', planEnd, end)) as KernelFacts };
  let graphText: string | undefined;
  const model: CompiledModel = {
    ...facts,
    target: record,
    plan,
    known: { plan, digest, ...kernels },
    get graphText() {
      return (graphText ??= buffer.toString('utf8', end));
    },
  };
  packed.set(model, bytes);
  return model;
}

/** What a plan can be asked for. */
export interface PlanOptions {
  readonly mask?: MaskKind;
  /** Largest micro-batch, in packed tokens. Default: the model's context, within the target's bounds. */
  readonly batchTokens?: number;
  /** Adds the functions `step` and `copy`; the most tokens whose keys and values there is memory for. */
  readonly cacheTokens?: number;
  /** Rows of their states. Default: RESERVED_ROWS, behind which memory is mapped. */
  readonly cacheRows?: number;
  /** How keys and values are kept. Default: in the type that attention multiplies. */
  readonly kvCache?: KvCache;
  /** `step` chooses tokens from whole rows of logits where it is asked to. */
  readonly logits?: boolean;
  /** `step` takes tokens that the call before it has drawn. Such a plan is for one device: it is no pipeline. */
  readonly feeds?: boolean;
  /** `step` returns rows of the residual stream behind the last norm. */
  readonly hidden?: boolean;
  /** Slots for adapters beside the matrices of layers. */
  readonly adapters?: AdapterSlots;
}

/** Everything that planning reads. Where the values of a tensor lie is no part of it, nor what they are. */
export interface PlanInputs<D> {
  readonly checkpoint: Pick<Checkpoint, 'config' | 'model' | 'tensors'>;
  readonly target: Pick<Target<unknown, D>, 'name'>;
  readonly device: D;
  readonly options: PlanOptions;
}

/** How a tensor is stored: whatever decides about kernels and layouts. */
function storageOf(tensor: TensorLocation): readonly unknown[] {
  switch (tensor.kind) {
    case 'encoded':
      return [tensor.encoding, tensor.rows, tensor.view, tensor.columns];
    case 'random':
      return [tensor.group, tensor.isMicroscaled];
    case 'file':
    case 'assembled':
    case 'constant':
      return [];
    default:
      return tensor satisfies never;
  }
}

/** The key of a plan: SHA-256, hexadecimal. `program`: of the code that plans. */
export function planKey<D>({ checkpoint, target, device, options }: PlanInputs<D>, program = programId()): string {
  const { config, model, tensors } = checkpoint;
  const hash = createHash('sha256');
  const add = (data: unknown): void => {
    hash.update(`${printData(data)}\n`);
  };
  // How many tokens there is memory for is decided when the plan is loaded.
  const { cacheTokens, ...planned } = options;
  add({ program, target: target.name, device, keeps: cacheTokens !== undefined, ...planned });
  add(config);
  if (model.draft !== undefined) add([model.draft.name, model.draft.config]);
  // A family names its tensors in more than one way, and reads parts of them.
  hash.update(JSON.stringify([...model.tensors, ...(model.draft?.tensors ?? [])]));
  // Thousands of tensors are stored in a few ways.
  const ways = new Map<string, number>();
  const lines: string[] = [];
  for (const [name, tensor] of tensors) {
    const storage = storageOf(tensor);
    const way = `${tensor.kind} ${tensor.format} ${storage.length === 0 ? '' : JSON.stringify(storage)}`;
    let number = ways.get(way);
    if (number === undefined) {
      number = ways.size;
      ways.set(way, number);
      add(way);
    }
    lines.push(name, `${number} ${tensor.shape.join(' ')}`);
  }
  return hash.update(JSON.stringify(lines)).digest('hex');
}

/** The model of an entry; undefined where there is none, or its bytes are no model. */
export function readModel<S, D>(key: string, target: Target<S, D>): CompiledModel<S, D> | undefined {
  const bytes = readCacheEntry('plan', key);
  if (bytes === undefined) return undefined;
  try {
    return unpackModel(bytes, [target as AnyTarget]) as CompiledModel<S, D>;
  } catch {
    return undefined;
  }
}

/** Keeps a model, and returns it with the digest of its plan. */
export function keepModel<S, D>(key: string, compiled: CompiledModel<S, D>): CompiledModel<S, D> {
  const { bytes, model } = packKnown(compiled as CompiledModel);
  keepCacheEntry('plan', key, bytes);
  return model as CompiledModel<S, D>;
}
