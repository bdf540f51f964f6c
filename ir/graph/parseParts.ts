/** The smaller rules of the grammar in parser.ts: extents, roles, operands, attributes and types. */
import {
  EmbeddedActionsParser,
  tokenLabel,
  type IParserErrorMessageProvider,
  type IToken,
  type TokenType,
} from 'chevrotain';
import * as t from './lexer.js';
import type { AttributeSyntax, ExtentSyntax, Leaf, RoleSyntax, Spot, TypeSyntax } from './syntax.js';

/** Where a token begins. */
export const spotOf = (token: IToken): Spot => ({ line: token.startLine ?? 1, column: token.startColumn ?? 1 });
/** A token's text and place. */
export const leaf = (token: IToken): Leaf => ({ text: token.image, spot: spotOf(token) });

const firsts = (paths: readonly (readonly (readonly TokenType[])[])[]): string =>
  [...new Set(paths.flat().flatMap(([first]) => (first === undefined ? [] : [tokenLabel(first)])))].join(' or ');

/** The message says what was expected; parser.ts adds what was found and where. */
const EXPECTED: IParserErrorMessageProvider = {
  buildMismatchTokenMessage: ({ expected }) => tokenLabel(expected),
  buildNotAllInputParsedMessage: () => 'the end of the text: a file holds one function or module',
  buildNoViableAltMessage: ({ expectedPathsPerAlt, customUserDescription }) =>
    customUserDescription ?? firsts(expectedPathsPerAlt),
  buildEarlyExitMessage: ({ expectedIterationPaths, customUserDescription }) =>
    customUserDescription ?? firsts(expectedIterationPaths.map((path) => [path])),
};

/** Rules that others are made of. Whoever extends it calls performSelfAnalysis once all rules are there. */
export class PartsParser extends EmbeddedActionsParser {
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
