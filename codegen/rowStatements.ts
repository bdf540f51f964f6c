/** Statements that run once for a row of a generated kernel: each value is defined once, under a name. */
import type { Scalar } from '../ir/scalar.js';
import type { KernelOperands } from './operands.js';

/** A statement that defines `name`, of C type `type`. */
export interface RowStatement {
  readonly name: string;
  readonly type: string;
  readonly line: string;
}

export class RowStatements<O extends KernelOperands> {
  readonly statements: RowStatement[] = [];
  readonly operands: O;
  /** The mark of the statements that are being printed: that of the innermost expression which has one. */
  mark = '';
  private readonly names = new Map<string, string>();
  private readonly prefix: string;

  /** `prefix`: of the variables that are defined here; rows within one block of statements need different ones. */
  constructor(operands: O, prefix: string) {
    this.operands = operands;
    this.prefix = prefix;
  }

  /** The statements as lines. */
  get lines(): readonly string[] {
    return this.statements.map(({ line }) => line);
  }

  /** What `print` adds belongs to `s`. */
  within<T>(s: Scalar, print: () => T): T {
    const outer = this.mark;
    this.mark = this.operands.markOf?.(s) ?? outer;
    const made = print();
    this.mark = outer;
    return made;
  }

  /** The variable that holds `code`, of C type `type`; the same `key` has the same variable. */
  define(key: string, type: string, code: string): string {
    const known = this.names.get(key);
    if (known !== undefined) return known;
    const name = `${this.prefix}${this.names.size}`;
    this.names.set(key, name);
    this.statements.push({ name, type, line: `${type} const ${name} = ${code};${this.mark}` });
    return name;
  }
}
