/** Thrown for a graph that the compiler has no lowering for. */
export class CompileError extends Error {}
