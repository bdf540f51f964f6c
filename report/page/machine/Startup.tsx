/** How the command and its devices started. */
import type { Phase, TraceView } from '../../document/machine.js';
import type { StartPhase } from '../../document/start.js';
import { count, duration, fixed, si } from '../parts/numbers.js';
import { StartChart } from '../parts/StartChart.js';
import { Table } from '../parts/Table.js';
import { Shown } from '../parts/Text.js';

const phaseOf = ({ name, ...rest }: Phase): StartPhase => ({ phase: name, ...rest });

export function Startup({ trace: { phases, loads, start } }: { readonly trace: TraceView }) {
  if (phases.length === 0) return null;
  return (
    <section aria-labelledby="startup">
      <h3 id="startup">Start-up</h3>
      <StartChart {...(start ?? { phases: phases.map(phaseOf), criticalPath: [] })} />
      {loads !== undefined && (
        <details>
          <summary>
            {count(loads.count)} weights, {si(loads.bytes, 'B')} packed in {duration(loads.seconds)}
          </summary>
          <Table
            caption={`The ${loads.longest.length} that took longest`}
            columns={[
              { title: 'Weight' },
              { title: 'Took, ms', isRight: true },
              { title: 'Bytes', isRight: true },
              { title: 'Rate', isRight: true },
            ]}
            rows={loads.longest.map(({ name, seconds, bytes }) => [
              <Shown key="name" text={name} />,
              fixed(1000 * seconds, 2),
              count(bytes),
              seconds > 0 ? si(bytes / seconds, 'B/s') : '–',
            ])}
          />
        </details>
      )}
    </section>
  );
}
