/** The section of results: what runs came to, and what they took. */
import { useState } from 'preact/hooks';
import type { ResultsDocument, RunResult } from '../../document/results.js';
import { Choose } from '../parts/Choose.js';
import { Shown } from '../parts/Text.js';
import { Section } from '../shell/Frame.js';
import { setState, type Route } from '../shell/route.js';
import { Accuracies } from './Accuracies.js';
import { Breakdowns } from './Breakdowns.js';
import { MarginHistogram, Reliability } from './Calibrated.js';
import { Cost } from './Cost.js';
import { Overview } from './Overview.js';

/** What is shown of one task at a time. */
function Task({ run }: { readonly run: RunResult }) {
  const { breakdowns, calibrations, margins } = run;
  const tasks = [...new Set([...calibrations, ...margins, ...breakdowns].map(({ task }) => task))];
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
      <h2 class={isOnly ? 'hidden' : ''}>
        <Shown text={run.name} />
      </h2>
      <Accuracies run={run} />
      <Task run={run} />
      <Cost run={run} />
    </section>
  );
}

/** Several runs side by side, and one of them at length. */
function Results({ runs, route }: ResultsDocument & { readonly route: Route }) {
  const chosen = runs[Number(route.state['run'] ?? 0)] ?? runs[0];
  if (chosen === undefined) return <p>There are no results.</p>;
  const options = runs.map(({ name }, run) => ({ value: String(run), title: name }));
  return (
    <>
      {runs.length > 1 && (
        <>
          <Overview runs={runs} />
          <div class="controls top">
            <Choose
              label="Run"
              value={String(runs.indexOf(chosen))}
              options={options}
              onChange={(run) => setState({ run })}
            />
          </div>
        </>
      )}
      <Run key={chosen.name} run={chosen} isOnly={runs.length === 1} />
    </>
  );
}

export const ResultsView = ({ route }: { readonly route: Route }) => (
  <Section name="results">{(content) => <Results {...content} route={route} />}</Section>
);
