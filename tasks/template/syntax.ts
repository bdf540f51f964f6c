/** The syntax tree of a template: the part of Jinja that task files use. */

export type Comparison = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';
export type Arithmetic = '+' | '-' | '*' | '/' | '//' | '%' | '~' | '**';

/** What a value is given to: a name, or names for its items. */
export type Target = string | readonly Target[];

export type Expression =
  | { readonly kind: 'text'; readonly value: string }
  | { readonly kind: 'int'; readonly value: number | bigint }
  | { readonly kind: 'float'; readonly value: number }
  | { readonly kind: 'constant'; readonly value: boolean | null }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
  | { readonly kind: 'dict'; readonly entries: readonly (readonly [Expression, Expression])[] }
  | { readonly kind: 'attribute'; readonly of: Expression; readonly name: string }
  | { readonly kind: 'item'; readonly of: Expression; readonly key: Expression }
  | {
      readonly kind: 'slice';
      readonly of: Expression;
      readonly from?: Expression;
      readonly to?: Expression;
      readonly step?: Expression;
    }
  | { readonly kind: 'range'; readonly args: readonly Expression[] }
  | {
      readonly kind: 'filter' | 'method';
      readonly of: Expression;
      readonly name: string;
      readonly args: readonly Expression[];
      readonly named: ReadonlyMap<string, Expression>;
    }
  | {
      readonly kind: 'check';
      readonly of: Expression;
      readonly name: string;
      readonly args: readonly Expression[];
      readonly expected: boolean;
    }
  | { readonly kind: 'not' | 'negative'; readonly of: Expression }
  | { readonly kind: 'and' | 'or'; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: 'compare';
      readonly first: Expression;
      readonly rest: readonly { readonly op: Comparison; readonly right: Expression }[];
    }
  | { readonly kind: 'arithmetic'; readonly op: Arithmetic; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: 'choose';
      readonly condition: Expression;
      readonly then: Expression;
      readonly otherwise?: Expression;
    };

export type Statement =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly value: Expression; readonly line: number }
  | { readonly kind: 'set'; readonly target: Target; readonly value: Expression; readonly line: number }
  | { readonly kind: 'capture'; readonly target: Target; readonly body: readonly Statement[]; readonly line: number }
  | { readonly kind: 'if'; readonly branches: readonly Branch[]; readonly otherwise: readonly Statement[] }
  | {
      readonly kind: 'for';
      readonly target: Target;
      readonly of: Expression;
      /** Items that it does not hold for are left out. */
      readonly condition?: Expression;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
      readonly line: number;
    };

/** A part of an "if": the first whose condition holds is taken. */
export interface Branch {
  readonly condition: Expression;
  readonly body: readonly Statement[];
  readonly line: number;
}

/** Something a template may not do, or does wrong, at a line of it counted from 1. */
export class TemplateProblem extends Error {
  readonly line: number;
  constructor(message: string, line: number) {
    super(message);
    this.name = 'TemplateProblem';
    this.line = line;
  }
}
