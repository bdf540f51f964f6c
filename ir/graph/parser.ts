/**
 * Parser of the text form. `parseGraph(printGraph(g))` has the structure of g, and printing it again gives the same
 * text; the same holds for modules. Line comments (`// …`) are allowed and not kept.
 *
 *     module    = 'module' @name '{' {state} {function} '}' | {state} function
 *     state     = 'state' @name ':' type
 *     function  = 'func' @name ['[' [extent {',' extent}] ']'] '(' [param {',' param}] [';' taken {',' taken}] ')'
 *                 '->' '(' [result {',' result}] [';' %name {',' %name}] ')' '{' {weight} {node} return '}'
 *     taken     = %name ':' 'state' @name
 *     extent    = name [word] ['within' name]
 *     param     = %name ':' type ['is' word ['(' (number | word | @name) ')']]
 *     result    = [%name ':'] type
 *     weight    = 'weight' @name ':' type
 *     node      = %name '=' op '(' [operand {',' operand}] ')'
 *                 ['{' attribute {',' attribute} '}'] ':' type ['at' string]
 *     return    = 'return' [operand {',' operand}]
 *     operand   = %name | @name
 *     attribute = name '=' (number | string | 'true' | 'false' | '[' [(number | word) {',' …}] ']')
 *     type      = dtype '[' [dim {',' dim}] ']'
 *     dim       = whole number | the name of an extent
 *
 * A function that lists no extents has those of its parameters, in order of appearance. It takes states under their own
 * names. Behind its results it gives the last version of each state that it writes.
 */
import { EOF } from 'chevrotain';
import type { Graph, GraphModule } from './graph.js';
import * as t from './lexer.js';
import { leaf, PartsParser, spotOf } from './parseParts.js';
import { resolveModule } from './resolve.js';
import {
  GraphSyntaxError,
  type AttributeSyntax,
  type DeclarationSyntax,
  type GraphSyntax,
  type Leaf,
  type ModuleSyntax,
  type NodeSyntax,
  type ResultSyntax,
  type Spot,
  type TakenSyntax,
} from './syntax.js';

class GraphParser extends PartsParser {
  constructor() {
    super();
    this.performSelfAnalysis();
  }

  readonly module = this.RULE('module', (): ModuleSyntax => {
    const states: DeclarationSyntax[] = [];
    const functions: GraphSyntax[] = [];
    const name = this.OPTION(() => {
      this.CONSUME(t.ModuleKeyword);
      const found = leaf(this.CONSUME(t.Global, { ERR_MSG: "the module's name (@name)" }));
      this.CONSUME(t.LBrace);
      return found;
    });
    this.MANY(() => {
      states.push(this.SUBRULE(this.state));
    });
    functions.push(this.SUBRULE(this.graph));
    if (name !== undefined || this.RECORDING_PHASE) {
      this.MANY2(() => {
        functions.push(this.SUBRULE2(this.graph));
      });
      this.CONSUME(t.RBrace, { ERR_MSG: "another function or '}'" });
    }
    return { name, states, functions };
  });

  readonly state = this.RULE('state', (): DeclarationSyntax => {
    this.CONSUME(t.StateKeyword);
    const name = leaf(this.CONSUME(t.Global, { ERR_MSG: "the state's name (@name)" }));
    this.CONSUME(t.Colon, { ERR_MSG: "':' and the state's type" });
    return { name, type: this.SUBRULE(this.type) };
  });

  readonly graph = this.RULE('graph', (): GraphSyntax => {
    const params: DeclarationSyntax[] = [];
    const takes: TakenSyntax[] = [];
    const gives: Leaf[] = [];
    const resultTypes: ResultSyntax[] = [];
    const weights: DeclarationSyntax[] = [];
    const nodes: NodeSyntax[] = [];
    const returned: Leaf[] = [];
    this.CONSUME(t.FuncKeyword);
    const name = leaf(this.CONSUME(t.Global, { ERR_MSG: "the function's name (@name)" }));
    const extents = this.OPTION(() => this.SUBRULE(this.extents));
    this.CONSUME(t.LParen, { ERR_MSG: "'[' and extents, or '(' and the parameters" });
    this.MANY_SEP({
      SEP: t.Comma,
      DEF: () => {
        params.push(this.SUBRULE(this.param));
      },
    });
    this.OPTION2(() => {
      this.CONSUME(t.Semicolon);
      this.AT_LEAST_ONE_SEP({
        SEP: t.Comma,
        DEF: () => {
          takes.push(this.SUBRULE(this.taken));
        },
        ERR_MSG: 'a state (%name: state @name)',
      });
    });
    this.CONSUME(t.RParen, { ERR_MSG: "a parameter (%name: type), ',' or ')'" });
    this.CONSUME(t.Arrow);
    this.CONSUME2(t.LParen);
    this.MANY_SEP2({
      SEP: t.Comma,
      DEF: () => {
        resultTypes.push(this.SUBRULE(this.result));
      },
    });
    this.OPTION3(() => {
      this.CONSUME2(t.Semicolon);
      this.AT_LEAST_ONE_SEP2({
        SEP: t.Comma,
        DEF: () => {
          gives.push(leaf(this.CONSUME(t.Local)));
        },
        ERR_MSG: 'a version of a state (%name)',
      });
    });
    this.CONSUME2(t.RParen, { ERR_MSG: "a type, ',' or ')'" });
    this.CONSUME(t.LBrace);
    this.MANY(() => {
      weights.push(this.SUBRULE(this.weight));
    });
    this.MANY2(() => {
      nodes.push(this.SUBRULE(this.node));
    });
    const returnSpot = spotOf(
      this.CONSUME(t.ReturnKeyword, {
        ERR_MSG: "a node (%name = op(…) : type) or 'return' (weights come before nodes)",
      }),
    );
    this.MANY_SEP3({
      SEP: t.Comma,
      DEF: () => {
        returned.push(this.SUBRULE(this.operand));
      },
    });
    this.CONSUME(t.RBrace, { ERR_MSG: "',' or '}' after the returned values" });
    return { name, extents, params, takes, resultTypes, gives, weights, nodes, returned, returnSpot };
  });

