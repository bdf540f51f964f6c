/** The keywords of one schema that say something about values of one type, as shapes of these types. */
import { GrammarError, type Regular } from '../grammar.js';
import { type Algebra, numberShape } from './algebra.js';
import { ANY_CHARACTER, ANY_TEXT, isWellFormed, oneOfTexts } from './characters.js';
import { isObject, type JsonObject, own, type SchemaDocument } from './document.js';
import { formatLanguage } from './formats.js';
import { errorAt } from './languages.js';
import { nextDown, nextUp } from './numbers.js';
import { patternLanguage } from './patternLanguage.js';
import { both, choice, repeat, without } from './regular.js';
import {
  ANY_ARRAY,
  ANY_NUMBER,
  ANY_OBJECT,
  ANY_OF_TYPE,
  type ArrayShape,
  FALSE,
  type Fraction,
  fractionOf,
  type NodeId,
  type NumberShape,
  type ObjectShape,
  type OtherProperties,
  type Shape,
  SHAPE_TYPES,
  type ShapeType,
  TRUE,
} from './shapes.js';

/** What keywords need of those who read schemas. */
export interface SchemaReader {
  readonly document: SchemaDocument;
  readonly algebra: Algebra;
  nodeOf(schema: unknown, where: string): NodeId;
  and(...nodes: readonly NodeId[]): NodeId;
  isEmpty(regular: Regular): boolean;
  accepts(regular: Regular, value: string): boolean;
  /** The strings that fit a node. */
  stringsOf(node: NodeId): Regular;
}

