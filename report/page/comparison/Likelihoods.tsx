/** How far log-likelihoods, choices and texts of two runs are from each other. */
import type { RunComparison } from '../../document/comparison.js';
import { letter, type Likelihood, numberOf } from '../../document/questions.js';
import { count, fixed, percent } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Name } from '../parts/Text.js';
import { hashOf } from '../shell/route.js';

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
