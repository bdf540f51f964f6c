/** What a run took: tokens and what sharing saved, time, devices, settings. */
import * as Plot from '@observablehq/plot';
import { namedRows } from '../../document/namedRows.js';
import type { RunCost, RunResult } from '../../document/results.js';
import { Chart } from '../parts/Chart.js';
import { Shown, Table } from '../parts/Elements.js';
import { count, duration, fixed, percent, si } from '../parts/numbers.js';
import { StartChart } from '../parts/StartChart.js';

interface Way {
  readonly way: string;
  readonly tokens: number;
}

function waysOf(cost: RunCost): Way[] {
  const ways: (readonly [string, number | null])[] = [
    ['every choice by itself', cost.tokensWithoutSharing],
    ['choices of one letter grouped', cost.tokensGrouped],
    ['this run', cost.tokensComputed],
    ['every beginning once', cost.tokensShared],
  ];
  return ways.flatMap(([way, tokens]) => (tokens === null || tokens === 0 ? [] : [{ way, tokens }]));
}

function Tokens({ cost }: { readonly cost: RunCost }) {
  const ways = waysOf(cost);
  const computed = cost.tokensComputed;
  if (computed === null || computed === 0 || ways.length < 2) return null;
  const alone = cost.tokensWithoutSharing ?? computed;
  const saved =
    alone > computed
      ? `${count(computed)} tokens computed in place of ${count(alone)}: ${fixed(alone / computed, 2)} times fewer.`
      : `${count(computed)} tokens computed.`;
  return (
    <Chart
      title="Tokens computed"
      summary={saved}
      inputs={[cost]}
      options={(width) => ({
        height: 34 * ways.length + 40,
        marginBottom: 30,
        marginRight: 70,
        ...namedRows(
          ways.map(({ way }) => way),
          width,
          215,
        ),
        x: { label: null, tickFormat: 's', grid: true, ticks: Math.max(2, Math.floor(width / 110)) },
        marks: [
          Plot.barX(ways, {
            y: 'way',
            x: 'tokens',
            fill: ({ way }: Way) => (way === 'this run' ? 'var(--accent)' : 'var(--faint)'),
            rx: 3,
          }),
          Plot.text(ways, {
            y: 'way',
            x: 'tokens',
            textAnchor: 'start',
            dx: 6,
            fill: 'currentColor',
            text: ({ tokens }: Way) => si(tokens, '').trim(),
          }),
          Plot.ruleX([0]),
        ],
      })}
    >
      <Table
        caption="Tokens by way of computing"
        hidesCaption
        columns={[{ title: 'Way' }, { title: 'Tokens', isRight: true }, { title: 'Beside this run', isRight: true }]}
        rows={ways.map(({ way, tokens }) => [way, count(tokens), `${fixed(tokens / computed, 3)}×`])}
      />
    </Chart>
  );
}

function Facts({ cost }: { readonly cost: RunCost }) {
  const { scoreSeconds, loadSeconds, modelFlops } = cost;
  const facts: (readonly [string, string | null])[] = [
    ['Scoring', scoreSeconds === null ? null : duration(scoreSeconds)],
    ['Loading', loadSeconds === null ? null : duration(loadSeconds)],
    ['Questions a second', cost.questionsPerSecond === null ? null : fixed(cost.questionsPerSecond, 1)],
    ['Tokens a second', cost.tokensPerSecond === null ? null : count(cost.tokensPerSecond)],
    ['Arithmetic', modelFlops === null || !scoreSeconds ? null : si(modelFlops / scoreSeconds, 'FLOP/s')],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) =>
        value === null ? null : (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}

export function Cost({ run: { cost, settings } }: { readonly run: RunResult }) {
  return (
    <section>
      <h3>Time and work</h3>
      {cost === null ? (
        <p class="none">The files do not say what the run took.</p>
      ) : (
        <>
          <Facts cost={cost} />
          <Tokens cost={cost} />
          {cost.start !== null && <StartChart {...cost.start} />}
          {cost.devices.length > 0 && (
            <Table
              caption="Devices"
              columns={[
                { title: 'Device' },
                { title: 'Busy', isRight: true },
                { title: 'Computing', isRight: true },
                { title: 'Sending', isRight: true },
              ]}
              rows={cost.devices.map(({ device, busyShare, computeSeconds, copySeconds }) => [
                String(device),
                percent(busyShare, 1),
                duration(computeSeconds),
                duration(copySeconds),
              ])}
            />
          )}
        </>
      )}
      <details>
        <summary>Settings and provenance</summary>
        <Table
          caption="Settings and provenance"
          hidesCaption
          columns={[{ title: 'Name' }, { title: 'Value' }]}
          rows={settings.map(([name, value]) => [<Shown text={name} />, <Shown text={value} />])}
        />
      </details>
    </section>
  );
}
