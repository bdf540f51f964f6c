/** Errors that a user can act on: wrong use, bad input, a missing tool, a full disk. */

/**
 * Printed by cli/ as its message and hint, without a stack. Anything else that is thrown is a bug in this program.
 * The message says what is wrong and where; the hint is the next command to type or the next thing to do.
 */
export class UserError extends Error {
  readonly hint: string | undefined;

  constructor(message: string, hint?: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'UserError';
    this.hint = hint;
  }
}

/** A flag, an argument or a field of a request that cannot mean anything: found before any file is looked at. */
export class UsageError extends UserError {
  constructor(message: string, hint?: string, options?: ErrorOptions) {
    super(message, hint, options);
    this.name = 'UsageError';
  }
}

/** No compiler for the kernels of a target is here. */
export class MissingCompiler extends UserError {}

/** Thrown for a graph that the compiler has no lowering for. */
export class CompileError extends Error {}
