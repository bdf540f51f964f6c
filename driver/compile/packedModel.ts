/**
 * A compiled model as bytes: what a process that plans hands to one that loads, and what the plan cache keeps. Its
 * reader trusts what it reads; driver/compile/planCache.ts says why it may.
 */
import type { Plan } from '../../ir/plan.js';
import { TARGET_RECORDS, type AnyTarget, type CompiledModel } from '../targets/index.js';

/** Between the header, the plan and the graph. JSON has no line breaks of its own. */
const END = 10;

type Header = Omit<CompiledModel, 'target' | 'graphText' | 'plan'> & {
  readonly target: string;
  readonly planBytes: number;
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

/** The bytes of a compiled model. Numbers keep their bits. */
export function packModel({ target, graphText, plan, ...facts }: CompiledModel): Uint8Array {
  const planJson = Buffer.from(printData(plan));
  const header: Header = { ...facts, target: target.name, planBytes: planJson.length };
  return Buffer.concat([Buffer.from(`${printData(header)}\n`), planJson, Buffer.from(graphText)]);
}

/** The model of the bytes that packModel made. The text of its graph is decoded when somebody reads it. */
export function unpackModel(bytes: Uint8Array, targets: readonly AnyTarget[] = TARGET_RECORDS): CompiledModel {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const begin = buffer.indexOf(END) + 1;
  const { target, planBytes, ...facts } = parseMaps(buffer.toString('utf8', 0, begin)) as Header;
  const record = targets.find(({ name }) => name === target);
  if (record === undefined) throw new Error(`A packed model is for ${target}, which is no target.`);
  const end = begin + planBytes;
  let graphText: string | undefined;
  return {
    ...facts,
    target: record,
    plan: JSON.parse(buffer.toString('utf8', begin, end)) as Plan<unknown>,
    get graphText() {
      return (graphText ??= buffer.toString('utf8', end));
    },
  };
}
