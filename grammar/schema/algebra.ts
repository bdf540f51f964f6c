/** What fits two shapes of one type, and what fits a shape's type but not the shape. */
import { GrammarError } from '../grammar.js';
import { ANY_TEXT, oneOfTexts } from './characters.js';
import type { Languages } from './languages.js';
import type { NodeTable } from './nodes.js';
import { nextDown, nextUp } from './numbers.js';
import { both, choice, without } from './regular.js';
import {
  ANY_ARRAY,
  ANY_NUMBER,
  ANY_OBJECT,
  type ArrayShape,
  commonMultiple,
  FALSE,
  type Fraction,
  isMultiple,
  type NodeId,
  type NumberShape,
  type ObjectShape,
  type OtherProperties,
  type Shape,
  type StringShape,
  TRUE,
} from './shapes.js';

const MAX_CLASSES = 64;

export class Algebra {
  readonly #nodes: NodeTable;
  readonly #languages: Languages;

  constructor(nodes: NodeTable, languages: Languages) {
    this.#nodes = nodes;
    this.#languages = languages;
  }

  /** Undefined where nothing fits both. A shape that is returned may still fit nothing. */
  both(a: Shape, b: Shape): Shape | undefined {
    if (a.type === 'null' && b.type === 'null') return a;
    if (a.type === 'boolean' && b.type === 'boolean') {
      const values = a.values.filter((value) => b.values.includes(value));
      return values.length === 0 ? undefined : { type: 'boolean', values };
    }
    if (a.type === 'number' && b.type === 'number') return this.#numbers(a, b);
    if (a.type === 'string' && b.type === 'string') return this.strings(a, b);
    if (a.type === 'array' && b.type === 'array') return this.#arrays(a, b);
    if (a.type === 'object' && b.type === 'object') return this.#objects(a, b);
    return undefined;
  }

