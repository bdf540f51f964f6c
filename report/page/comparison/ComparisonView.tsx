/** The section of comparisons: runs beside the first one, with tests, flips and margins. */
import { useState } from 'preact/hooks';
import type { ComparisonDocument, RunComparison } from '../../document/comparison.js';
import { Choose } from '../parts/Choose.js';
import { count, counted } from '../parts/numbers.js';
import { Shown } from '../parts/Text.js';
import { hasBlock } from '../shell/data.js';
import { Section } from '../shell/Frame.js';
import { hashOf } from '../shell/route.js';
import { Differences } from './Differences.js';
import { Likelihoods } from './Likelihoods.js';
import { MarginScatter } from './MarginScatter.js';

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