  readonly taken = this.RULE('taken', (): TakenSyntax => {
    const name = leaf(this.CONSUME(t.Local));
    this.CONSUME(t.Colon, { ERR_MSG: "':' and the state (state @name)" });
    this.CONSUME(t.StateKeyword);
    return { name, state: leaf(this.CONSUME(t.Global)) };
  });

  readonly param = this.RULE('param', (): DeclarationSyntax => {
    const name = leaf(this.CONSUME(t.Local));
    this.CONSUME(t.Colon, { ERR_MSG: "':' and the parameter's type" });
    const type = this.SUBRULE(this.type);
    const role = this.OPTION(() => {
      this.CONSUME(t.IsKeyword);
      return this.SUBRULE(this.role);
    });
    return role === undefined ? { name, type } : { name, type, role };
  });

  readonly result = this.RULE('result', (): ResultSyntax => {
    const name = this.OPTION(() => {
      const local = leaf(this.CONSUME(t.Local));
      this.CONSUME(t.Colon, { ERR_MSG: "':' and the result's type" });
      return local;
    });
    return { name, type: this.SUBRULE(this.type) };
  });

  readonly weight = this.RULE('weight', (): DeclarationSyntax => {
    this.CONSUME(t.WeightKeyword);
    const name = leaf(this.CONSUME(t.Global, { ERR_MSG: 'a checkpoint tensor (@name)' }));
    this.CONSUME(t.Colon, { ERR_MSG: "':' and the weight's type" });
    return { name, type: this.SUBRULE(this.type) };
  });

  readonly node = this.RULE('node', (): NodeSyntax => {
    const operands: Leaf[] = [];
    const attributes: AttributeSyntax[] = [];
    const result = leaf(this.CONSUME(t.Local));
    this.CONSUME(t.Equals);
    const op = leaf(this.CONSUME(t.Word, { ERR_MSG: 'an op' }));
    this.CONSUME(t.LParen, { ERR_MSG: "'(' and the operands" });
    this.MANY_SEP({
      SEP: t.Comma,
      DEF: () => {
        operands.push(this.SUBRULE(this.operand));
      },
    });
    this.CONSUME(t.RParen, { ERR_MSG: "an operand (%name or @name), ',' or ')'" });
    this.OPTION(() => {
      this.CONSUME(t.LBrace);
      this.AT_LEAST_ONE_SEP2({
        SEP: t.Comma,
        DEF: () => {
          attributes.push(this.SUBRULE(this.attribute));
        },
        ERR_MSG: 'an attribute (name = value)',
      });
      this.CONSUME(t.RBrace, { ERR_MSG: "',' or '}' after an attribute" });
    });
    this.CONSUME(t.Colon, { ERR_MSG: "'{' and attributes, or ':' and the result type" });
    const type = this.SUBRULE(this.type);
    const path = this.OPTION2(() => {
      this.CONSUME(t.AtKeyword);
      return leaf(this.CONSUME(t.StringToken, { ERR_MSG: 'a model path in quotes' }));
    });
    return { result, op, operands, attributes, type, path };
  });
}

const PARSER = new GraphParser();

/** Line and column just after the last character that is not white space. */
function endOf(text: string): Spot {
  const lines = text.trimEnd().split('\n');
  return { line: lines.length, column: (lines.at(-1)?.length ?? 0) + 1 };
}

/** The one function that `text` describes. Throws GraphSyntaxError; `file` is the name of the text in its message. */
export function parseGraph(text: string, file = 'graph'): Graph {
  const [graph, second] = parseModule(text, file).functions;
  if (graph === undefined || second !== undefined)
    throw new GraphSyntaxError(file, { line: 1, column: 1 }, 'a module of several functions', 'one function');
  return graph;
}

/** The module that `text` describes; a function alone is a module. Throws GraphSyntaxError. */
export function parseModule(text: string, file = 'module'): GraphModule {
  PARSER.input = t.tokenize(text, file);
  const syntax = PARSER.module();
  const [error] = PARSER.errors;
  if (error !== undefined) {
    const atEnd = error.token.tokenType === EOF;
    const found = atEnd ? 'the end of the text' : `'${error.token.image.slice(0, 80)}'`;
    throw new GraphSyntaxError(file, atEnd ? endOf(text) : spotOf(error.token), found, error.message);
  }
  return resolveModule(syntax, file);
}
