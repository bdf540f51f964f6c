/** A question with its choices: texts, log-likelihoods, which one is right and which one each run takes. */
import { useState } from 'preact/hooks';
import {
  letter,
  type Likelihood,
  numberOf,
  type QuestionsDocument,
  type QuestionText,
} from '../../document/questions.js';
import { LongText, Shown } from '../parts/Elements.js';
import { count, fixed, percent } from '../parts/numbers.js';
import { taskOf } from './select.js';
import { Tokens } from './Tokens.js';

const nats = (value: Likelihood | undefined): string => {
  if (value === undefined) return '–';
  const number = numberOf(value);
  return Number.isFinite(number) ? fixed(number, 4) : Number.isNaN(number) ? 'NaN' : number > 0 ? '∞' : '−∞';
};

/** Shares of the choices by their log-likelihoods; undefined where one is no number. */
function softmax(lls: readonly Likelihood[]): readonly number[] | undefined {
  const numbers = lls.map(numberOf);
  const most = Math.max(...numbers);
  if (!Number.isFinite(most)) return undefined;
  const weights = numbers.map((each) => Math.exp(each - most));
  const sum = weights.reduce((total, each) => total + each, 0);
  return weights.map((each) => each / sum);
}

/** The question's context: its end, where it is long, and examples before it folded. */
function Context({ text: { context, shots } }: { readonly text: QuestionText }) {
  const [hasShots, setShots] = useState(false);
  return (
    <div class="context">
      {shots > 0 && (
        <p>
          <button type="button" class="more" aria-expanded={hasShots} onClick={() => setShots(!hasShots)}>
            {hasShots ? 'Hide' : 'Show'} {count(shots)} characters of text before it
          </button>
        </p>
      )}
      {hasShots && (
        <p class="shots">
          <LongText text={context.slice(0, shots)} cut={4000} />
        </p>
      )}
      <p>
        <LongText text={context.slice(shots)} />
      </p>
    </div>
  );
}

interface ChoiceProps {
  readonly document: QuestionsDocument;
  readonly row: number;
  readonly text: QuestionText;
  readonly run: number;
}

function Choices({ document, row, text }: ChoiceProps) {
  const { answers, runs, golds, metrics } = document;
  const gold = golds[row]!;
  const all = answers.map(({ lls }) => lls[row]);
  const shares = all.map((lls) => (lls === null || lls === undefined ? undefined : softmax(lls)));
  const isByLength = metrics.includes('acc_norm');
  const length = Math.max(text.choices.length, ...all.map((lls) => lls?.length ?? 0));
  const several = runs.length > 1;
  if (length === 0) return null;
  return (
    <div class="scroll">
      <table class={several ? 'choices several' : 'choices'}>
        <caption class="hidden">Choices and their log-likelihoods</caption>
        <thead>
          <tr>
            <th scope="col">Choice</th>
            <th scope="col">Text</th>
            {runs.map((name, run) => (
              <th key={run} scope="col">
                {several ? <Shown text={name} /> : 'Nats'}
              </th>
            ))}
            {isByLength && !several && (
              <th scope="col" class="right">
                By character
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length }, (_, choice) => (
            <tr key={choice} class={choice === gold ? 'gold' : undefined}>
              <th scope="row">
                {letter(choice)}
                {choice === gold && <span class="tag right-answer">✓ right</span>}
              </th>
              <td>
                <LongText text={(text.choices[choice] ?? '').trimStart()} cut={600} />
              </td>
              {all.map((lls, run) => (
                <td key={run} class="answer">
                  <span>{nats(lls?.[choice])}</span>
                  {shares[run] !== undefined && (
                    <span
                      class="bar"
                      title={percent(shares[run][choice]!)}
                      style={{ '--share': String(shares[run][choice]) }}
                    />
                  )}
                  {answers[run]!.chosen[row] === choice && <span class="tag chosen">● most likely</span>}
                </td>
              ))}
              {isByLength && !several && (
                <td class="right">
                  {lengthOf(text.choices[choice]) === 0 || all[0]?.[choice] === undefined
                    ? '–'
                    : fixed(numberOf(all[0][choice]!) / lengthOf(text.choices[choice]), 4)}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** In characters, as acc_norm counts them: without the space before the choice. */
const lengthOf = (choice = ''): number => [...choice.replace(/^ /, '')].length;

function Verdicts({ document, row }: Pick<ChoiceProps, 'document' | 'row'>) {
  const { answers, runs, metrics } = document;
  return (
    <ul class="verdicts">
      {answers.map(({ margins, values }, run) => {
        const margin = margins[row];
        const said = metrics.flatMap((metric, i) => {
          const value = values[i]?.[row];
          return typeof value === 'number' ? [{ metric, value }] : [];
        });
        if (said.length === 0 && typeof margin !== 'number') return null;
        return (
          <li key={run}>
            {runs.length > 1 && (
              <strong>
                <Shown text={runs[run]!} />
              </strong>
            )}
            {said.map(({ metric, value }) => (
              <span key={metric} class={value === 1 ? 'is-right' : 'is-wrong'}>
                {value === 1 ? '✓' : '✗'} {metric}
              </span>
            ))}
            {typeof margin === 'number' && <span>margin {fixed(margin, 4)} nats</span>}
          </li>
        );
      })}
    </ul>
  );
}

function Outputs({ document, text }: { readonly document: QuestionsDocument; readonly text: QuestionText }) {
  if (text.outputs === undefined) return null;
  return (
    <dl class="outputs">
      {text.target !== undefined && (
        <>
          <dt>Right answer</dt>
          <dd>
            <LongText text={text.target} />
          </dd>
        </>
      )}
      {text.outputs.flatMap((outputs, run) =>
        outputs.map((output, i) => [
          <dt key={`${run}.${i}t`}>
            <Shown text={document.runs[run]!} />
            {outputs.length > 1 && `, ${i + 1}`}
          </dt>,
          <dd key={`${run}.${i}`}>
            <LongText text={output} />
          </dd>,
        ]),
      )}
    </dl>
  );
}

export function QuestionView({ document, row, text, run }: ChoiceProps) {
  const task = taskOf(document, row);
  const docId = document.docIds[row]!;
  return (
    <article aria-labelledby="question-title">
      <h2 id="question-title">
        Question {docId}{' '}
        <span class="soft">
          of <Shown text={task} />
        </span>
      </h2>
      <Verdicts document={document} row={row} />
      {text.cut === -1 ? (
        <p class="none">Its texts are not on this page, which would be too large.</p>
      ) : (
        <Context key={row} text={text} />
      )}
      <Choices document={document} row={row} text={text} run={run} />
      <Outputs document={document} text={text} />
      {text.cut !== undefined && text.cut > 0 && (
        <p class="none">{count(text.cut)} characters were too many for this page and are left out.</p>
      )}
      <Tokens {...{ document, row, task, docId, text, run }} />
    </article>
  );
}
