/** Texts of objects: listed properties in their order, each once; then others. */
import { type Expression, GrammarError, type Regular } from '../grammar.js';
import type { Values } from './arrays.js';
import { ANY_TEXT, oneOfTexts } from './characters.js';
import { literal, without } from './regular.js';
import { either, EMPTY_EXPRESSION, fixedName, inOrder, lexeme, nameOf, repeated } from './rules.js';
import { FALSE, type NodeId, type ObjectShape, type OtherProperties } from './shapes.js';

const MAX_STATES = 50_000;

interface Property {
  readonly name: string;
  readonly node: NodeId;
  readonly isRequired: boolean;
}

interface Others {
  readonly names: Regular;
  readonly node: NodeId;
}

/** Undefined where no object fits. */
export function objectExpression(shape: ObjectShape, values: Values): Expression | undefined {
  const { normalizer } = values;
  const { required, min, max } = shape;
  const unlisted = [...required].filter((name) => !shape.properties.has(name));
  const all: Property[] = [...shape.properties.keys(), ...unlisted].map((name) => {
    const node = normalizer.algebra.nodeOf(shape, name);
    return { name, node, isRequired: required.has(name) };
  });
  const properties = all.filter(({ node }) => !normalizer.isImpossible(node));
  if (properties.filter(({ isRequired }) => isRequired).length < required.size || max < required.size) return undefined;
  const listed = oneOfTexts(all.map(({ name }) => name));
  const others = shape.others.flatMap(({ names, node }): Others[] => {
    if (node === FALSE || normalizer.isImpossible(node)) return [];
    const free = all.length === 0 ? (names ?? ANY_TEXT) : without(names ?? ANY_TEXT, listed);
    return normalizer.isEmpty(free) ? [] : [{ names: free, node }];
  });
  if (others.length === 0 && min > properties.length) return undefined;
  const body = new ObjectWriter(properties, others, shape, values).write();
  return isDead(body) ? undefined : inOrder(lexeme(literal('{')), body, lexeme(literal('}')));
}

const isDead = (expression: Expression): boolean => expression.kind === 'choice' && expression.of.length === 0;

class ObjectWriter {
  readonly #properties: readonly Property[];
  readonly #others: readonly Others[];
  readonly #min: number;
  readonly #max: number;
  readonly #values: Values;
  /** Required ones from each property on. */
  readonly #requiredFrom: readonly number[];
  /** More properties than these are not counted. */
  readonly #cap: number;
  readonly #known = new Map<number, Expression>();

  /** What one property has to be. */
  readonly #some: OtherProperties | undefined;

  constructor(properties: readonly Property[], others: readonly Others[], shape: ObjectShape, values: Values) {
    const { min, max, some } = shape;
    if (some.length > 1) throw new GrammarError('"not" over several "additionalProperties" is not supported.');
    this.#some = some[0];
    this.#properties = properties;
    this.#others = others;
    this.#values = values;
    const requiredFrom = [0];
    for (const { isRequired } of [...properties].reverse())
      requiredFrom.unshift((requiredFrom[0] ?? 0) + (isRequired ? 1 : 0));
    this.#requiredFrom = requiredFrom;
    // Numbers that always hold are not counted.
    const isOpen = others.length > 0;
    this.#min = min <= (requiredFrom[0] ?? 0) ? 0 : min;
    this.#max = !isOpen && max >= properties.length ? Infinity : max;
    this.#cap = Math.max(1, this.#max < Infinity ? this.#max : this.#min);
    if (this.#max === Infinity && this.#min > properties.length + 1) this.#failAtLeast();
    if ((properties.length + 1) * (this.#cap + 1) > MAX_STATES)
      throw new GrammarError('There are too many properties, or numbers of them, to be counted.');
  }

  #failAtLeast(): never {
    throw new GrammarError(
      '"minProperties" is supported where at most one property of any name is needed to reach it: names must differ.',
    );
  }

  write(): Expression {
    // From the end, so that long lists do not recurse.
    for (let at = this.#properties.length; at > 0; at -= 100)
      for (let count = 0; count <= Math.min(at, this.#cap); count++)
        for (const isDone of this.#some === undefined ? [true] : [false, true]) this.#from(at, count, isDone);
    return this.#from(0, 0, this.#some === undefined);
  }

  /**
   * What follows `count` properties, of which the listed ones stand before `at`. Empty where nothing may follow;
   * `isDone`: what one property has to be, one is.
   */
  #from(at: number, count: number, isDone: boolean): Expression {
    const key = (at * (this.#cap + 1) + count) * 2 + Number(isDone);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const made = at === this.#properties.length ? this.#rest(count, isDone) : this.#property(at, count, isDone);
    const expression = isDead(made) || made === EMPTY_EXPRESSION ? made : this.#values.rules.add(made);
    this.#known.set(key, expression);
    return expression;
  }

  #property(at: number, count: number, isDone: boolean): Expression {
    const property = this.#properties[at];
    if (property === undefined) return EMPTY_EXPRESSION;
    const { name, node, isRequired } = property;
    const { normalizer } = this.#values;
    const options: Expression[] = [];
    const write = (value: NodeId, isDoneThen: boolean): void => {
      const rest = this.#from(at + 1, Math.min(count + 1, this.#cap), isDoneThen);
      if (isDead(rest)) return;
      const written = inOrder(nameOf(fixedName(name), count === 0), this.#values.valueOf(value));
      options.push(rest === EMPTY_EXPRESSION ? written : inOrder(written, rest));
    };
    // What is required behind this one must have room.
    const needed = (this.#requiredFrom[at] ?? 0) + (isRequired ? 0 : 1);
    if (this.#max === Infinity || count + needed <= this.#max) {
      write(node, isDone);
      const some = this.#some;
      if (!isDone && some !== undefined && (some.names === undefined || normalizer.accepts(some.names, name))) {
        const both = normalizer.and(node, some.node);
        if (!normalizer.isImpossible(both)) write(both, true);
      }
    }
    if (!isRequired) {
      const rest = this.#from(at + 1, count, isDone);
      if (!isDead(rest)) options.push(rest);
    }
    return either(...options);
  }

  /**
   * Properties that are not listed. Names may repeat among them: then every value fits what is said of the name, and
   * they count as one at least.
   */
  #rest(count: number, isDone: boolean): Expression {
    const least = Math.max(0, this.#min - count);
    const most = this.#max - count;
    if (!isDone && most > 0) this.#refuseSome();
    if (!isDone) return either();
    if (this.#others.length === 0 || most <= 0) return least > 0 ? either() : EMPTY_EXPRESSION;
    if (least > 1) this.#failAtLeast();
    const one = (isFirst: boolean): Expression =>
      either(...this.#others.map(({ names, node }) => inOrder(nameOf(names, isFirst), this.#values.valueOf(node))));
    if (count > 0) return repeated(one(false), least, most);
    const some = inOrder(one(true), repeated(one(false), 0, most - 1));
    return least > 0 ? some : either(some, EMPTY_EXPRESSION);
  }

  /** Where one of them has to be of a kind: of two with one name, readers may take the other. */
  #refuseSome(): void {
    const { normalizer } = this.#values;
    const some = this.#some;
    if (
      some === undefined ||
      normalizer.algebra.others(this.#others, [some]).every(({ node }) => normalizer.isImpossible(node))
    )
      return;
    throw new GrammarError('"not" over "additionalProperties" is supported where no other property may be there.');
  }
}
