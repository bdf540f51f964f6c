/** Takes conjunctions of schemas apart into shapes, until no keyword is left that joins schemas. */
import { GrammarError, type Regular } from '../grammar.js';
import { Algebra, numberShape } from './algebra.js';
import { isWellFormed } from './characters.js';
import { isObject, type JsonObject, own, type SchemaDocument } from './document.js';
import { Keywords, languageOf, type SchemaReader } from './keywords.js';
import { errorAt, Languages } from './languages.js';
import { NodeTable, type Part } from './nodes.js';
import {
  ANY_ARRAY,
  ANY_NUMBER,
  ANY_OBJECT,
  ANY_OF_TYPE,
  FALSE,
  type NodeId,
  type ObjectShape,
  type OtherProperties,
  type Shape,
  SHAPE_TYPES,
  TRUE,
} from './shapes.js';

/** Bounds of one schema: pairs of shapes compared, shapes of a node, nodes, and how deep schemas are joined. */
const MAX_PAIRS = 400_000;
const MAX_SHAPES = 2_000;
const MAX_NODES = 60_000;
const MAX_DEPTH = 150;
/** How deep properties and items are followed to see whether anything fits them. */
const MAX_PROOF_DEPTH = 60;
const MAX_PROOF_STEPS = 200_000;

const ANY: readonly Shape[] = SHAPE_TYPES.map((type) => ANY_OF_TYPE[type]);

/** Keywords that join schemas, in any order. */
const JOINING = [
  '$ref',
  'allOf',
  'anyOf',
  'oneOf',
  'not',
  'if',
  'dependencies',
  'dependentSchemas',
  'dependentRequired',
];
/** Keywords that say something about a value; others are notes. */
const ASSERTING = new Set([
  ...JOINING,
  ...['type', 'enum', 'const', 'properties', 'patternProperties', 'additionalProperties', 'propertyNames', 'required'],
  ...[
    'minProperties',
    'maxProperties',
    'items',
    'prefixItems',
    'additionalItems',
    'minItems',
    'maxItems',
    'uniqueItems',
  ],
  ...['contains', 'minLength', 'maxLength', 'pattern', 'format', 'minimum', 'maximum', 'multipleOf'],
  ...['exclusiveMinimum', 'exclusiveMaximum', 'unevaluatedProperties', 'unevaluatedItems', '$dynamicRef'],
  ...['$recursiveRef', 'disallow', 'divisibleBy', 'extends'],
]);

export class Normalizer implements SchemaReader {
  readonly document: SchemaDocument;
  readonly nodes = new NodeTable();
  readonly languages = new Languages();
  readonly algebra = new Algebra(this.nodes, this.languages);
  readonly #keywords = new Keywords(this);
  readonly #shapes = new Map<NodeId, readonly Shape[]>();
  /** Nodes that are being taken apart. */
  readonly #open = new Set<NodeId>();
  readonly #proofs = new Map<NodeId, boolean>();
  #pairs = 0;
  #proofSteps = 0;

  constructor(document: SchemaDocument) {
    this.document = document;
  }

  and = (...nodes: readonly NodeId[]): NodeId => this.nodes.and(...nodes);
  isEmpty = (regular: Regular): boolean => this.languages.isEmpty(regular);
  accepts = (regular: Regular, value: string): boolean => this.languages.accepts(regular, value);
  stringsOf = (node: NodeId): Regular => languageOf(this.shapesOf(node));

  /** The node of a schema. What only refers to another is that one. */
  nodeOf = (schema: unknown, where: string): NodeId => {
    for (let at = schema, hops = 0; ; hops++) {
      if (at === true) return TRUE;
      if (at === false) return FALSE;
      if (!isObject(at)) throw new GrammarError('A schema has to be an object, true or false.', where);
      const keys = Object.keys(at).filter((key) => ASSERTING.has(key));
      if (keys.length === 0) return TRUE;
      const reference = own(at, '$ref');
      const isAlone = keys.length === 1 || this.document.isRefAlone(at);
      if (typeof reference !== 'string' || !isAlone || hops > MAX_DEPTH)
        return this.nodes.of({ kind: 'schema', schema: at });
      at = this.document.resolve(reference, at);
    }
  };

