/** What goes wrong in a template. */

/** Jinja's and Python's kinds of errors; `limit` for what would take too much. */
export type FailureKind =
  | 'TemplateSyntaxError'
  | 'TemplateAssertionError'
  | 'TemplateRuntimeError'
  | 'TemplateError'
  | 'UndefinedError'
  | 'SecurityError'
  | 'FilterArgumentError'
  | 'AttributeError'
  | 'IndexError'
  | 'KeyError'
  | 'OverflowError'
  | 'TypeError'
  | 'ValueError'
  | 'ZeroDivisionError'
  | 'limit';

export class Failure extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** What a template cannot be read or rendered for, and the line of the template. */
export class TemplateProblem extends Error {
  readonly kind: FailureKind;
  readonly line: number;

  constructor(kind: FailureKind, message: string, line: number) {
    super(kind === 'limit' || kind === 'TemplateError' ? message : `${kind}: ${message}`);
    this.kind = kind;
    this.line = line;
  }
}

export const typeError = (message: string): Failure => new Failure('TypeError', message);
export const valueError = (message: string): Failure => new Failure('ValueError', message);