  #numbers(a: NumberShape, b: NumberShape): NumberShape | undefined {
    if (a.kind !== 'any' && b.kind !== 'any' && a.kind !== b.kind) return undefined;
    return numberShape({
      type: 'number',
      kind: a.kind === 'any' ? b.kind : a.kind,
      min: Math.max(a.min, b.min),
      max: Math.min(a.max, b.max),
      multipleOf: [...a.multipleOf, ...b.multipleOf],
      notMultipleOf: [...new Set([...a.notMultipleOf, ...b.notMultipleOf])],
    });
  }

  strings(a: StringShape, b: StringShape): StringShape | undefined {
    const [few, other] = a.values === undefined ? [b, a] : [a, b];
    if (few.values === undefined) {
      if (a.text === undefined || b.text === undefined) return a.text === undefined ? b : a;
      const text = this.#languages.idOf(a.text) === this.#languages.idOf(b.text) ? a.text : both(a.text, b.text);
      return this.#languages.isEmpty(text) ? undefined : { type: 'string', text };
    }
    const values = new Set([...few.values].filter((value) => this.hasString(other, value)));
    return values.size === 0 ? undefined : { type: 'string', values };
  }

  hasString({ text, values }: StringShape, value: string): boolean {
    if (values !== undefined) return values.has(value);
    return text === undefined || this.#languages.accepts(text, value);
  }

  #arrays(a: ArrayShape, b: ArrayShape): ArrayShape | undefined {
    const length = Math.max(a.prefix.length, b.prefix.length);
    const shape: ArrayShape = {
      type: 'array',
      prefix: Array.from({ length }, (_, i) => this.#nodes.and(a.prefix[i] ?? a.items, b.prefix[i] ?? b.items)),
      items: this.#nodes.and(a.items, b.items),
      min: Math.max(a.min, b.min),
      max: Math.min(a.max, b.max),
      isUnique: a.isUnique || b.isUnique,
      contains: [...a.contains, ...b.contains],
    };
    return shape.min > shape.max ? undefined : shape;
  }

  /** The node of a property that is not listed. */
  otherOf(shape: ObjectShape, name: string): NodeId {
    const found = shape.others.find(({ names }) => names === undefined || this.#languages.accepts(names, name));
    return found?.node ?? FALSE;
  }

  nodeOf(shape: ObjectShape, name: string): NodeId {
    return shape.properties.get(name) ?? this.otherOf(shape, name);
  }

  #objects(a: ObjectShape, b: ObjectShape): ObjectShape | undefined {
    const properties = new Map<string, NodeId>();
    for (const [name, node] of a.properties) properties.set(name, this.#nodes.and(node, this.nodeOf(b, name)));
    for (const [name, node] of b.properties)
      if (!properties.has(name)) properties.set(name, this.#nodes.and(this.otherOf(a, name), node));
    const shape: ObjectShape = {
      type: 'object',
      properties,
      others: this.others(a.others, b.others),
      required: new Set([...a.required, ...b.required]),
      some: [...a.some, ...b.some],
      min: Math.max(a.min, b.min),
      max: Math.min(a.max, b.max),
    };
    return shape.min > shape.max || shape.required.size > shape.max ? undefined : shape;
  }

  /** Classes of names that are in a class of both. */
  others(a: readonly OtherProperties[], b: readonly OtherProperties[]): readonly OtherProperties[] {
    const found = a.flatMap((one) =>
      b.flatMap((other): readonly OtherProperties[] => {
        const node = this.#nodes.and(one.node, other.node);
        if (node === FALSE) return [];
        if (one.names === undefined || other.names === undefined) return [{ names: one.names ?? other.names, node }];
        const isSame = this.#languages.idOf(one.names) === this.#languages.idOf(other.names);
        const names = isSame ? one.names : both(one.names, other.names);
        return this.#languages.isEmpty(names) ? [] : [{ names, node }];
      }),
    );
    if (found.length > MAX_CLASSES) throw new GrammarError('Too many patterns of property names overlap.');
    return found;
  }

  /** What is of the shape's type, and does not fit it. Throws GrammarError where that cannot be said by shapes. */
  not(shape: Shape): readonly Shape[] {
    switch (shape.type) {
      case 'null':
        return [];
      case 'boolean': {
        const values = [true, false].filter((value) => !shape.values.includes(value));
        return values.length === 0 ? [] : [{ type: 'boolean', values }];
      }
      case 'number':
        return notNumber(shape);
      case 'string': {
        const text = shape.text ?? (shape.values === undefined ? undefined : oneOfTexts(shape.values));
        if (text === undefined) return [];
        const others = without(ANY_TEXT, text);
        return this.#languages.isEmpty(others) ? [] : [{ type: 'string', text: others }];
      }
      case 'array':
        return this.#notArray(shape);
      case 'object':
        return this.#notObject(shape);
      default:
        return shape satisfies never;
    }
  }

  #notArray({ prefix, items, min, max, isUnique, contains }: ArrayShape): readonly Shape[] {
    if (isUnique) throw new GrammarError('"not" over "uniqueItems" is not supported.');
    const found: Shape[] = [];
    if (min > 0) found.push({ ...ANY_ARRAY, max: min - 1 });
    if (max < Infinity) found.push({ ...ANY_ARRAY, min: max + 1 });
    prefix.forEach((node, i) => {
      if (node === TRUE) return;
      const before = Array.from({ length: i }, () => TRUE);
      found.push({ ...ANY_ARRAY, prefix: [...before, this.#nodes.not(node)], min: i + 1 });
    });
    if (items !== TRUE && prefix.length === 0)
      found.push({ ...ANY_ARRAY, contains: [{ node: this.#nodes.not(items), min: 1, max: Infinity }] });
    else if (items === FALSE) found.push({ ...ANY_ARRAY, min: prefix.length + 1 });
    else if (items !== TRUE) throw new GrammarError('"not" over items behind a tuple is not supported.');
    for (const { node, min: least, max: most } of contains) {
      if (least > 0) found.push({ ...ANY_ARRAY, contains: [{ node, min: 0, max: least - 1 }] });
      if (most < Infinity) found.push({ ...ANY_ARRAY, contains: [{ node, min: most + 1, max: Infinity }] });
    }
    return found;
  }

  #notObject({ properties, others, required, some, min, max }: ObjectShape): readonly Shape[] {
    const found: Shape[] = [];
    for (const { names, node } of some) {
      const not = { names, node: this.#nodes.not(node) };
      const rest = names === undefined ? [] : [{ names: without(ANY_TEXT, names), node: TRUE }];
      found.push({ ...ANY_OBJECT, others: [not, ...rest] });
    }
    if (min > 0) found.push({ ...ANY_OBJECT, max: min - 1 });
    if (max < Infinity) found.push({ ...ANY_OBJECT, min: max + 1 });
    for (const name of required) found.push({ ...ANY_OBJECT, properties: new Map([[name, FALSE]]) });
    for (const [name, node] of properties) {
      const not = this.#nodes.not(node);
      if (not === FALSE) continue;
      found.push({ ...ANY_OBJECT, properties: new Map([[name, not]]), required: new Set([name]) });
    }
    const listed = oneOfTexts(properties.keys());
    const classes = [...others];
    if (others.every(({ names }) => names !== undefined)) {
      // No property may have a name of no class.
      const rest = without(ANY_TEXT, choice(...others.map(({ names }) => names ?? ANY_TEXT)));
      if (!this.#languages.isEmpty(rest)) classes.push({ names: rest, node: FALSE });
    }
    for (const { names, node } of classes) {
      const free = properties.size === 0 ? names : without(names ?? ANY_TEXT, listed);
      const not = this.#nodes.not(node);
      if (not === FALSE || (free !== undefined && this.#languages.isEmpty(free))) continue;
      found.push({ ...ANY_OBJECT, some: [{ names: free, node: not }] });
    }
    return found;
  }
}

/** In its simplest form; undefined where no number fits. */
export function numberShape(shape: NumberShape): NumberShape | undefined {
  let { kind, min, max } = shape;
  let step: Fraction | undefined;
  for (const next of shape.multipleOf) step = step === undefined ? next : commonMultiple(step, next);
  // Multiples of 2.5 that are integers are multiples of 5.
  if (kind === 'integer' && step !== undefined) step = { numerator: step.numerator, denominator: 1 };
  if (step?.denominator === 1) {
    if (kind === 'fraction') return undefined;
    kind = 'integer';
  }
  if (kind === 'integer') [min, max] = [Math.ceil(min), Math.floor(max)];
  if (step !== undefined && !Number.isSafeInteger(step.numerator))
    throw new GrammarError('The numbers of "multipleOf" are too large.');
  if (min > max || (kind === 'fraction' && min === max && Number.isInteger(min))) return undefined;
  const isOne = step?.numerator === 1 && step.denominator === 1;
  const multipleOf = step === undefined || isOne ? [] : [step];
  const notMultipleOf = shape.notMultipleOf;
  if (min === max) {
    if (step !== undefined && !isMultiple(min, step)) return undefined;
    if (notMultipleOf.some((other) => min % other === 0)) return undefined;
    if (kind === 'integer' && !Number.isInteger(min)) return undefined;
    return { ...ANY_NUMBER, min, max };
  }
  return { type: 'number', kind, min, max, multipleOf, notMultipleOf };
}

function notNumber({ kind, min, max, multipleOf, notMultipleOf }: NumberShape): readonly Shape[] {
  const found: NumberShape[] = [];
  if (min > -Infinity) found.push({ ...ANY_NUMBER, max: nextDown(min) });
  if (max < Infinity) found.push({ ...ANY_NUMBER, min: nextUp(max) });
  if (kind === 'integer') found.push({ ...ANY_NUMBER, kind: 'fraction' });
  if (kind === 'fraction') found.push({ ...ANY_NUMBER, kind: 'integer' });
  for (const { numerator, denominator } of multipleOf) {
    if (denominator !== 1) throw new GrammarError('"not" over a "multipleOf" that is no integer is not supported.');
    found.push({ ...ANY_NUMBER, kind: 'integer', notMultipleOf: [numerator] });
  }
  for (const numerator of notMultipleOf)
    found.push({ ...ANY_NUMBER, kind: 'integer', multipleOf: [{ numerator, denominator: 1 }] });
  return found;
}
