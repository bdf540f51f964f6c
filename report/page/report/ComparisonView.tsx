/** The section of comparisons: runs beside the first one, with tests, flips and margins. */
import { useState } from 'preact/hooks';
import type { ComparisonDocument, RunComparison } from '../../document/comparison.js';
import { letter, type Likelihood, numberOf } from '../../document/questions.js';
import { hasBlock } from '../parts/data.js';
import { Choose, Name, Shown, Table } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { count, counted, fixed, percent } from '../parts/numbers.js';
import { hashOf } from '../parts/route.js';
import { Differences, MarginScatter } from './Differences.js';

/** Links into the list of questions, filtered to what changed. */
function Flips({ comparison }: { readonly comparison: RunComparison }) {
  const { other, metrics, choices } = comparison;
  const [first] = metrics.filter(({ lost }) => lost !== null);
  const changed = choices.reduce((sum, each) => sum + each.changed, 0);
  const asked = choices.reduce((sum, each) => sum + each.questions, 0);
  if (first === undefined && asked === 0) return null;
  const href = (show: string): string =>
    hashOf({ section: 'questions', state: { show, run: String(other), metric: first?.metric ?? '' } });
  const has = hasBlock('questions');
  const all = metrics.filter(
    ({ metric, lost, name }) => lost !== null && metric === first?.metric && isTask(comparison, name),
  );
  const sum = (of: 'lost' | 'gained'): number => all.reduce((total, each) => total + (each[of] ?? 0), 0);
  const links = [
    ...(first === undefined
      ? []
      : [
          { show: 'lost', number: sum('lost'), what: `right → wrong in ${first.metric}` },
          { show: 'gained', number: sum('gained'), what: `wrong → right in ${first.metric}` },
        ]),
    ...(asked === 0 ? [] : [{ show: 'other', number: changed, what: `of ${count(asked)} take another choice` }]),
  ];
  return (
    <ul class="flips">
      {links.map(({ show, number, what }) => (
        <li key={show}>
          {has && number > 0 ? <a href={href(show)}>{count(number)}</a> : <strong>{count(number)}</strong>}
          <span>{what}</span>
        </li>
      ))}
    </ul>
  );
}

const isTask = ({ questions }: RunComparison, name: string): boolean => questions.some(({ task }) => task === name);