  /** Where the first schema of a node stands. */
  whereIs(node: NodeId): string {
    const [first] = this.nodes.partsOf(node);
    return this.document.pointer(first?.kind === 'schema' ? first.schema : undefined);
  }

  /** Every value that fits the node fits one of them. Throws GrammarError. */
  shapesOf(node: NodeId): readonly Shape[] {
    if (node === TRUE) return ANY;
    const known = this.#shapes.get(node);
    if (known !== undefined) return known;
    const parts = this.nodes.partsOf(node);
    const where = this.whereIs(node);
    if (this.#open.has(node)) throw new GrammarError('The schema refers to itself without anything between.', where);
    if (this.#open.size > MAX_DEPTH) throw new GrammarError('Schemas are joined too deep.', where);
    if (this.nodes.size > MAX_NODES) throw new GrammarError('The schema has too many combinations.', where);
    this.#open.add(node);
    try {
      const shapes = this.#joined(parts.map((part) => () => this.#partShapes(part)));
      this.#shapes.set(node, shapes);
      return shapes;
    } catch (error) {
      throw errorAt(error, where);
    } finally {
      this.#open.delete(node);
    }
  }

  /** What fits all. */
  #joined(lists: readonly (() => readonly Shape[])[]): readonly Shape[] {
    let found: readonly Shape[] | undefined;
    for (const list of lists) {
      found = found === undefined ? list() : this.#product(found, list());
      if (found.length === 0) return found;
    }
    return found ?? ANY;
  }

  #product(a: readonly Shape[], b: readonly Shape[]): readonly Shape[] {
    if (a === ANY || b === ANY) return a === ANY ? b : a;
    const found: Shape[] = [];
    for (const one of a)
      for (const other of b) {
        if (one.type !== other.type) continue;
        if (++this.#pairs > MAX_PAIRS) throw new GrammarError('The schema has too many combinations.');
        const shape =
          one === ANY_OF_TYPE[one.type] ? other : other === ANY_OF_TYPE[one.type] ? one : this.algebra.both(one, other);
        if (shape !== undefined) found.push(shape);
      }
    return this.#united(found);
  }

  /** Without what is there twice, or part of another. */
  #united(shapes: readonly Shape[]): readonly Shape[] {
    const whole = new Set(shapes.filter((shape) => shape === ANY_OF_TYPE[shape.type]).map(({ type }) => type));
    const found = new Map<string, Shape>();
    for (const shape of shapes) {
      if (whole.has(shape.type) && shape !== ANY_OF_TYPE[shape.type]) continue;
      found.set(this.#keyOf(shape), shape);
    }
    const values = [...found.values()].flatMap((shape) =>
      shape.type === 'string' && shape.values !== undefined ? [...shape.values] : [],
    );
    // Values of strings go together, so that hundreds of branches are one set.
    let isDone = false;
    const united = [...found.values()].flatMap((shape): readonly Shape[] => {
      if (shape.type !== 'string' || shape.values === undefined) return [shape];
      if (isDone) return [];
      isDone = true;
      return [{ type: 'string', values: new Set(values) }];
    });
    if (united.length > MAX_SHAPES) throw new GrammarError('The schema has too many combinations.');
    return united;
  }

  #keyOf(shape: Shape): string {
    switch (shape.type) {
      case 'null':
        return 'null';
      case 'boolean':
        return JSON.stringify(shape.values);
      case 'number': {
        const steps = shape.multipleOf.map(({ numerator, denominator }) => `${numerator}/${denominator}`);
        return `n${shape.kind} ${shape.min} ${shape.max} ${steps.join()} ${shape.notMultipleOf.join()}`;
      }
      case 'string':
        if (shape.values !== undefined) return `s${JSON.stringify([...shape.values])}`;
        return shape.text === undefined ? 's' : `s${this.languages.idOf(shape.text)}`;
      case 'array': {
        const contains = shape.contains.map(({ node, min, max }) => `${node} ${min} ${max}`);
        return `a${shape.prefix.join()} ${shape.items} ${shape.min} ${shape.max} ${shape.isUnique} ${contains.join()}`;
      }
      case 'object': {
        const others = shape.others.map(({ names, node }) => `${names && this.languages.idOf(names)} ${node}`);
        const some = shape.some.map(({ names, node }) => `${names && this.languages.idOf(names)} ${node}`);
        const lists = [[...shape.properties], [...shape.required], others, some];
        return `o${JSON.stringify(lists)} ${shape.min} ${shape.max}`;
      }
      default:
        return shape satisfies never;
    }
  }

