/** What goes wrong while a template is evaluated; the evaluator adds the line. */
export class Failure extends Error {}
