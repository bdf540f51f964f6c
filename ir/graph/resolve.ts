/** Syntax tree → graph. Resolves names to values and words to ops and types, and checks everything where it stands. */
import { defined } from '../../system/defined.js';
import { EXTENT_NAME, type ExtentDecl } from '../extents.js';
import { type Role, ROLE_KINDS, STATE_NAME } from '../function.js';
import { isOpName, OP_NAMES, type OpName, OPS } from '../ops/index.js';
import type { Attribute, Attributes } from '../ops/opDef.js';
import { type Dim, DTYPES, isSymbol, printType, sameType, type TensorType } from '../types.js';
import { attributeProblem, inferred, MAX_DIM, MAX_RANK, NAME, PATH, WEIGHT_NAME } from './checkNode.js';
import { defaultOutput, type Graph, type GraphModule, moduleOf, type Node, type Value, withOperands } from './graph.js';
import {
  type AttributeSyntax,
  type DeclarationSyntax,
  type GraphSyntax,
  GraphSyntaxError,
  type Leaf,
  type ModuleSyntax,
  type NodeSyntax,
  type RoleSyntax,
  type Spot,
  type TakenSyntax,
  type TypeSyntax,
} from './syntax.js';

/** Throws GraphSyntaxError at the first name, type or op that is wrong. */
export function resolveModule({ name, states: declared, functions: bodies }: ModuleSyntax, file: string): GraphModule {
  if (name !== undefined && !NAME.test(name.text.slice(1)))
    throw new GraphSyntaxError(file, name.spot, `'${clip(name.text)}'`, `a name: ${NAME.source.slice(1, -1)}`);
  const states = new Map<string, TensorType>();
  for (const state of declared) {
    const [id, type] = new Resolver(file, states).state(state);
    states.set(id, type);
  }
  const functions = bodies.map((body) => new Resolver(file, states).graph(body));
  const stray = declared.find(
    ({ name: { text } }) => !functions.some((graph) => graph.states.some((state) => `@${state.name}` === text)),
  );
  if (stray !== undefined)
    throw new GraphSyntaxError(file, stray.name.spot, clip(stray.name.text), 'a state that a function takes');
  return name === undefined ? moduleOf(functions[0]!) : { name: name.text.slice(1), functions };
}

class Resolver {
  private readonly file: string;
  /** Keyed by text with sigil: parameters and results share `%`, weights have `@`. */
  private readonly values = new Map<string, Value>();
  private extents: ReadonlySet<string> = new Set();
  private readonly states: ReadonlyMap<string, TensorType>;

  /** `states`: those that are declared before the functions. */
  constructor(file: string, states: ReadonlyMap<string, TensorType>) {
    this.file = file;
    this.states = states;
  }

  /** Name and type of a declared state. */
  state({ name: leaf, type: syntax }: DeclarationSyntax): readonly [string, TensorType] {
    const name = this.name(leaf, STATE_NAME);
    if (this.states.has(name)) this.fail(leaf.spot, `a second '${leaf.text}'`, 'a name that is not taken');
    return [name, this.type(syntax)];
  }

  private taken({ name: leaf, state }: TakenSyntax): Value {
    const name = this.name(state, STATE_NAME);
    const type = this.states.get(name);
    if (type === undefined) return this.fail(state.spot, `'${clip(state.text)}'`, 'a state that is declared above');
    if (leaf.text !== `%${name}`) this.fail(leaf.spot, `'${clip(leaf.text)}'`, `%${name}, the name of the state`);
    return this.define(leaf, 'state', type);
  }

  graph(syntax: GraphSyntax): Graph {
    const name = this.name(syntax.name, NAME);
    const extents = extentsOf(syntax, (spot, found, expected) => this.fail(spot, found, expected));
    this.extents = new Set(extents.map((extent) => extent.name));
    const params = syntax.params.map((p) =>
      this.define(p.name, 'param', this.type(p.type), p.role === undefined ? { kind: 'values' } : this.role(p.role)),
    );
    const states = syntax.takes.map((state) => this.taken(state));
    const weights = syntax.weights.map((w) => {
      const type = this.type(w.type);
      if (type.shape.some(isSymbol))
        this.fail(w.type.dtype.spot, printType(type), 'a fixed shape: weights have no symbols');
      return this.define(w.name, 'weight', type);
    });
    const nodes = syntax.nodes.map((node) => this.node(node));
    const results = syntax.returned.map((leaf) => this.use(leaf));
    const gives = syntax.gives.map((leaf) => this.use(leaf));
    if (results.length === 0 && gives.length === 0)
      this.fail(syntax.returnSpot, 'a graph that returns nothing', 'at least one returned value');
    if (results.length !== syntax.resultTypes.length) {
      this.fail(
        syntax.returnSpot,
        `${results.length} returned values`,
        `${syntax.resultTypes.length}, as the head of the graph declares`,
      );
    }
    syntax.resultTypes.forEach(({ type: declared }, i) => {
      const type = this.type(declared);
      const value = results[i]!;
      if (!sameType(type, value.type))
        this.fail(
          declared.dtype.spot,
          printType(type),
          `${printType(value.type)}, the type of ${syntax.returned[i]!.text}`,
        );
    });
    const outputs = syntax.resultTypes.map((result, i) =>
      result.name === undefined ? defaultOutput(i) : this.name(result.name, NAME),
    );
    const twice = outputs.findIndex((output, i) => outputs.indexOf(output) < i);
    if (twice >= 0)
      this.fail(syntax.resultTypes[twice]!.type.dtype.spot, `a second output ${outputs[twice]!}`, 'another name');
    return { name, extents, params, states, weights, nodes, results, outputs, gives };
  }

