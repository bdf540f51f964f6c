/** The syntax tree of a template. Lines count from 1. */
import type { Value } from '../value.js';

export type Comparison = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';
export type Arithmetic = '+' | '-' | '*' | '/' | '//' | '%' | '**';

/** What stands between the brackets of a call. */
export interface Arguments {
  readonly args: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  /** Behind `*` and `**`. */
  readonly rest?: Expression | undefined;
  readonly restNamed?: Expression | undefined;
}

export type Expression = { readonly line: number } & (
  | { readonly kind: 'constant'; readonly value: Value }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
  | { readonly kind: 'dict'; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: 'attribute'; readonly of: Expression; readonly name: string }
  | { readonly kind: 'item'; readonly of: Expression; readonly key: Expression }
  | {
      readonly kind: 'slice';
      readonly of: Expression;
      readonly from: Expression | undefined;
      readonly to: Expression | undefined;
      readonly step: Expression | undefined;
    }
  | ({ readonly kind: 'call'; readonly of: Expression } & Arguments)
  | Filter
  | ({ readonly kind: 'test'; readonly of: Expression; readonly name: string } & Arguments)
  | { readonly kind: 'not' | 'negative' | 'positive'; readonly of: Expression }
  | { readonly kind: 'and' | 'or' | 'concat'; readonly items: readonly Expression[] }
  | { readonly kind: 'compare'; readonly first: Expression; readonly rest: readonly Operation<Comparison>[] }
  | { readonly kind: 'arithmetic'; readonly first: Expression; readonly rest: readonly Operation<Arithmetic>[] }
  | {
      readonly kind: 'choose';
      readonly condition: Expression;
      readonly then: Expression;
      readonly otherwise: Expression | undefined;
    }
);

export interface Operation<Op> {
  readonly op: Op;
  readonly right: Expression;
}

/** Without `of`, it filters the text of a block. */
export type Filter = {
  readonly kind: 'filter';
  readonly of: Expression | undefined;
  readonly name: string;
  readonly line: number;
} & Arguments;

/** What a value is given to: a name, a field of a namespace, or several of them for its items. */
export type Target =
  | { readonly kind: 'name'; readonly name: string; readonly line: number }
  | { readonly kind: 'field'; readonly of: string; readonly name: string; readonly line: number }
  | { readonly kind: 'targets'; readonly items: readonly Target[]; readonly line: number };

/** How a name of a scope begins: from the context, from the scope around, or without a value. */
export type Origin = 'context' | 'outer' | 'missing';

/** A body with a scope of its own. `origins` is filled by resolveNames(). */
export interface Body {
  readonly statements: readonly Statement[];
  origins: readonly (readonly [string, Origin])[];
}

export interface Parameter {
  readonly name: string;
  readonly otherwise: Expression | undefined;
}

/** What a macro and a call block share. */
export interface Signature {
  readonly parameters: readonly Parameter[];
  readonly body: Body;
  /** Names that the body uses without being given them. */
  special: ReadonlySet<'caller' | 'kwargs' | 'varargs'>;
}

export interface Branch {
  readonly condition: Expression;
  readonly body: readonly Statement[];
}

export interface For {
  readonly kind: 'for';
  readonly target: Target;
  readonly of: Expression;
  readonly condition: Expression | undefined;
  readonly conditionScope: Body;
  readonly isRecursive: boolean;
  readonly body: Body;
  readonly otherwise: Body | undefined;
  readonly line: number;
}

export type Statement = { readonly line: number } & (
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly value: Expression }
  | { readonly kind: 'set'; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: 'capture';
      readonly target: Target;
      readonly filter: Filter | undefined;
      readonly body: Body;
    }
  | { readonly kind: 'if'; readonly branches: readonly Branch[]; readonly otherwise: readonly Statement[] }
  | For
  | ({ readonly kind: 'macro'; readonly name: string } & Signature)
  | ({ readonly kind: 'call'; readonly call: Expression } & Signature)
  | { readonly kind: 'filtered'; readonly filter: Filter; readonly body: Body }
  | {
      readonly kind: 'with';
      readonly entries: readonly (readonly [Target, Expression])[];
      readonly body: Body;
    }
  | { readonly kind: 'scope'; readonly body: Body; readonly escapes: Expression | undefined }
  | { readonly kind: 'block'; readonly name: string; readonly isScoped: boolean; readonly body: Body }
  | { readonly kind: 'loader'; readonly tag: string }
  | { readonly kind: 'break' | 'continue' }
);

/** The expressions that an expression is made of. */
export function partsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'constant':
    case 'name':
      return [];
    case 'list':
    case 'tuple':
    case 'and':
    case 'or':
    case 'concat':
      return expression.items;
    case 'dict':
      return expression.entries.flat();
    case 'attribute':
    case 'not':
    case 'negative':
    case 'positive':
      return [expression.of];
    case 'item':
      return [expression.of, expression.key];
    case 'slice':
      return [expression.of, expression.from, expression.to, expression.step].filter((part) => part !== undefined);
    case 'call':
    case 'filter':
    case 'test': {
      const { of, args, named, rest, restNamed } = expression;
      const all = [of, ...args, ...named.map(([, value]) => value), rest, restNamed];
      return all.filter((part) => part !== undefined);
    }
    case 'compare':
    case 'arithmetic':
      return [expression.first, ...expression.rest.map(({ right }) => right)];
    case 'choose':
      return [expression.condition, expression.then, expression.otherwise].filter((part) => part !== undefined);
    default:
      return expression satisfies never;
  }
}
