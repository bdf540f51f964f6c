/** The kernels of a function: what they cost, where they lie on the roofline, and the one that is looked at. */
import { useMemo } from 'preact/hooks';
import type { FunctionKernels, KernelEntry, KernelsDocument, PassesDocument } from '../../document/explore.js';
import { Facts } from '../parts/Facts.js';
import { count, percent, si } from '../parts/numbers.js';
import { aboveNote, peakText } from '../parts/peak.js';
import { Table } from '../parts/Table.js';
import { Name } from '../parts/Text.js';
import { readSection, useLoaded } from '../shell/data.js';
import { Section } from '../shell/Frame.js';
import { hashOf, setState, type Route } from '../shell/route.js';
import { secondsOf, shareOf, shortTime } from './figures.js';
import { KernelPanel } from './KernelPanel.js';
import { RooflineChart } from './RooflineChart.js';
import { Search } from './Search.js';

export function KernelsView({ route }: { readonly route: Route }) {
  const passes = useLoaded(() => readSection('passes'), []);
  return (
    <Section name="kernels">
      {(document) => (
        <Kernels document={document} passes={passes.state === 'ready' ? passes.value : undefined} route={route} />
      )}
    </Section>
  );
}

const isNamed =
  (wanted: string | undefined) =>
  ({ title, name, path }: KernelEntry): boolean =>
    wanted !== undefined && [title, name, path].includes(wanted);

interface KernelsProps {
  readonly document: KernelsDocument;
  readonly passes: PassesDocument | undefined;
  readonly route: Route;
}

function Kernels({ document, passes, route }: KernelsProps) {
  const fn = document.functions.find(({ name }) => name === route.state['fn']) ?? document.functions[0]!;
  const chosen = fn.kernels.find(isNamed(route.state['kernel']));
  const stages = passes?.functions.find(({ name }) => name === fn.name)?.stages;
  const stage = stages?.findLast(({ level }) => level === 'graph');
  return (
    <>
      <div class="tools">
        {document.functions.length > 1 && (
          <label>
            Function{' '}
            <select value={fn.name} onChange={({ currentTarget }) => setState({ fn: currentTarget.value, kernel: '' })}>
              {document.functions.map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <Search passes={passes} kernels={document} fn={fn.name} stage={stage} />
      </div>
      {chosen === undefined ? (
        <Facts isSmall facts={document.facts} />
      ) : (
        <KernelPanel key={chosen.name} {...{ document, fn, kernel: chosen, route }} />
      )}
      <section aria-label="All kernels">
        <h2>{chosen === undefined ? 'Kernels' : 'All kernels'}</h2>
        <p class="soft">
          {fn.name} with {fn.size}. Times are{' '}
          {fn.kernels.some((each) => each.measuredSeconds !== undefined)
            ? 'those that the tuner measured, where it has, and else predicted'
            : 'predicted by the model that ranks schedules'}
          .
        </p>
        <RooflineChart roofline={document.roofline} fn={fn} chosen={chosen} />
        <KernelTable fn={fn} chosen={chosen} />
      </section>
    </>
  );
}

const COLUMNS = [
  { title: 'kernel' },
  { title: '×', isRight: true },
  { title: 'anchor' },
  { title: 'shape' },
  { title: 'FLOPs', isRight: true },
  { title: 'bytes', isRight: true },
  { title: 'FLOPs/byte', isRight: true },
  { title: 'time', isRight: true },
  { title: 'of all', isRight: true },
  { title: 'of peak', isRight: true },
] as const;

function KernelTable({ fn, chosen }: { readonly fn: FunctionKernels; readonly chosen: KernelEntry | undefined }) {
  const all = fn.kernels.reduce((sum, kernel) => sum + secondsOf(kernel), 0);
  const rows = useMemo(
    () =>
      fn.kernels.map((kernel) => {
        const { title, count: launches, anchor, shape, flops, bytes, measuredSeconds } = kernel;
        const took = secondsOf(kernel);
        return [
          <a
            key={title}
            href={hashOf({ section: 'kernels', state: { fn: fn.name, kernel: title } })}
            aria-current={kernel === chosen ? 'true' : undefined}
            onClick={() => scrollTo(0, 0)}
          >
            <Name text={title} />
          </a>,
          count(launches),
          anchor,
          shape,
          flops === 0 ? '–' : si(flops * launches, ''),
          si(bytes * launches, 'B'),
          flops === 0 ? '–' : count(flops / bytes),
          `${shortTime(took)}${measuredSeconds === undefined ? '' : ' measured'}`,
          percent(took / all, 1),
          peakText(shareOf(kernel), 0),
        ];
      }),
    [fn, chosen, all],
  );
  return (
    <Table
      caption="Kernels in order of their first launch, equal ones once"
      columns={COLUMNS}
      rows={rows}
      note={aboveNote(fn.kernels.map(shareOf), 0)}
    />
  );
}
