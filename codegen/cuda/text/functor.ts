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

const NAMES = /[A-Za-z_][A-Za-z0-9_]*/g;

/**
 * The struct `name`: its constants (`static constexpr int columns = 4096;`), a member for each parameter that its
 * methods name, in their order, and the methods.
 */
export function functorOf(
  operands: CudaOperands,
  name: string,
  methods: readonly Method[],
  constants: readonly string[] = [],
): Functor {
  const named = new Set(methods.flatMap(({ lines }) => lines.join('\n').match(NAMES) ?? []));
  const members = operands.parameters.filter((operand) => named.has(operands.nameOf(operand)));
  const lines = [
    ...constants,
    ...members.map((operand) => `${ELEMENT_TYPES[operand.dtype]} *${operands.nameOf(operand)};`),
    ...methods.flatMap((method, i) => [
      ...(i + constants.length + members.length > 0 ? [''] : []),
      `${method.head} {`,
      ...indent(method.lines, 1).trimEnd().split('\n'),
      '}',
    ]),
  ];
  const instance =
    members.length === 0 ? `${name}{}` : `${name}{ ${members.map((m) => operands.nameOf(m)).join(', ')} }`;
  return { text: `struct ${name} {\n${indent(lines, 1).replaceAll(/[ ]+$/gm, '').trimEnd()}\n};`, instance };
}
