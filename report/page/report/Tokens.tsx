/** Tokens of a question: a strip for each choice, as warm as a token is unlikely, and the tree that was computed. */
import { useState } from 'preact/hooks';
import {
  type ChoiceTokens,
  countOf,
  letter,
  type QuestionsDocument,
  type QuestionText,
  type QuestionTokens,
  type Token,
  type TokenBlock,
  type TokenNode,
  tokensBlock,
  tokensOf,
  tokenTree,
} from '../../document/questions.js';
import { hasBlock, readBlock, useLoaded } from '../parts/data.js';
import { Shown } from '../parts/Elements.js';
import { count, fixed } from '../parts/numbers.js';
import { blockOf } from './texts.js';

interface TokensProps {
  readonly document: QuestionsDocument;
  readonly row: number;
  readonly task: string;
  readonly docId: number;
  readonly text: QuestionText;
  /** The run that is looked at: place in `document.runs`. */
  readonly run: number;
}

/** Nats at which a token is as warm as it gets: one in 22,000. */
const WARMEST = 10;

/** The probability, as far as two digits of its logarithm say it. */
function about(logProb: number): string {
  const share = 100 * Math.exp(logProb);
  return share < 1 ? 'below 1 %' : `about ${Math.round(share)} %`;
}

const said = ({ text, logProb }: Token): string =>
  logProb === null
    ? `${JSON.stringify(text ?? 'special token')}: context, not scored`
    : `${JSON.stringify(text ?? 'special token')}: ${fixed(logProb, 2)} nats, ${about(logProb)}`;

function Strip({ tokens }: { readonly tokens: readonly Token[] }) {
  return (
    <span class="strip">
      {tokens.map((token, i) => (
        <span
          key={i}
          class={token.logProb === null ? 'token unscored' : 'token'}
          title={said(token)}
          style={token.logProb === null ? {} : { '--heat': String(Math.min(1, -token.logProb / WARMEST)) }}
        >
          {token.text === null || token.text === '' ? <span class="code">⟨special⟩</span> : <Shown text={token.text} />}
        </span>
      ))}
    </span>
  );
}

function TokenTable({ tokens }: { readonly tokens: readonly Token[] }) {
  return (
    <div class="scroll">
      <table class="tokens">
        <caption class="hidden">Tokens and their log-probabilities</caption>
        <thead>
          <tr>
            <th scope="col">Token</th>
            <th scope="col" class="right">
              Nats
            </th>
            <th scope="col" class="right">
              Probability
            </th>
          </tr>
        </thead>
        <tbody>
          {tokens.map(({ text, logProb }, i) => (
            <tr key={i}>
              <td>{text === null ? 'special' : <Shown text={text} />}</td>
              <td class="right">{logProb === null ? '–' : fixed(logProb, 2)}</td>
              <td class="right">{logProb === null ? '–' : about(logProb)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Branch({ node, gold }: { readonly node: TokenNode; readonly gold: number }) {
  return (
    <li>
      <span class="branch">
        {node.tokens.length > 0 && <Strip tokens={node.tokens} />}{' '}
        <span class="soft">{node.tokens.length > 0 && count(node.tokens.length)}</span>{' '}
        {node.ends.map((choice) => (
          <span key={choice} class={choice === gold ? 'tag right-answer' : 'tag'}>
            {letter(choice)}
            {choice === gold && ' ✓'}
          </span>
        ))}
      </span>
      <Branches nodes={node.children} gold={gold} />
    </li>
  );
}

function Branches({ nodes, gold }: { readonly nodes: readonly TokenNode[]; readonly gold: number }) {
  if (nodes.length === 0) return null;
  return (
    <ul>
      {nodes.map((node, i) => (
        <Branch key={i} node={node} gold={gold} />
      ))}
    </ul>
  );
}

const lengthOf = ({ lengths, texts, omitted }: ChoiceTokens): number =>
  (lengths?.length ?? texts?.length ?? 0) + omitted;

function Tree({ of, all, gold }: { of: QuestionTokens; all: readonly (readonly Token[])[]; gold: number }) {
  const root = tokenTree(all);
  const omitted = of.choices.reduce((sum, each) => sum + each.omitted, 0);
  const once = of.shared + countOf(root) + omitted;
  const alone = of.choices.reduce((sum, each) => sum + of.shared + lengthOf(each), 0);
  return (
    <>
      <p class="soft">
        {count(once)} tokens where what choices have in common is computed once, {count(alone)} where each is a sequence
        of its own.
      </p>
      <ul class="tree" aria-label="The tree of the question's tokens">
        <li>
          <span class="branch">
            <span class="tag">context</span> <span class="soft">{count(of.shared)} tokens</span>{' '}
            {root.tokens.length > 0 && <Strip tokens={root.tokens} />}
          </span>
          <Branches nodes={root.children} gold={gold} />
        </li>
      </ul>
    </>
  );
}

export function Tokens({ document, row, text, run }: TokensProps) {
  const block = tokensBlock(run, blockOf(document.blocks, row));
  const [isTable, setTable] = useState(false);
  const loading = useLoaded<TokenBlock>(
    () => (hasBlock(block) ? readBlock<TokenBlock>(block) : Promise.resolve([])),
    [block],
  );
  if (loading.state !== 'ready') return null;
  const of = loading.value[row - document.blocks[blockOf(document.blocks, row)]!];
  if (of === null || of === undefined || of.choices.length === 0) return null;
  const all = of.choices.map((choice, i) => tokensOf(choice, text.choices[i] ?? ''));
  const gold = document.golds[row]!;
  return (
    <section class="token-part" aria-labelledby="tokens-title">
      <h3 id="tokens-title">Tokens</h3>
      <p class="soft">
        The warmer, the less likely: <span class="scale" aria-hidden="true" /> from certain to {fixed(-WARMEST, 0)}{' '}
        nats.{' '}
        <button type="button" class="more" aria-pressed={isTable} onClick={() => setTable(!isTable)}>
          {isTable ? 'Show as strips' : 'Show as tables'}
        </button>
      </p>
      <ol class="strips">
        {all.map((tokens, choice) => (
          <li key={choice}>
            <span class={choice === gold ? 'tag right-answer' : 'tag'}>{letter(choice)}</span>
            {isTable ? <TokenTable tokens={tokens} /> : <Strip tokens={tokens} />}
          </li>
        ))}
      </ol>
      {of.choices.length > 1 && (
        <>
          <h3>Tree</h3>
          <Tree of={of} all={all} gold={gold} />
        </>
      )}
    </section>
  );
}