  private role({ kind: leaf, argument }: RoleSyntax): Role {
    const kind = ROLE_KINDS.find((each) => each === leaf.text);
    if (kind === undefined) return this.fail(leaf.spot, `'${clip(leaf.text)}'`, `a role: ${ROLE_KINDS.join(', ')}`);
    const found = argument?.text ?? '';
    const spot = argument?.spot ?? leaf.spot;
    switch (kind) {
      case 'token': {
        const vocab = Number(found);
        if (!/^[0-9]+$/.test(found) || vocab < 1 || vocab > MAX_DIM)
          this.fail(spot, `'${clip(found)}'`, `the vocabulary: token(n), n from 1 to ${MAX_DIM}`);
        return { kind, vocab };
      }
      case 'adapter': {
        const slots = Number(found);
        if (!/^[0-9]+$/.test(found) || slots < 1 || slots > MAX_DIM)
          this.fail(spot, `'${clip(found)}'`, `a number of slots: adapter(n), n from 1 to ${MAX_DIM}`);
        return { kind, slots };
      }
      case 'row':
      case 'rowOrNone':
        if (!this.extents.has(found))
          this.fail(spot, `'${clip(found)}'`, `an extent of the function${list(this.extents)}`);
        return { kind, of: found };
      case 'slot':
      case 'entry':
      case 'entryOrNone':
        if (!found.startsWith('@')) this.fail(spot, `'${clip(found)}'`, `a state: ${kind}(@name)`);
        return { kind, state: this.name(argument!, NAME) };
      case 'position':
      case 'depth': {
        if (argument === undefined) return { kind };
        const below = Number(found);
        if (!/^[0-9]+$/.test(found) || below < 1 || below > MAX_DIM)
          this.fail(spot, `'${clip(found)}'`, `the longest context: ${kind}(n), n from 1 to ${MAX_DIM}, or ${kind}`);
        return { kind, below };
      }
      case 'subtreeEnd':
      case 'values':
        if (argument !== undefined) this.fail(spot, `'${clip(found)}'`, `nothing: '${kind}' takes no argument`);
        return { kind };
      default:
        return kind satisfies never;
    }
  }

  private node(syntax: NodeSyntax): Node {
    const op = this.op(syntax.op);
    const inputs = syntax.operands.map((leaf) => this.use(leaf));
    const attributes = this.attributes(syntax, op);
    const types = inputs.map((v) => v.type);
    const type = inferred(OPS[op], types, attributes);
    const call = `${op}(${types.map(printType).join(', ')})`;
    if (typeof type === 'string') return this.fail(syntax.op.spot, call, `operands that the op accepts: ${type}`);
    const declared = this.type(syntax.type);
    if (!sameType(type, declared))
      this.fail(syntax.type.dtype.spot, printType(declared), `${printType(type)}, the type of ${call}`);
    const path = syntax.path === undefined ? '' : this.string(syntax.path);
    if (syntax.path !== undefined && (path === '' || !PATH.test(path)))
      this.fail(syntax.path.spot, clip(syntax.path.text), 'a model path ("layers.3.attention")');
    return withOperands(op, inputs, attributes, this.define(syntax.result, 'result', type), path);
  }

  private op(leaf: Leaf): OpName {
    if (isOpName(leaf.text)) return leaf.text;
    return this.fail(leaf.spot, `'${clip(leaf.text)}'`, `an op: ${[...OP_NAMES].sort().join(', ')}`);
  }

  private attributes(syntax: NodeSyntax, op: OpName): Attributes {
    const entries = new Map<string, Attribute>();
    for (const attribute of syntax.attributes) {
      const { name } = attribute;
      if (entries.has(name.text)) this.fail(name.spot, `a second '${name.text}'`, 'each attribute once');
      entries.set(name.text, this.attribute(attribute));
    }
    const attributes = Object.fromEntries(entries);
    const problem = attributeProblem(op, OPS[op], attributes);
    if (problem !== undefined) {
      const at = syntax.attributes.find((a) => a.name.text === problem.name);
      this.fail(at?.name.spot ?? syntax.op.spot, clip(problem.found), problem.expected);
    }
    return attributes;
  }

