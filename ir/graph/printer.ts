/** Deterministic text of a graph. `parse(print(g))` is g; see parser.ts for the grammar. */
import type { ExtentDecl } from '../extents.js';
import { printRole } from '../function.js';
import type { Attribute } from '../ops/opDef.js';
import { isSymbol, printType } from '../types.js';
import { defaultOutput, type Graph, type GraphModule, type Node, type Value } from './graph.js';

/** `%name`, or `@name` for a weight. */
export const printValue = (v: Value): string => (v.kind === 'weight' ? `@${v.name}` : `%${v.name}`);

/** -Infinity, integers and decimals print so that they parse back to the same double. */
const printNumber = (n: number): string =>
  n === -Infinity ? '-inf' : n === Infinity ? 'inf' : Object.is(n, -0) ? '-0' : String(n);

function printAttribute(a: Attribute): string {
  if (typeof a === 'number') return printNumber(a);
  if (typeof a === 'boolean') return String(a);
  if (typeof a === 'string') return JSON.stringify(a);
  return `[${a.map((entry) => (typeof entry === 'number' ? printNumber(entry) : entry)).join(', ')}]`;
}

export function printNode(node: Node): string {
  const attributes = Object.entries<Attribute | undefined>(node.attributes)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([name, value]) => (value === undefined ? [] : [`${name} = ${printAttribute(value)}`]));
  const braces = attributes.length === 0 ? '' : ` {${attributes.join(', ')}}`;
  const at = node.path === '' ? '' : ` at ${JSON.stringify(node.path)}`;
  return (
    `${printValue(node.result)} = ${node.op}(${node.inputs.map(printValue).join(', ')})${braces} : ` +
    `${printType(node.result.type)}${at}`
  );
}

const printExtent = ({ name, counts, within }: ExtentDecl): string =>
  [name, ...(counts === undefined ? [] : [counts]), ...(within === undefined ? [] : ['within', within])].join(' ');

/** `[T tokens, R rows]`; empty if the parameters imply the same. */
function printExtents({ extents, params }: Graph): string {
  const implied = [...new Set(params.flatMap((p) => p.type.shape.filter(isSymbol)))];
  const goesWithoutSaying =
    extents.length === implied.length &&
    extents.every(({ counts, within, name }, i) => (counts ?? within) === undefined && name === implied[i]);
  return goesWithoutSaying ? '' : `[${extents.map(printExtent).join(', ')}]`;
}

/** `%row: i32[R] is row(T)`. The default role `values` is not printed. */
const printParam = (p: Value): string =>
  `${printValue(p)}: ` +
  `${printType(p.type)}${p.role === undefined || p.role.kind === 'values' ? '' : ` is ${printRole(p.role)}`}`;

/** `; %kv: state @kv`: what stands behind the parameters or the results; nothing where there is none. */
const behind = (list: readonly string[]): string => (list.length === 0 ? '' : `; ${list.join(', ')}`);

const printState = ({ name, type }: Value): string => `state @${name} : ${printType(type)}\n`;

/**
 *     func @score[T tokens](%tokens: i32[T] is token(32)) -> (f32[T, 4]) {
 *       weight @embed : bf16[32, 4]
 *       %x = gather_rows(@embed, %tokens) : bf16[T, 4] at "embed"
 *       return %x
 *     }
 */
function printFunction(graph: Graph): string {
  const params = graph.params.map(printParam).join(', ');
  const extents = printExtents(graph);
  const results = graph.results
    .map((r, i) => (graph.outputs[i] === defaultOutput(i) ? '' : `%${graph.outputs[i]!}: `) + printType(r.type))
    .join(', ');
  const lines = [
    ...graph.weights.map((w) => `weight ${printValue(w)} : ${printType(w.type)}`),
    ...graph.nodes.map(printNode),
    `return ${graph.results.map(printValue).join(', ')}`.trimEnd(),
  ];
  const takes = behind(graph.states.map(({ name }) => `%${name}: state @${name}`));
  const gives = behind(graph.gives.map(printValue));
  const head = `func @${graph.name}${extents}(${params}${takes}) -> (${results}${gives})`;
  return `${head} {\n${lines.map((l) => `  ${l}\n`).join('')}}\n`;
}

/** A function, below the states that it takes. */
export const printGraph = (graph: Graph): string => graph.states.map(printState).join('') + printFunction(graph);

/**
 *     module @keeper {
 *       state @kv : bf16[4096, 64]
 *       func @step[N new](%slot: i32[N] is slot(@kv); %kv: state @kv) -> (f32[N]; %kv1) {
 *         …
 */
export function printModule({ name, functions }: GraphModule): string {
  const states = new Map(functions.flatMap((graph) => graph.states.map((state) => [state.name, state])));
  const text = [...[...states.values()].map(printState), ...functions.map(printFunction)].join('');
  return `module @${name} {\n${text.replace(/^(?=.)/gm, '  ')}}\n`;
}
