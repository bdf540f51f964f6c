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
import {
  EmbeddedActionsParser,
  EOF,
  type IParserErrorMessageProvider,
  type IToken,
  tokenLabel,
  type TokenType,
} from 'chevrotain';
import type { Graph, GraphModule } from './graph.js';
import { resolveModule } from './resolve.js';
import * as t from './syntax.js';
import {
  type AttributeSyntax,
  type DeclarationSyntax,
  type ExtentSyntax,
  type GraphSyntax,
  GraphSyntaxError,
  type Leaf,
  type ModuleSyntax,
  type NodeSyntax,
  type ResultSyntax,
  type RoleSyntax,
  type Spot,
  type TakenSyntax,
  type TypeSyntax,
} from './syntax.js';

/** Where a token begins. */
const spotOf = (token: IToken): Spot => ({ line: token.startLine ?? 1, column: token.startColumn ?? 1 });
/** A token's text and place. */
const leaf = (token: IToken): Leaf => ({ text: token.image, spot: spotOf(token) });

const firsts = (paths: readonly (readonly (readonly TokenType[])[])[]): string =>
  [...new Set(paths.flat().flatMap(([first]) => (first === undefined ? [] : [tokenLabel(first)])))].join(' or ');

/** The message says what was expected; parseModule adds what was found and where. */
const EXPECTED: IParserErrorMessageProvider = {
  buildMismatchTokenMessage: ({ expected }) => tokenLabel(expected),
  buildNotAllInputParsedMessage: () => 'the end of the text: a file holds one function or module',
  buildNoViableAltMessage: ({ expectedPathsPerAlt, customUserDescription }) =>
    customUserDescription ?? firsts(expectedPathsPerAlt),
  buildEarlyExitMessage: ({ expectedIterationPaths, customUserDescription }) =>
    customUserDescription ?? firsts(expectedIterationPaths.map((path) => [path])),
};

/** The smaller rules: extents, roles, operands, attributes and types. */
class PartsParser extends EmbeddedActionsParser {
  constructor() {
    super(t.TOKENS, { errorMessageProvider: EXPECTED, maxLookahead: 1 });
  }

  readonly extents = this.RULE('extents', (): ExtentSyntax[] => {
    const extents: ExtentSyntax[] = [];
    this.CONSUME(t.LBracket);
    this.MANY_SEP({
      SEP: t.Comma,
      DEF: () => {
        const name = leaf(this.CONSUME(t.Word, { ERR_MSG: 'the name of an extent' }));
        const counts = this.OPTION(() => leaf(this.CONSUME2(t.Word)));
        const within = this.OPTION2(() => {
          this.CONSUME(t.WithinKeyword);
          return leaf(this.CONSUME3(t.Word, { ERR_MSG: 'the name of an extent' }));
        });
        extents.push({ name, counts, within });
      },
    });
    this.CONSUME(t.RBracket, { ERR_MSG: "what the extent counts, 'within', ',' or ']'" });
    return extents;
  });

  readonly role = this.RULE('role', (): RoleSyntax => {
    const kind = leaf(this.CONSUME(t.Word, { ERR_MSG: 'a role' }));
    const argument = this.OPTION(() => {
      this.CONSUME(t.LParen);
      const found = this.OR({
        DEF: [
          { ALT: () => leaf(this.CONSUME(t.NumberToken)) },
          { ALT: () => leaf(this.CONSUME2(t.Word)) },
          { ALT: () => leaf(this.CONSUME(t.Global)) },
        ],
        ERR_MSG: 'a number, an extent or a state (@name)',
      });
      this.CONSUME(t.RParen);
      return found;
    });
    return { kind, argument };
  });

  readonly operand = this.RULE('operand', (): Leaf =>
    this.OR({
      DEF: [{ ALT: () => leaf(this.CONSUME(t.Local)) }, { ALT: () => leaf(this.CONSUME(t.Global)) }],
      ERR_MSG: 'an operand (%name or @name)',
    }),
  );

  readonly attribute = this.RULE('attribute', (): AttributeSyntax => {
    const name = leaf(this.CONSUME(t.Word, { ERR_MSG: 'an attribute (name = value)' }));
    this.CONSUME(t.Equals, { ERR_MSG: "'=' and the attribute's value" });
    const value = this.OR({
      DEF: [
        { ALT: (): Leaf | Leaf[] => leaf(this.CONSUME(t.NumberToken)) },
        { ALT: (): Leaf | Leaf[] => leaf(this.CONSUME(t.StringToken)) },
        { ALT: (): Leaf | Leaf[] => leaf(this.CONSUME(t.True)) },
        { ALT: (): Leaf | Leaf[] => leaf(this.CONSUME(t.False)) },
        { ALT: (): Leaf | Leaf[] => this.SUBRULE(this.list) },
      ],
      ERR_MSG: "a value: a number, a string, 'true', 'false' or '['",
    });
    return { name, value };
  });

  readonly list = this.RULE('list', (): Leaf[] => {
    const entries: Leaf[] = [];
    this.CONSUME(t.LBracket);
    this.MANY_SEP({
      SEP: t.Comma,
      DEF: () => {
        entries.push(this.SUBRULE(this.entry));
      },
    });
    this.CONSUME(t.RBracket, { ERR_MSG: "a number, a symbol, ',' or ']'" });
    return entries;
  });

  readonly type = this.RULE('type', (): TypeSyntax => {
    const dims: Leaf[] = [];
    const dtype = leaf(this.CONSUME(t.Word, { ERR_MSG: 'an element type' }));
    this.CONSUME(t.LBracket, { ERR_MSG: "'[' and the shape" });
    this.MANY_SEP({
      SEP: t.Comma,
      DEF: () => {
        dims.push(this.SUBRULE(this.entry));
      },
    });
    this.CONSUME(t.RBracket, { ERR_MSG: "a dimension, ',' or ']'" });
    return { dtype, dims };
  });

  readonly entry = this.RULE('entry', (): Leaf =>
    this.OR({
      DEF: [{ ALT: () => leaf(this.CONSUME(t.NumberToken)) }, { ALT: () => leaf(this.CONSUME(t.Word)) }],
      ERR_MSG: 'a number or a symbol',
    }),
  );
}

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