  private attribute({ value }: AttributeSyntax): Attribute {
    if (isList(value)) return value.map((entry) => (isNumeric(entry.text) ? this.number(entry) : entry.text));
    if (value.text === 'true' || value.text === 'false') return value.text === 'true';
    return value.text.startsWith('"') ? this.string(value) : this.number(value);
  }

  private type(syntax: TypeSyntax): TensorType {
    const dtype = DTYPES.find((d) => d === syntax.dtype.text);
    if (dtype === undefined)
      return this.fail(syntax.dtype.spot, `'${clip(syntax.dtype.text)}'`, `an element type: ${DTYPES.join(', ')}`);
    if (syntax.dims.length > MAX_RANK)
      this.fail(syntax.dtype.spot, `${syntax.dims.length} dimensions`, `at most ${MAX_RANK}`);
    return { dtype, shape: syntax.dims.map((dim) => this.dim(dim)) };
  }

  private dim(leaf: Leaf): Dim {
    if (this.extents.has(leaf.text)) return leaf.text;
    const value = Number(leaf.text);
    if (/^[0-9]+$/.test(leaf.text) && value <= MAX_DIM) return value;
    return this.fail(
      leaf.spot,
      `'${clip(leaf.text)}'`,
      `a dimension: a whole number up to ${MAX_DIM}, or an extent of the function${list(this.extents)}`,
    );
  }

  private number(leaf: Leaf): number {
    if (leaf.text.endsWith('inf')) return leaf.text.startsWith('-') ? -Infinity : Infinity;
    const value = Number(leaf.text);
    if (Number.isFinite(value)) return value;
    return this.fail(leaf.spot, `'${clip(leaf.text)}'`, 'a number that a double can hold, inf or -inf');
  }

  private string(leaf: Leaf): string {
    try {
      const value: unknown = JSON.parse(leaf.text);
      if (typeof value === 'string') return value;
    } catch {
      // Reported below. A string token that is not JSON has a bad escape.
    }
    return this.fail(leaf.spot, clip(leaf.text), 'a string with the escapes of JSON');
  }

  /** The name without its sigil. */
  private name(leaf: Leaf, grammar: RegExp): string {
    const name = leaf.text.slice(1);
    if (!grammar.test(name)) this.fail(leaf.spot, `'${clip(leaf.text)}'`, `a name: ${grammar.source.slice(1, -1)}`);
    return name;
  }

  private define(leaf: Leaf, kind: Value['kind'], type: TensorType, role?: Role): Value {
    const name = this.name(leaf, kind === 'weight' ? WEIGHT_NAME : NAME);
    if (this.values.has(leaf.text)) this.fail(leaf.spot, `a second '${leaf.text}'`, 'a name that is not taken');
    const value: Value = role === undefined ? { kind, name, type } : { kind, name, type, role };
    this.values.set(leaf.text, value);
    return value;
  }

  private use(leaf: Leaf): Value {
    const value = this.values.get(leaf.text);
    if (value !== undefined) return value;
    return this.fail(
      leaf.spot,
      `'${clip(leaf.text)}'`,
      leaf.text.startsWith('@') ? 'a weight that is declared above' : 'a value that is defined above',
    );
  }

  private fail(spot: Spot, found: string, expected: string): never {
    throw new GraphSyntaxError(this.file, spot, found, expected);
  }
}

const clip = (text: string): string => (text.length > 80 ? `${text.slice(0, 80)}…` : text);
const isList = (value: Leaf | readonly Leaf[]): value is readonly Leaf[] => Array.isArray(value);
const isNumeric = (text: string): boolean => /^-?(?:[0-9]|inf$)/.test(text);
const list = (names: ReadonlySet<string>): string => (names.size === 0 ? '' : `: ${[...names].join(', ')}`);

/** The extents that the head lists, or else those of the parameters. */
function extentsOf(
  { extents, params }: GraphSyntax,
  fail: (spot: Spot, found: string, expected: string) => never,
): readonly ExtentDecl[] {
  const listed = extents ?? params.flatMap((p) => p.type.dims).filter((dim) => !isNumeric(dim.text));
  const found = new Map<string, ExtentDecl>();
  for (const each of listed) {
    const { name, counts, within } = 'name' in each ? each : { name: each };
    if (!EXTENT_NAME.test(name.text))
      fail(name.spot, `'${clip(name.text)}'`, `the name of an extent: ${EXTENT_NAME.source.slice(1, -1)}`);
    if (extents !== undefined && found.has(name.text)) fail(name.spot, `a second '${name.text}'`, 'another extent');
    if (within !== undefined && !found.has(within.text))
      fail(within.spot, `'${clip(within.text)}'`, 'an extent that is listed before');
    if (found.has(name.text)) continue;
    found.set(name.text, {
      name: name.text,
      ...defined({ counts: counts && counts.text }),
      ...defined({ within: within && within.text }),
    });
  }
  return [...found.values()];
}
