/**
 * The translation unit of a kernel: includes, the Config, what the kernel computes around its main loop as functors,
 * and the instance. Everything else is in headers.
 */
import type { Kernel } from '../../../ir/kernel.js';
import type { CudaOperands } from './operands.js';
import { render } from './statements.js';

/** A value of a Config's field; `{ name: 'Mode::Deferred' }` is a constant of a header. */
export type ConfigValue = number | boolean | readonly number[] | { readonly name: string } | ConfigFields;
export interface ConfigFields {
  readonly [field: string]: ConfigValue;
}

export interface UnitText {
  /** One line: the path of the kernel, without the number of its layer, and its schedule. */
  readonly about: string;
  /** Headers, as `gemm/mma.cuh`. */
  readonly includes: readonly string[];
  /** The struct of the Config, in the kernel's header, and its fields, in the order in which it declares them. */
  readonly config?: { readonly type: string; readonly fields: ConfigFields };
  /** Structs with the prologue and the epilogue, as text. */
  readonly functors: readonly string[];
  /** The kernel's head up to its opening brace (kernelHead), and the statements of its body. */
  readonly head: string;
  readonly body: string;
}

/** The first line of a unit: a kernel's path without the number of its layer, and how it is scheduled. */
export const aboutKernel = ({ path }: Pick<Kernel, 'path'>, schedule: string): string =>
  `${path.replaceAll(/[^A-Za-z0-9_.]/g, '').replaceAll(/\.\d+(?=\.|$)/g, '')}: ${schedule}`;

const isName = (value: ConfigValue): value is { readonly name: string } =>
  typeof value === 'object' && 'name' in value && typeof value.name === 'string';

const isList = (value: ConfigValue): value is readonly number[] => Array.isArray(value);

/** tileM → tile_m: names of fields in C++. */
export const snakeCase = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

function fieldLines(fields: ConfigFields, depth: number): string[] {
  const pad = '  '.repeat(depth);
  return Object.entries(fields).flatMap(([name, value]) => {
    if (typeof value === 'number' || typeof value === 'boolean') return [`${pad}.${snakeCase(name)} = ${value},`];
    if (isList(value)) return [`${pad}.${snakeCase(name)} = { ${value.join(', ')} },`];
    if (isName(value)) return [`${pad}.${snakeCase(name)} = ${value.name},`];
    return [`${pad}.${snakeCase(name)} = {`, ...fieldLines(value, depth + 1), `${pad}},`];
  });
}

/** `constexpr TYPE config = { .tile_m = 128, … };`, a field a line. */
export const configText = (type: string, fields: ConfigFields, name = 'config'): string =>
  [`constexpr ${type} ${name} = {`, ...fieldLines(fields, 1), '};'].join('\n');

/** A call as a statement, an argument a line where they are long. */
export function callText(callee: string, given: readonly string[]): string {
  const line = `${callee}(${given.join(', ')});`;
  return line.length <= 100 ? line : `${callee}(\n${given.map((each) => `      ${each}`).join(',\n')});`;
}

/**
 * A struct of buffers by the names of its fields, in the order in which it declares them; absent ones are left out.
 * `{ code }` is an expression of its own. `pad`: what stands before the line that it is part of.
 */
export function buffersText(
  type: string,
  operands: CudaOperands,
  fields: Readonly<Record<string, string | readonly string[] | { readonly code: string } | undefined>>,
  pad = '  ',
): string {
  const name = (buffer: string): string => operands.nameOf(operands.get(buffer));
  const text = (value: string | readonly string[] | { readonly code: string }): string => {
    if (typeof value === 'string') return name(value);
    return 'code' in value ? value.code : `{ ${value.map(name).join(', ')} }`;
  };
  const given = Object.entries(fields).flatMap(([field, value]) =>
    value === undefined ? [] : [`.${snakeCase(field)} = ${text(value)}`],
  );
  const line = `${type}{ ${given.join(', ')} }`;
  return line.length <= 80 ? line : `${type}{\n${given.map((each) => `${pad}    ${each},\n`).join('')}${pad}}`;
}

export const unitText = ({ config, ...unit }: UnitText): string =>
  render('unit', {
    ...unit,
    head: unit.head.trimEnd(),
    body: unit.body.trimEnd(),
    functors: unit.functors.map((text) => text.trimEnd()).filter((text) => text !== ''),
    config: config === undefined ? '' : configText(config.type, config.fields),
  });
