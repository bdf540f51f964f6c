/**
 * The translation unit of a kernel as C: includes, register tiles, what it computes around its main loop as functions,
 * and one call with its Config. Everything else is in headers.
 */
import type { Kernel } from '../../ir/kernel.js';
import { plainNames } from '../cuda/text/names.js';
import { snakeCase } from '../cuda/text/unit.js';

/** A value of a Config's field. Text is C. */
export type ConfigValue = number | boolean | string | ConfigFields | readonly ConfigValue[];
export interface ConfigFields {
  readonly [field: string]: ConfigValue | undefined;
}

/** A function that kernels call. Kernels that need the same function share it. */
export interface Helper {
  readonly name: string;
  readonly source: string;
}

/** What a generator prints of a kernel. */
export interface Emitted {
  /** Headers, as `gemm/floats.h`. */
  readonly includes: readonly string[];
  /** Functions that other kernels may share. */
  readonly helpers: readonly Helper[];
  /** Functions of this kernel, the exported one last. */
  readonly source: string;
  /** Bytes of scratch memory that each worker needs. */
  readonly scratchBytes: number;
}

/** `{ .rows = 4, … }`: fields that are undefined, 0 or false are left out, which C makes 0. */
function valueText(value: ConfigValue): string {
  if (typeof value !== 'object') return String(value === true ? 1 : value);
  if (Array.isArray(value)) return `{ ${(value as readonly ConfigValue[]).map(valueText).join(', ')} }`;
  const fields = Object.entries(value as ConfigFields).flatMap(([name, each]) =>
    each === undefined || each === 0 || each === false ? [] : [`.${snakeCase(name)} = ${valueText(each)}`],
  );
  return fields.length === 0 ? '{ 0 }' : `{ ${fields.join(', ')} }`;
}

/** `.rows = 4, …` in lines of at most 120 columns. */
export function argumentsText(fields: ConfigFields, depth = 1): string {
  const pad = '  '.repeat(depth);
  const lines: string[] = [];
  for (const each of Object.entries(fields)) {
    const text = valueText(Object.fromEntries([each]));
    if (text === '{ 0 }') continue;
    const field = text.slice(2, -2);
    const last = lines.at(-1);
    if (last !== undefined && pad.length + last.length + field.length < 116)
      lines[lines.length - 1] = `${last}, ${field}`;
    else lines.push(field);
  }
  return lines.map((line) => pad + line).join(',\n');
}

/** A table of constants inside a function. */
export const constantTable = (type: string, name: string, values: readonly ConfigFields[]): string =>
  `  static const ${type} ${name}[] = {\n${values.map(rowText).join('')}  };\n`;

const rowText = (fields: ConfigFields): string => `    {\n${argumentsText(fields, 3)},\n    },\n`;

/** The same of whole numbers. */
export const constantNumbers = (name: string, values: readonly number[]): string =>
  `  static const int ${name}[] = { ${values.join(', ')} };\n`;

/** The function that is exported: tables, the Config, and the call of a header's function. */
export const kernelFunction = ({
  symbol,
  tables,
  type,
  config,
  call,
}: {
  readonly symbol: string;
  readonly tables: readonly string[];
  readonly type: string;
  readonly config: ConfigFields;
  readonly call: string;
}): string =>
  `void ${symbol}(const tw_launch *launch, int32_t worker, int32_t workers) {\n${tables.join('')}` +
  `  const ${type} config = {\n${argumentsText(config, 2)},\n  };\n  ${call}(config, launch, worker, workers);\n}\n`;

/** The first line of a unit: a kernel's path without the number of its layer. */
const aboutKernel = ({ anchor, path }: Kernel, schedule: string): string =>
  `/* ${path.replaceAll(/[^A-Za-z0-9_.]/g, '').replaceAll(/\.\d+(?=\.|$)/g, '')}: ${anchor}, ${schedule}. */\n`;

/** `Buffers: 0 x, 1 weight, …`, in lines of at most 120 columns. */
function buffersText(names: readonly string[]): string {
  const lines: string[] = [];
  for (const each of plainNames(names).map((name, i) => `${i} ${name}${i + 1 < names.length ? ',' : ''}`)) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + each.length < 105) lines[lines.length - 1] = `${last} ${each}`;
    else lines.push(each);
  }
  return `/* Buffers: ${lines.join('\n   ')} */\n`;
}

/** A kernel as a text that compiles alone. `parameters`: names of its buffers, in order. */
export function unitText(
  kernel: Kernel,
  schedule: object,
  { includes, helpers, source }: Emitted,
  parameters: readonly string[],
): string {
  const unique = new Map(helpers.map((helper) => [helper.name, helper.source]));
  const { kind: _, isa, ...sizes } = schedule as { readonly kind: string; readonly isa: string };
  const about = [isa, ...Object.entries(sizes).map(([name, value]) => `${name} ${value}`)].join(', ');
  const head =
    aboutKernel(kernel, about) + buffersText(parameters) + includes.map((name) => `#include "${name}"\n`).join('');
  return [head, ...unique.values(), source].join('\n');
}
