/** The compiler met a graph that it has no lowering for. */
export class CompileError extends Error {}
