/** The kernels of a function: what they cost, where they lie on the roofline, and the one that is looked at. */
import { useMemo, useState } from 'preact/hooks';
import type {
  FunctionKernels,
  KernelEntry,
  KernelsDocument,
  PassesDocument,
  Roofline,
} from '../../document/explore.js';
import { readSection, useLoaded } from '../parts/data.js';
import { Facts, Name, Shown, Table } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { aboveNote, count, counted, peakText, percent, si } from '../parts/numbers.js';
import { ridgeOf, RoofChart, type RoofPoint } from '../parts/Roof.js';
import { hashOf, type Route, setState } from '../parts/route.js';
import { Search } from './Search.js';
import { Lines, hueOf, secondsOf, shareOf, shortTime, Source } from './Source.js';

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

/** A kernel: the ops in it, its program, its source, and what it costs. */

export interface KernelProps {
  readonly document: KernelsDocument;
  readonly fn: FunctionKernels;
  readonly kernel: KernelEntry;
  readonly route: Route;
}

export function KernelPanel({ document, fn, kernel, route }: KernelProps) {
  const { flops, bytes, seconds, predictedSeconds, measuredSeconds, count: launches } = kernel;
  const { flopsPerSecond, bytesPerSecond } = document.roofline;
  const ofPeak = shareOf(kernel);
  const above = aboveNote([ofPeak], 0);
  const isMemory = flops / flopsPerSecond < bytes / bytesPerSecond;
  const op = kernel.ops.findIndex(({ name }) => name === route.state['op']);
  const printed = new Set(kernel.spans.flatMap(([, , ops]) => ops));
  return (
    <article class="kernel">
      <p class="back">
        <button type="button" class="more" onClick={() => setState({ kernel: '', op: '' }, true)}>
          ← All kernels
        </button>
      </p>
      <h2>
        <Shown text={kernel.title} />
        {launches > 1 && <span class="times">×{launches}</span>}
      </h2>
      <p class="soft">
        {kernel.anchor} {kernel.shape}, one launch of {fn.name} with {fn.size}
      </p>
      <Facts
        isSmall
        facts={[
          ['FLOPs', flops === 0 ? 'none counted' : si(flops, '')],
          ['bytes', si(bytes, 'B')],
          ['FLOPs/byte', flops === 0 ? '–' : count(flops / bytes)],
          ['roofline', `${shortTime(seconds)} at least, by ${isMemory ? 'memory' : 'arithmetic'}`],
          ['predicted', shortTime(predictedSeconds)],
          ...(measuredSeconds === undefined ? [] : ([['measured', shortTime(measuredSeconds)]] as const)),
          ['share of peak', peakText(ofPeak, 0)],
          ...kernel.resources,
        ]}
      />
      {above !== undefined && <p class="note">{above}</p>}
      <h3>Ops</h3>
      {kernel.ops.length === 0 ? (
        <p class="soft">An artifact without its checkpoint does not say which ops its kernels compute.</p>
      ) : (
        <ol class="ops">
          {kernel.ops.map((each, i) => (
            <li key={i}>
              <button
                type="button"
                aria-pressed={i === op}
                class={i === op ? 'chosen' : undefined}
                title={each.text}
                onClick={() => setState({ op: i === op ? '' : each.name })}
              >
                <span class={`number ${printed.has(i) ? hueOf(i) : ''}`}>{i + 1}</span> <code>{each.op}</code>{' '}
                <span class="soft">{each.path}</span>
              </button>
            </li>
          ))}
        </ol>
      )}
      {op >= 0 && (
        <pre class="ir" tabIndex={0} aria-label="The op in the graph">
          <Shown text={kernel.ops[op]!.text} />
        </pre>
      )}
      <h3>What it computes</h3>
      <pre class="ir" tabIndex={0} aria-label="Kernel IR">
        <Shown text={kernel.ir} />
      </pre>
      <h3>Schedule</h3>
      <p>
        <code>{kernel.schedule}</code>
      </p>
      {kernel.schedules.length > 1 && (
        <details>
          <summary>Schedules of other sizes of call</summary>
          <Table
            caption="Tokens of a call, and the schedule"
            hidesCaption
            columns={[{ title: 'tokens' }, { title: 'schedule' }]}
            rows={kernel.schedules.map(([sizes, schedule]) => [sizes, <code key="s">{schedule}</code>])}
          />
        </details>
      )}
      <Operands kernel={kernel} />
      <h3>
        Source <span class="soft">{document.language}</span>
      </h3>
      <Source
        text={kernel.source.map((at) => document.texts[at]!).join('\n')}
        spans={kernel.spans}
        ops={kernel.ops}
        chosen={op < 0 ? undefined : op}
      />
      {kernel.headers.length > 0 && (
        <>
          <h3>Headers</h3>
          <p class="soft">What the source includes: first what it names, then what those include.</p>
          {kernel.headers.map(([name, at]) => (
            <HeaderText key={name} name={name} text={document.texts[at]!} />
          ))}
        </>
      )}
    </article>
  );
}

/** A header, whose lines are there once it is opened. */
function HeaderText({ name, text }: { readonly name: string; readonly text: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        <code>
          <Shown text={name} />
        </code>{' '}
        <span class="soft">{count(text.trimEnd().split('\n').length)} lines</span>
      </summary>
      {isOpen && <Lines text={text} label={name} />}
    </details>
  );
}

function Operands({ kernel }: { readonly kernel: KernelEntry }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Buffers and weights ({kernel.operands.length})</summary>
      {isOpen && (
        <Table
          caption="Buffers and weights"
          hidesCaption
          columns={[{ title: 'name' }, { title: 'type' }, { title: 'use' }, { title: 'space' }]}
          rows={kernel.operands.map(({ name, type, use, space }) => [<Shown key="n" text={name} />, type, use, space])}
        />
      )}
    </details>
  );
}

/** Kernels of a function on the roofline of the target. */

export interface RooflineProps {
  readonly roofline: Roofline;
  readonly fn: FunctionKernels;
  readonly chosen: KernelEntry | undefined;
}

export function RooflineChart({ roofline, fn, chosen }: RooflineProps) {
  const points = fn.kernels.flatMap((kernel): readonly RoofPoint[] => {
    const { flops, bytes, count: launches, title } = kernel;
    if (flops === 0) return [];
    const seconds = secondsOf(kernel);
    return [
      {
        name: title.replace(/^layers\.\{[^}]*\}\./, ''),
        seconds,
        launches,
        intensity: flops / bytes,
        rate: (flops * launches) / seconds,
        isChosen: kernel === chosen,
        href: hashOf({ section: 'kernels', state: { fn: fn.name, kernel: title } }),
      },
    ];
  });
  if (points.length === 0) return null;
  const ridge = ridgeOf(roofline);
  const bound = points.filter(({ intensity }) => intensity < ridge).length;
  const best = points.reduce((a, b) => (b.rate > a.rate ? b : a));
  const ofPeak = { share: best.rate / roofline.flopsPerSecond, flops: best.rate };
  return (
    <RoofChart
      points={points}
      roof={roofline}
      summary={
        `${roofline.name}. The roof bends at ${count(ridge)} FLOPs/byte: ` +
        `${bound} of ${counted(points.length, 'kernel')} with FLOPs ${bound === 1 ? 'lies' : 'lie'} where memory is ` +
        `the limit. The fastest is ${best.name} with ${si(best.rate, 'FLOP/s')}, ${peakText(ofPeak, 0)} of peak. ` +
        'Larger circles take more of the time.'
      }
      inputs={[roofline, fn, chosen]}
      note={aboveNote([ofPeak], 0)}
    />
  );
}
