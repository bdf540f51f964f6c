/** A kernel: the ops in it, its program, its source, and what it costs. */
import { useState } from 'preact/hooks';
import type { FunctionKernels, KernelEntry, KernelsDocument } from '../../document/explore.js';
import { Facts } from '../parts/Facts.js';
import { count, si } from '../parts/numbers.js';
import { aboveNote, peakText } from '../parts/peak.js';
import { Table } from '../parts/Table.js';
import { Shown } from '../parts/Text.js';
import { setState, type Route } from '../shell/route.js';
import { hueOf, shareOf, shortTime } from './figures.js';
import { Source } from './Source.js';

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
    </article>
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