const TYPES = new Set(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']);
const MAX_LIST = 20_000;
const MAX_PATTERNS = 12;

/** Keywords that are not supported wherever they stand. */
const REFUSED = ['$dynamicRef', '$recursiveRef', 'unevaluatedItems', 'disallow', 'divisibleBy', 'extends'] as const;

export class Keywords {
  readonly #reader: SchemaReader;
  readonly #patterns = new Map<string, Regular>();

  constructor(reader: SchemaReader) {
    this.#reader = reader;
  }

  /** A shape for every type that the schema allows. */
  shapesOf(schema: JsonObject): readonly Shape[] {
    for (const keyword of REFUSED)
      if (Object.hasOwn(schema, keyword)) this.#fail(schema, keyword, `"${keyword}" is not supported.`);
    const types = this.#types(schema);
    return SHAPE_TYPES.flatMap((type): readonly Shape[] => {
      const isInteger = type === 'number' && !types.has('number');
      if (!types.has(type) && !(isInteger && types.has('integer'))) return [];
      const shape = this.#shape(type, schema, isInteger);
      return shape === undefined ? [] : [shape];
    });
  }

  #shape(type: ShapeType, schema: JsonObject, isInteger: boolean): Shape | undefined {
    if (type === 'number') return this.#number(schema, isInteger);
    if (type === 'string') return this.#string(schema);
    if (type === 'array') return this.#array(schema);
    if (type === 'object') return this.#object(schema);
    return ANY_OF_TYPE[type];
  }

  #fail(schema: JsonObject, keyword: string, message: string): never {
    throw new GrammarError(message, this.#reader.document.pointer(schema, keyword));
  }

  #types(schema: JsonObject): ReadonlySet<string> {
    const value = own(schema, 'type');
    if (value === undefined) return TYPES;
    const names: readonly unknown[] = Array.isArray(value) ? value : [value];
    const known = names.flatMap((name) => (typeof name === 'string' && TYPES.has(name) ? [name] : []));
    if (known.length !== names.length)
      this.#fail(schema, 'type', '"type" has to be a type of JSON, or a list of them.');
    return new Set(known);
  }

  #numberAt(schema: JsonObject, keyword: string): number | undefined {
    const value = own(schema, keyword);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isFinite(value))
      this.#fail(schema, keyword, `"${keyword}" has to be a number.`);
    return value;
  }

  #countAt(schema: JsonObject, keyword: string): number | undefined {
    const value = this.#numberAt(schema, keyword);
    if (value !== undefined && (value < 0 || !Number.isInteger(value)))
      this.#fail(schema, keyword, `"${keyword}" has to be an integer that is not negative.`);
    return value;
  }

  #limits(schema: JsonObject, least: string, most: string): readonly [number, number] {
    return [this.#countAt(schema, least) ?? 0, this.#countAt(schema, most) ?? Infinity];
  }

  #objectAt(schema: JsonObject, keyword: string): JsonObject {
    const value = own(schema, keyword) ?? {};
    if (!isObject(value)) this.#fail(schema, keyword, `"${keyword}" has to be an object.`);
    return value;
  }

  #nodeAt(schema: JsonObject, keyword: string): NodeId {
    if (!Object.hasOwn(schema, keyword)) return TRUE;
    return this.#reader.nodeOf(schema[keyword], this.#reader.document.pointer(schema, keyword));
  }

  #number(schema: JsonObject, isInteger: boolean): NumberShape | undefined {
    let min = this.#numberAt(schema, 'minimum') ?? -Infinity;
    let max = this.#numberAt(schema, 'maximum') ?? Infinity;
    // Up to draft 4, these say whether the bounds themselves belong to it.
    if (own(schema, 'exclusiveMinimum') === true) min = nextUp(min);
    else if (own(schema, 'exclusiveMinimum') !== false)
      min = Math.max(min, nextUp(this.#numberAt(schema, 'exclusiveMinimum') ?? -Infinity));
    if (own(schema, 'exclusiveMaximum') === true) max = nextDown(max);
    else if (own(schema, 'exclusiveMaximum') !== false)
      max = Math.min(max, nextDown(this.#numberAt(schema, 'exclusiveMaximum') ?? Infinity));
    const step = this.#step(schema);
    const multipleOf = step === undefined ? [] : [step];
    try {
      return numberShape({ ...ANY_NUMBER, kind: isInteger ? 'integer' : 'any', min, max, multipleOf });
    } catch (error) {
      throw errorAt(error, this.#reader.document.pointer(schema, 'multipleOf'));
    }
  }

  #step(schema: JsonObject): Fraction | undefined {
    const value = this.#numberAt(schema, 'multipleOf');
    if (value === undefined) return undefined;
    if (value <= 0) this.#fail(schema, 'multipleOf', '"multipleOf" has to be above 0.');
    return fractionOf(value) ?? this.#fail(schema, 'multipleOf', `"multipleOf" of ${value} is not supported.`);
  }

  #string(schema: JsonObject): Shape | undefined {
    const texts: Regular[] = [];
    const [min, max] = this.#limits(schema, 'minLength', 'maxLength');
    if (min > max) return undefined;
    if (min > 0 || max < Infinity) texts.push(repeat(ANY_CHARACTER, min, max));
    const pattern = own(schema, 'pattern');
    if (pattern !== undefined && typeof pattern !== 'string')
      this.#fail(schema, 'pattern', '"pattern" has to be a string.');
    if (pattern !== undefined) texts.push(this.#pattern(pattern, schema, 'pattern'));
    const format = own(schema, 'format');
    const language = typeof format === 'string' ? formatLanguage(format) : undefined;
    if (language === 'refused') this.#fail(schema, 'format', `The format ${JSON.stringify(format)} is not supported.`);
    if (language !== undefined) texts.push(language);
    if (texts.length === 0) return ANY_OF_TYPE.string;
    const text = texts.reduce(both);
    return this.#reader.isEmpty(text) ? undefined : { type: 'string', text };
  }

  #pattern(source: string, schema: JsonObject, keyword: string): Regular {
    let found = this.#patterns.get(source);
    try {
      if (found === undefined) this.#patterns.set(source, (found = patternLanguage(source)));
      // Reading it as an automaton checks its size.
      this.#reader.isEmpty(found);
      return found;
    } catch (error) {
      throw errorAt(error, this.#reader.document.pointer(schema, keyword));
    }
  }

  #array(schema: JsonObject): ArrayShape | undefined {
    const { document, nodeOf } = this.#reader;
    const [min, max] = this.#limits(schema, 'minItems', 'maxItems');
    if (min > max) return undefined;
    const keyword = Object.hasOwn(schema, 'prefixItems') ? 'prefixItems' : 'items';
    const tuple = own(schema, keyword);
    const isTuple = Array.isArray(tuple);
    if (keyword === 'prefixItems' && !isTuple) this.#fail(schema, keyword, '"prefixItems" has to be a list.');
    if (isTuple && tuple.length > MAX_LIST) this.#fail(schema, keyword, 'Too many items are listed.');
    const where = document.pointer(schema, keyword);
    const prefix = isTuple ? tuple.map((item, i) => nodeOf(item, `${where}/${i}`)) : [];
    const items =
      isTuple && keyword === 'items' ? this.#nodeAt(schema, 'additionalItems') : this.#nodeAt(schema, 'items');
    const unique = own(schema, 'uniqueItems');
    if (unique !== undefined && typeof unique !== 'boolean')
      this.#fail(schema, 'uniqueItems', '"uniqueItems" has to be true or false.');
    const contains = Object.hasOwn(schema, 'contains')
      ? [
          {
            node: this.#nodeAt(schema, 'contains'),
            min: this.#countAt(schema, 'minContains') ?? 1,
            max: this.#countAt(schema, 'maxContains') ?? Infinity,
          },
        ]
      : [];
    return { ...ANY_ARRAY, prefix, items, min, max, isUnique: unique === true, contains };
  }

  #object(schema: JsonObject): ObjectShape | undefined {
    const { document, nodeOf } = this.#reader;
    const [min, max] = this.#limits(schema, 'minProperties', 'maxProperties');
    if (min > max) return undefined;
    const required = new Set(this.#names(schema, 'required'));
    const patterns = this.#patternsOf(schema);
    const properties = new Map<string, NodeId>();
    for (const [name, value] of Object.entries(this.#objectAt(schema, 'properties'))) {
      if (!isWellFormed(name)) this.#fail(schema, 'properties', 'A name has half of a surrogate pair.');
      const matching = patterns.filter(({ names }) => this.#reader.accepts(names, name)).map(({ node }) => node);
      const where = `${document.pointer(schema, 'properties')}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
      properties.set(name, this.#reader.and(nodeOf(value, where), ...matching));
    }
    const shape: ObjectShape = {
      ...ANY_OBJECT,
      properties,
      others: this.#others(schema, patterns),
      required,
      min,
      max,
    };
    return Object.hasOwn(schema, 'propertyNames') ? this.#named(schema, shape) : shape;
  }

  /** A list of names of properties. */
  #names(schema: JsonObject, keyword: string): readonly string[] {
    const value = own(schema, keyword) ?? [];
    if (!Array.isArray(value) || value.length > MAX_LIST || !value.every((name) => typeof name === 'string'))
      return this.#fail(schema, keyword, `"${keyword}" has to be a list of names.`);
    if (!value.every(isWellFormed)) this.#fail(schema, keyword, 'A name has half of a surrogate pair.');
    return value;
  }

  #patternsOf(schema: JsonObject): readonly { readonly names: Regular; readonly node: NodeId }[] {
    const where = this.#reader.document.pointer(schema, 'patternProperties');
    const entries = Object.entries(this.#objectAt(schema, 'patternProperties'));
    if (entries.length > MAX_PATTERNS) this.#fail(schema, 'patternProperties', 'It has too many patterns.');
    return entries.map(([source, value]) => ({
      names: this.#pattern(source, schema, 'patternProperties'),
      node: this.#reader.nodeOf(value, where),
    }));
  }

  /** Classes of names: those that a pattern matches, and those that none does. */
  #others(schema: JsonObject, patterns: readonly { names: Regular; node: NodeId }[]): readonly OtherProperties[] {
    if (own(schema, 'unevaluatedProperties') !== undefined) this.#checkUnevaluated(schema);
    const additional = Object.hasOwn(schema, 'additionalProperties') ? 'additionalProperties' : 'unevaluatedProperties';
    // Each pattern parts names in those that it matches and others; what no pattern matches is additional.
    let classes: readonly (OtherProperties & { readonly isMatched: boolean })[] = [{ node: TRUE, isMatched: false }];
    for (const { names, node } of patterns) {
      classes = classes.flatMap((each) => {
        const inside = each.names === undefined ? names : both(each.names, names);
        const outside = without(each.names ?? ANY_TEXT, names);
        return [
          ...(this.#reader.isEmpty(inside)
            ? []
            : [{ names: inside, node: this.#reader.and(each.node, node), isMatched: true }]),
          ...(this.#reader.isEmpty(outside) ? [] : [{ ...each, names: outside }]),
        ];
      });
    }
    const rest = this.#nodeAt(schema, additional);
    return classes
      .map(({ names, node, isMatched }) => ({ names, node: isMatched ? node : rest }))
      .filter(({ node }) => node !== FALSE);
  }

  /** Without schemas beside it that apply to the same object, it is the same as additionalProperties. */
  #checkUnevaluated(schema: JsonObject): void {
    const others = ['$ref', 'allOf', 'anyOf', 'oneOf', 'if', 'dependentSchemas', 'dependencies', 'not'];
    if (others.some((keyword) => Object.hasOwn(schema, keyword)))
      this.#fail(schema, 'unevaluatedProperties', '"unevaluatedProperties" beside other schemas is not supported.');
  }

  /** Only properties whose names fit `propertyNames`. */
  #named(schema: JsonObject, shape: ObjectShape): ObjectShape {
    const names = this.#reader.stringsOf(this.#nodeAt(schema, 'propertyNames'));
    const properties = new Map<string, NodeId>();
    for (const [name, node] of shape.properties) properties.set(name, this.#reader.accepts(names, name) ? node : FALSE);
    return { ...shape, properties, others: this.#reader.algebra.others(shape.others, [{ names, node: TRUE }]) };
  }
}

/** The language of strings that are in one of these shapes. */
export const languageOf = (shapes: readonly Shape[]): Regular =>
  choice(
    ...shapes.flatMap((shape): Regular[] =>
      shape.type === 'string' ? [shape.text ?? (shape.values === undefined ? ANY_TEXT : oneOfTexts(shape.values))] : [],
    ),
  );
