/**
 * Functors of a unit: structs whose members are the parameters that their text names, and whose methods a kernel's
 * header calls.
 */
import { type CudaOperands, ELEMENT_TYPES } from './operands.js';
import { indent } from './statements.js';

export interface Functor {
  /** The struct, for UnitText.functors. */
  readonly text: string;
  /** The expression that makes one of a kernel's parameters: `Epilogue{ hidden, weights }`. */
  readonly instance: string;
}

/** A method with all of its text: `head` up to its opening brace, and the lines between its braces. */
export interface Method {
  readonly head: string;
  readonly lines: readonly string[];
}

/** Names but for those of members of something else. */
const NAMES = /(?<![.A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*/g;

/**
 * The struct `name`: its constants (`static constexpr int columns = 4096;`), a member for each extent and parameter
 * that its methods name, in their order, and the methods.
 */
export function functorOf(
  operands: CudaOperands,
  name: string,
  methods: readonly Method[],
  constants: readonly string[] = [],
): Functor {
  const named = new Set(methods.flatMap(({ lines }) => lines.join('\n').match(NAMES) ?? []));
  const members = operands.parameters.filter((operand) => named.has(operands.nameOf(operand)));
  const sizes = operands.extents.filter((extent) => named.has(extent));
  const names = [...sizes, ...members.map((operand) => operands.nameOf(operand))];
  const lines = [
    ...constants,
    ...sizes.map((extent) => `int ${extent};`),
    ...members.map((operand) => `${ELEMENT_TYPES[operand.dtype]} *${operands.nameOf(operand)};`),
    ...methods.flatMap((method, i) => [
      ...(i + constants.length + members.length > 0 ? [''] : []),
      `${method.head} {`,
      ...indent(method.lines, 1).trimEnd().split('\n'),
      '}',
    ]),
  ];
  const instance = names.length === 0 ? `${name}{}` : `${name}{ ${names.join(', ')} }`;
  return { text: `struct ${name} {\n${indent(lines, 1).replaceAll(/[ ]+$/gm, '').trimEnd()}\n};`, instance };
}
