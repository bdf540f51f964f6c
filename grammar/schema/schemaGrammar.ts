/**
 * JSON Schemas as grammars. Every text that the grammar has is JSON that the schema accepts. What it leaves out of what
 * the schema accepts is a matter of form: how JSON is written (rules.ts, characters.ts, numbers.ts) and the order of
 * properties. A keyword that cannot be said exactly is refused.
 */
import { type Expression, type Grammar, GrammarError, type Regular } from '../grammar.js';
import { arrayExpression, type Values } from './arrays.js';
import { oneOfTexts } from './characters.js';
import { SchemaDocument } from './document.js';
import { errorAt } from './languages.js';
import { Normalizer } from './normalize.js';
import { fractionTexts, integerTexts, numberText, numberTexts } from './numbers.js';
import { objectExpression } from './objects.js';
import { choice, isNothing, literal } from './regular.js';
import { ANY_STRING, either, lexeme, quoted, Rules } from './rules.js';
import { multiplesExpression } from './multiples.js';
import type { NodeId, NumberShape, Shape, StringShape } from './shapes.js';

/** Throws GrammarError, with a JSON pointer, where the schema is not supported, malformed or fits nothing. */
export function schemaGrammar(schema: unknown): Grammar {
  const document = new SchemaDocument(schema);
  const normalizer = new Normalizer(document);
  const root = normalizer.nodeOf(document.root, '');
  if (normalizer.isImpossible(root)) throw new GrammarError('No value fits the schema.', '');
  return new SchemaWriter(normalizer).write(root);
}

/** Any JSON object. */
export const jsonGrammar = (): Grammar => schemaGrammar({ type: 'object' });

class SchemaWriter implements Values {
  readonly normalizer: Normalizer;
  readonly rules = new Rules();
  readonly #expressions = new Map<NodeId, Expression>();
  readonly #queue: { readonly rule: number; readonly shapes: readonly Shape[]; readonly node: NodeId }[] = [];

  constructor(normalizer: Normalizer) {
    this.normalizer = normalizer;
  }

  write(root: NodeId): Grammar {
    const start = this.valueOf(root);
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      try {
        this.rules.set(next.rule, this.#choiceOf(next.shapes));
      } catch (error) {
        throw errorAt(error, this.normalizer.whereIs(next.node));
      }
    }
    return this.rules.grammar(start);
  }

  /** Scalars stand where they are needed; arrays and objects have rules. */
  valueOf = (node: NodeId): Expression => {
    const known = this.#expressions.get(node);
    if (known !== undefined) return known;
    const shapes = this.normalizer.shapesOf(node);
    let expression: Expression;
    if (shapes.every(isScalar)) expression = this.#choiceOf(shapes);
    else {
      const rule = this.rules.reserve();
      expression = { kind: 'rule', rule };
      this.#queue.push({ rule, shapes, node });
    }
    this.#expressions.set(node, expression);
    return expression;
  };

  scalarsOf = (node: NodeId, most: number): readonly string[] | undefined => {
    const texts = this.normalizer.shapesOf(node).map((shape): readonly string[] | undefined => {
      if (shape.type === 'null') return ['null'];
      if (shape.type === 'boolean') return shape.values.map(String);
      if (shape.type === 'string') return shape.values && [...shape.values].map((value) => JSON.stringify(value));
      if (shape.type !== 'number' || shape.max - shape.min > most) return undefined;
      if (shape.min === shape.max) return [JSON.stringify(shape.min)];
      if (shape.kind !== 'integer' || shape.multipleOf.length > 0 || shape.notMultipleOf.length > 0) return undefined;
      return Array.from({ length: shape.max - shape.min + 1 }, (_, i) => String(shape.min + i));
    });
    if (!texts.every((list) => list !== undefined)) return undefined;
    const all = [...new Set(texts.flat())];
    return all.length <= most ? all : undefined;
  };

  #choiceOf(shapes: readonly Shape[]): Expression {
    this.rules.spend(shapes.length);
    const scalars: Regular[] = [];
    const others: Expression[] = [];
    for (const shape of shapes) {
      if (shape.type === 'array') others.push(...defined(arrayExpression(shape, this)));
      else if (shape.type === 'object') others.push(...defined(objectExpression(shape, this)));
      else if (shape.type === 'null') scalars.push(literal('null'));
      else if (shape.type === 'boolean') scalars.push(...shape.values.map((value) => literal(String(value))));
      else if (shape.type === 'string') scalars.push(stringText(shape));
      else if (shape.multipleOf.length > 0 || shape.notMultipleOf.length > 0)
        others.push(multiplesExpression(shape, this.rules));
      else scalars.push(numberRegular(shape));
    }
    const scalar = choice(...scalars);
    return either(...(isNothing(scalar) ? [] : [lexeme(scalar)]), ...others);
  }
}

const defined = (expression: Expression | undefined): readonly Expression[] =>
  expression === undefined ? [] : [expression];

const isScalar = ({ type }: Shape): boolean => type !== 'array' && type !== 'object';

function stringText({ text, values }: StringShape): Regular {
  if (values !== undefined) return quoted(oneOfTexts(values));
  return text === undefined ? ANY_STRING : quoted(text);
}

function numberRegular({ kind, min, max }: NumberShape): Regular {
  if (min === max) return numberText(min);
  if (kind === 'integer') return integerTexts(min, max);
  return kind === 'fraction' ? fractionTexts(min, max) : numberTexts(min, max);
}
