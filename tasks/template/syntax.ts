/** The syntax tree of a template: the part of Jinja that task files use. */

export type Comparison = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';
export type Arithmetic = '+' | '-' | '*' | '/' | '//' | '%' | '~';

export type Expression =
  | { readonly kind: 'text'; readonly value: string }
  | { readonly kind: 'int'; readonly value: number }
  | { readonly kind: 'float'; readonly value: number }
  | { readonly kind: 'constant'; readonly value: boolean | null }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list'; readonly items: readonly Expression[] }
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
  | { readonly kind: 'method'; readonly of: Expression; readonly name: string; readonly args: readonly Expression[] }
  | { readonly kind: 'range'; readonly args: readonly Expression[] }
  | {
      readonly kind: 'filter';
      readonly of: Expression;
      readonly name: string;
      readonly args: readonly Expression[];
      readonly named: ReadonlyMap<string, Expression>;
    }
  | { readonly kind: 'defined'; readonly of: Expression; readonly expected: boolean }
  | { readonly kind: 'isNone'; readonly of: Expression; readonly expected: boolean }
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
  | { readonly kind: 'set'; readonly name: string; readonly value: Expression; readonly line: number }
  | {
      readonly kind: 'if';
      readonly condition: Expression;
      readonly then: readonly Statement[];
      readonly otherwise: readonly Statement[];
      readonly line: number;
    }
  | {
      readonly kind: 'for';
      readonly names: readonly string[];
      readonly of: Expression;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
      readonly line: number;
    };

/** Something a template may not do, or does wrong, at a line of it counted from 1. */
export class TemplateProblem extends Error {
  readonly line: number;
  constructor(message: string, line: number) {
    super(message);
    this.name = 'TemplateProblem';
    this.line = line;
  }
}