  #partShapes(part: Part): readonly Shape[] {
    switch (part.kind) {
      case 'schema':
        return this.#schemaShapes(part.schema, part.without);
      case 'value':
        return this.#valueShapes(part.value);
      case 'not':
        return this.#complement(part.of);
      case 'or':
        return this.#united(part.of.flatMap((node) => this.shapesOf(node)));
      case 'has':
        return [{ ...ANY_OBJECT, required: new Set(part.names) }];
      case 'lacks':
        return ANY.map((shape) =>
          shape.type === 'object' ? { ...ANY_OBJECT, properties: new Map([[part.name, FALSE]]) } : shape,
        );
      case 'never':
        return [];
      default:
        return part satisfies never;
    }
  }

  #complement(node: NodeId): readonly Shape[] {
    const shapes = this.shapesOf(node);
    return SHAPE_TYPES.flatMap((type) => {
      let found: readonly Shape[] = [ANY_OF_TYPE[type]];
      for (const shape of shapes) if (shape.type === type) found = this.#product(found, this.algebra.not(shape));
      return found;
    });
  }

  #valueShapes(value: unknown): readonly Shape[] {
    if (value === null) return [{ type: 'null' }];
    if (typeof value === 'boolean') return [{ type: 'boolean', values: [value] }];
    if (typeof value === 'number') {
      const shape = numberShape({ ...ANY_NUMBER, min: value, max: value });
      return shape === undefined ? [] : [shape];
    }
    if (typeof value === 'string') {
      if (!isWellFormed(value)) throw new GrammarError('A string has half of a surrogate pair.');
      return [{ type: 'string', values: new Set([value]) }];
    }
    const one = (item: unknown): NodeId => this.nodes.of({ kind: 'value', value: item });
    if (Array.isArray(value))
      return [{ ...ANY_ARRAY, prefix: value.map(one), items: FALSE, min: value.length, max: value.length }];
    const entries = Object.entries(isObject(value) ? value : {});
    if (!entries.every(([name]) => isWellFormed(name))) throw new GrammarError('A name has half of a surrogate pair.');
    return [
      {
        ...ANY_OBJECT,
        properties: new Map(entries.map(([name, item]) => [name, one(item)])),
        others: [],
        required: new Set(entries.map(([name]) => name)),
      },
    ];
  }

  #schemaShapes(schema: JsonObject, without: string | undefined): readonly Shape[] {
    const has = (keyword: string): boolean => keyword !== without && Object.hasOwn(schema, keyword);
    if (has('$ref') && this.document.isRefAlone(schema)) return this.shapesOf(this.#target(schema));
    const lists: (() => readonly Shape[])[] = [() => this.#keywords.shapesOf(schema)];
    if (has('enum')) lists.push(() => this.#valuesAt(schema, 'enum', schema['enum']));
    if (has('const')) lists.push(() => this.#valuesAt(schema, 'const', [schema['const']]));
    for (const keyword of Object.keys(schema))
      if (has(keyword) && JOINING.includes(keyword)) lists.push(...this.#keywordShapes(schema, keyword));
    return this.#joined(lists);
  }

  #valuesAt(schema: JsonObject, keyword: string, values: unknown): readonly Shape[] {
    const where = this.document.pointer(schema, keyword);
    if (!Array.isArray(values)) throw new GrammarError('"enum" has to be a list.', where);
    try {
      return this.#united(values.flatMap((value) => this.#valueShapes(value)));
    } catch (error) {
      throw errorAt(error, where);
    }
  }

  #target(schema: JsonObject): NodeId {
    const reference = own(schema, '$ref');
    const where = this.document.pointer(schema, '$ref');
    if (typeof reference !== 'string') throw new GrammarError('"$ref" has to be a string.', where);
    return this.nodeOf(this.document.resolve(reference, schema), where);
  }

  /** What a keyword that joins schemas asks for: factors of a product. */
  #keywordShapes(schema: JsonObject, keyword: string): readonly (() => readonly Shape[])[] {
    const where = this.document.pointer(schema, keyword);
    const value = schema[keyword];
    const of = (node: NodeId) => () => this.shapesOf(node);
    if (keyword === '$ref') return [of(this.#target(schema))];
    if (keyword === 'not') return [of(this.nodes.not(this.nodeOf(value, where)))];
    if (keyword === 'if') return this.#conditional(schema).map(of);
    if (keyword.startsWith('depend')) return this.#dependencies(value, where).map(of);
    if (!Array.isArray(value) || value.length === 0) throw new GrammarError(`"${keyword}" has to be a list.`, where);
    const nodes = value.map((each, i) => this.nodeOf(each, `${where}/${i}`));
    if (keyword === 'allOf') return nodes.map(of);
    if (keyword === 'anyOf') return [of(this.nodes.or(...nodes))];
    return [() => this.#exactlyOne(schema, nodes, where)];
  }

  #conditional(schema: JsonObject): readonly NodeId[] {
    const at = (keyword: string): NodeId =>
      Object.hasOwn(schema, keyword) ? this.nodeOf(schema[keyword], this.document.pointer(schema, keyword)) : TRUE;
    const [condition, yes, no] = [at('if'), at('then'), at('else')];
    if (yes === TRUE && no === TRUE) return [];
    return [this.nodes.or(this.and(condition, yes), this.and(this.nodes.not(condition), no))];
  }

  #dependencies(value: unknown, where: string): readonly NodeId[] {
    if (!isObject(value)) throw new GrammarError('Dependencies have to be an object.', where);
    return Object.entries(value).map(([name, needed]) => {
      const place = `${where}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
      const lacks = this.nodes.of({ kind: 'lacks', name });
      const names: readonly unknown[] = typeof needed === 'string' ? [needed] : Array.isArray(needed) ? needed : [];
      const isList = typeof needed === 'string' || Array.isArray(needed);
      if (!isWellFormed(name) || !names.every((each) => typeof each === 'string' && isWellFormed(each)))
        throw new GrammarError('A dependency has to be a list of names or a schema.', place);
      const has = this.nodes.of({ kind: 'has', names: [name, ...names.map(String)] });
      return this.nodes.or(lacks, isList ? has : this.and(has, this.nodeOf(needed, place)));
    });
  }

  /** Branches that may fit together are each taken without the others. */
  #exactlyOne(schema: JsonObject, nodes: readonly NodeId[], where: string): readonly Shape[] {
    const base = this.nodes.of({ kind: 'schema', schema, without: 'oneOf' });
    const isApart = (a: NodeId, b: NodeId): boolean =>
      this.isImpossible(this.and(a, b)) || this.isImpossible(this.and(base, a, b));
    const overlaps = nodes.map((): NodeId[] => []);
    nodes.forEach((a, i) =>
      nodes.slice(0, i).forEach((b, j) => {
        if (a !== FALSE && b !== FALSE && isApart(b, a)) return;
        overlaps[i]?.push(b);
        overlaps[j]?.push(a);
      }),
    );
    try {
      return this.#united(
        nodes.flatMap((node, i) =>
          this.shapesOf(this.and(node, ...(overlaps[i] ?? []).map((other) => this.nodes.not(other)))),
        ),
      );
    } catch (error) {
      if (!(error instanceof GrammarError) || overlaps.every((others) => others.length === 0)) throw error;
      throw new GrammarError(`Branches of "oneOf" may fit together, and cannot be parted: ${error.message}`, where);
    }
  }

  /** Whether it is proved that nothing fits. False where it is not known. */
  isImpossible(node: NodeId): boolean {
    return this.#prove(node, new Map()).isImpossible;
  }

  /**
   * A value of finite size fits unless, whatever shape is tried, some part of it would have to contain itself. `path`
   * are the nodes on the way here; `lowest` is the first of them that the answer depends on.
   */
  #prove(node: NodeId, path: Map<NodeId, number>): { readonly isImpossible: boolean; readonly lowest: number } {
    if (node === TRUE || node === FALSE) return { isImpossible: node === FALSE, lowest: Infinity };
    const known = this.#proofs.get(node);
    if (known !== undefined) return { isImpossible: known, lowest: Infinity };
    const above = path.get(node);
    if (above !== undefined) return { isImpossible: true, lowest: above };
    if (path.size > MAX_PROOF_DEPTH || ++this.#proofSteps > MAX_PROOF_STEPS) return { isImpossible: false, lowest: -1 };
    let shapes: readonly Shape[];
    try {
      shapes = this.shapesOf(node);
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error;
      return { isImpossible: false, lowest: -1 };
    }
    const depth = path.size;
    path.set(node, depth);
    let lowest = Infinity;
    let isImpossible = true;
    for (const shape of shapes) {
      let isShapeImpossible = false;
      for (const needed of this.#needed(shape)) {
        const proof = this.#prove(needed, path);
        lowest = Math.min(lowest, proof.lowest);
        isShapeImpossible ||= proof.isImpossible;
        if (isShapeImpossible) break;
      }
      if (isShapeImpossible) continue;
      isImpossible = false;
      break;
    }
    path.delete(node);
    // What was assumed about nodes above holds for the one at the beginning only.
    if (!isImpossible || lowest >= depth) this.#proofs.set(node, isImpossible);
    return { isImpossible, lowest: lowest >= depth ? Infinity : lowest };
  }

  /** What one of the properties of an object has to fit. */
  #anyOf(shape: ObjectShape, { names, node }: OtherProperties): NodeId {
    const listed = [...shape.properties].filter(([name]) => names === undefined || this.accepts(names, name));
    const others = this.algebra.others(shape.others, [{ names, node }]);
    return this.nodes.or(...listed.map(([, each]) => this.and(each, node)), ...others.map((each) => each.node));
  }

  /** Nodes of the items and properties that a value of the shape must have. */
  #needed(shape: Shape): readonly NodeId[] {
    if (shape.type === 'array') {
      const { prefix, items, min, contains, max } = shape;
      const some = prefix.slice(0, min);
      const found = contains.filter((each) => each.min > 0).map(({ node }) => node);
      const isTooMany = contains.some((each) => each.min > max || each.min > each.max);
      return [...some, ...(min > prefix.length ? [items] : []), ...found, ...(isTooMany ? [FALSE] : [])];
    }
    if (shape.type !== 'object') return [];
    const needed = [...shape.required].map((name) => this.algebra.nodeOf(shape, name));
    const isClosed = shape.others.length === 0;
    if (isClosed && shape.min > shape.properties.size) return [FALSE];
    return [...needed, ...shape.some.map((some) => this.#anyOf(shape, some))];
  }
}