/** What only one run has, and what was asked differently: in words, where there is something to say. */
function Common({
  comparison,
  names,
}: {
  readonly comparison: RunComparison;
  readonly names: readonly [string, string];
}) {
  const { questions, unlike, onlyFirst, onlyOther, notes } = comparison;
  const total = (of: 'common' | 'onlyFirst' | 'onlyOther' | 'otherPrompt' | 'renumbered'): number =>
    questions.reduce((sum, each) => sum + each[of], 0);
  const list = (tasks: readonly string[]): string =>
    `${tasks.slice(0, 8).join(', ')}${tasks.length > 8 ? ` and ${tasks.length - 8} more` : ''}`;
  const left = (of: 'onlyFirst' | 'onlyOther'): string =>
    `${counted(total(of), 'question')} of tasks that both have ${total(of) === 1 ? 'is' : 'are'}`;
  const asked = (of: 'otherPrompt' | 'renumbered', how: string): string =>
    `${counted(total(of), 'question')} ${total(of) === 1 ? 'was' : 'were'} ${how}`;
  const lines = [
    ...(onlyFirst.length > 0 ? [`Only ${names[0]} has: ${list(onlyFirst)}.`] : []),
    ...(onlyOther.length > 0 ? [`Only ${names[1]} has: ${list(onlyOther)}.`] : []),
    ...(total('onlyFirst') > 0 ? [`${left('onlyFirst')} only in ${names[0]}, and left out.`] : []),
    ...(total('onlyOther') > 0 ? [`${left('onlyOther')} only in ${names[1]}, and left out.`] : []),
    ...(total('otherPrompt') > 0 ? [`${asked('otherPrompt', 'asked in other words')}.`] : []),
    ...(total('renumbered') > 0 ? [`${asked('renumbered', 'numbered otherwise')}.`] : []),
    ...unlike.map(({ what, first, other }) => `Not the same: ${what} (${first}; ${other}).`),
    ...notes,
  ];
  return (
    <>
      <p class="none">
        {counted(total('common'), 'question')} {total('common') === 1 ? 'is' : 'are'} in both.
      </p>
      {lines.length > 0 && (
        <ul class="notes">
          {lines.map((line) => (
            <li key={line}>
              <Shown text={line} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Comparison({ comparison, runs }: { readonly comparison: RunComparison; readonly runs: readonly string[] }) {
  const names = [runs[comparison.first]!, runs[comparison.other]!] as const;
  return (
    <section>
      <h2>
        <Shown text={names[1]} /> <span class="soft">beside</span> <Shown text={names[0]} />
      </h2>
      <p class="summary">
        <Shown text={comparison.summary} />
      </p>
      <Flips comparison={comparison} />
      <Common comparison={comparison} names={names} />
      <Differences comparison={comparison} names={names} />
      {hasBlock('questions') && <MarginScatter comparison={comparison} names={names} />}
      <Likelihoods comparison={comparison} />
    </section>
  );
}

function Comparisons({ runs, comparisons, apart }: ComparisonDocument) {
  const [chosen, setChosen] = useState(String(comparisons[0]?.other ?? ''));
  const comparison = comparisons.find(({ other }) => String(other) === chosen) ?? comparisons[0];
  const options = comparisons.map(({ other }) => ({ value: String(other), title: runs[other]! }));
  return (
    <>
      {options.length > 1 && (
        <div class="controls">
          <Choose label={`Run beside ${runs[0]!}`} value={chosen} options={options} onChange={setChosen} />
        </div>
      )}
      {apart.map(({ run, why }) => (
        <p key={run} class="failed">
          <Shown text={`${runs[run]!} cannot be compared: ${why}`} />
        </p>
      ))}
      {comparison === undefined ? (
        <p>There is nothing to compare.</p>
      ) : (
        <Comparison key={comparison.other} comparison={comparison} runs={runs} />
      )}
    </>
  );
}

export const ComparisonView = () => <Section name="comparison">{(content) => <Comparisons {...content} />}</Section>;

/** How far log-likelihoods, choices and texts of two runs are from each other. */

/** `2.5e−5` below a thousandth, `0.0123` above. */
const small = (value: number): string =>
  value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1).replaceAll('-', '−') : fixed(value, 4);

const lead = (value: Likelihood | null): string => {
  if (value === null) return '–';
  return Number.isFinite(numberOf(value)) ? fixed(numberOf(value), 4) : '∞';
};

export function Likelihoods({ comparison }: { readonly comparison: RunComparison }) {
  const { likelihoods, choices, texts, other } = comparison;
  return (
    <>
      {likelihoods.length > 0 && (
        <section>
          <h3>Log-likelihoods</h3>
          <Table
            caption="In nats"
            columns={[
              { title: 'Task' },
              { title: 'Count', isRight: true },
              { title: 'Equal to the bit', isRight: true },
              { title: 'Mean |Δ|', isRight: true },
              { title: 'Mean Δ', isRight: true },
              { title: 'Worst |Δ|', isRight: true },
              { title: 'Where' },
              { title: 'No numbers', isRight: true },
            ]}
            rows={likelihoods.map(({ task, worst, ...row }) => [
              <Name text={task} />,
              count(row.count),
              count(row.equal),
              small(row.meanAbsolute),
              small(row.mean),
              worst === null ? '–' : small(worst.difference),
              worst === null ? (
                '–'
              ) : (
                <a href={hashOf({ section: 'questions', state: { at: `${worst.docId} ${task}`, run: String(other) } })}>
                  question {worst.docId}, choice {letter(worst.choice)}
                </a>
              ),
              count(row.notFinite),
            ])}
          />
        </section>
      )}
      {choices.length > 0 && (
        <section>
          <h3>Choices</h3>
          <Table
            caption="The most likely choice; leads are its distance to the next, in the first run, in nats"
            columns={[
              { title: 'Task' },
              { title: 'Questions', isRight: true },
              { title: 'Changed', isRight: true },
              { title: 'Share', isRight: true },
              { title: 'Median lead of changed', isRight: true },
              { title: 'Median lead of all', isRight: true },
            ]}
            rows={choices.map(({ task, questions, changed, leadOfChanged, lead: ofAll }) => [
              <Name text={task} />,
              count(questions),
              count(changed),
              percent(changed / questions),
              lead(leadOfChanged),
              lead(ofAll),
            ])}
          />
        </section>
      )}
      {texts.length > 0 && (
        <section>
          <h3>Texts</h3>
          <Table
            caption="Generated texts"
            columns={[{ title: 'Task' }, { title: 'Questions', isRight: true }, { title: 'Equal', isRight: true }]}
            rows={texts.map(({ task, questions, equal }) => [<Name text={task} />, count(questions), count(equal)])}
          />
        </section>
      )}
    </>
  );
}
