/**
 * A compiled model as bytes: what a process that plans hands to one that loads, and what the plan cache keeps. Its
 * reader trusts what it reads; driver/cacheEntries.ts says why it may.
 */
import { createHash } from 'node:crypto';
import type { Plan } from '../../ir/plan.js';
import { TARGET_RECORDS, type AnyTarget, type CompiledModel } from '../targets/index.js';
import type { KernelFacts } from '../targets/kernelFacts.js';
import type { KnownPlan } from '../targets/target.js';

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

/** The model of the bytes that packModel made. The text of its graph is decoded when somebody reads it. */
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
