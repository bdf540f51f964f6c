/** The section of results: what runs came to, and what they took. */
import { useState } from 'preact/hooks';
import type { ResultsDocument, RunResult } from '../../document/results.js';
import { Choose } from '../parts/Choose.js';
import { Shown } from '../parts/Text.js';
import { Section } from '../shell/Frame.js';
import { Accuracies } from './Accuracies.js';
import { Breakdowns } from './Breakdowns.js';
import { MarginHistogram, Reliability } from './Calibrated.js';
import { Cost } from './Cost.js';

/** What is shown of one task at a time. */
function Task({ run }: { readonly run: RunResult }) {
  const { breakdowns, calibrations, margins } = run;
  const tasks = [...new Set([...breakdowns, ...calibrations, ...margins].map(({ task }) => task))];
  const [chosen, setChosen] = useState(tasks[0] ?? '');
  const task = tasks.includes(chosen) ? chosen : tasks[0];
  if (task === undefined) return null;
  const calibration = calibrations.find((each) => each.task === task);
  const margin = margins.find((each) => each.task === task);
  const options = tasks.map((each) => ({ value: each, title: each }));
  return (
    <>
      {tasks.length > 1 && (
        <div class="controls top">
          <Choose label="Task" value={task} options={options} onChange={setChosen} />
        </div>
      )}
      {(calibration !== undefined || margin !== undefined) && (
        <section>
          <h3>How sure, and how right</h3>
          <div class="pair">
            {calibration !== undefined && <Reliability of={calibration} />}
            {margin !== undefined && <MarginHistogram of={margin} />}
          </div>
        </section>
      )}
      <Breakdowns all={breakdowns.filter((each) => each.task === task)} />
    </>
  );
}

function Run({ run, isOnly }: { readonly run: RunResult; readonly isOnly: boolean }) {
  return (
    <section class="run">
      {!isOnly && (
        <h2>
          <Shown text={run.name} />
        </h2>
      )}
      <Accuracies run={run} />
      <Task run={run} />
      <Cost run={run} />
    </section>
  );
}

function Results({ runs }: ResultsDocument) {
  return (
    <>
      {runs.map((run) => (
        <Run key={run.name} run={run} isOnly={runs.length === 1} />
      ))}
    </>
  );
}

export const ResultsView = () => <Section name="results">{(content) => <Results {...content} />}</Section>;
