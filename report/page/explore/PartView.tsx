/** A part of a stage: equal layers as one graph, and the op of it that is looked at. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Part, PassesDocument, Stage, Unit, UnitOp } from '../../document/explore.js';
import { Shown } from '../parts/Elements.js';
import { hashOf, type Route, setState } from '../parts/route.js';
import { changesText, drawingOf, type Grouping, groupsOf, isChanged, signText } from './graphModel.js';
import { StageGraph } from './StageGraph.js';

export interface PartProps {
  readonly document: PassesDocument;
  readonly stage: Stage;
  readonly part: Part;
  /** Position of the part. */
  readonly at: number;
  readonly fn: string;
  /** Titles of the function's kernels. */
  readonly titles: readonly string[];
  readonly route: Route;
  /** Whether the stage is the last graph, whose ops are those of kernels. */
  readonly isFinal: boolean;
  /** Whether it is shown before anybody asks. */
  readonly isShown: boolean;
}

/** Groups beyond which only those with changes are open at first. */
const MAX_OPEN = 60;

/** A part, below a title that shows or hides it. */
export function PartView(props: PartProps) {
  const { document, stage, part, at, route, isShown } = props;
  const unit = document.units[part.unit]!;
  const isAsked = route.state['part'] === String(at);
  const [toggled, setToggled] = useState<{ readonly stage: Stage; readonly isOpen: boolean }>();
  const isOpen = isAsked || (toggled?.stage === stage ? toggled.isOpen : isShown);
  const counts = (sign: UnitOp['sign']): number => unit.ops.filter((op) => op.sign === sign).length;
  const changes = changesText({ '+': counts('+'), '-': counts('-'), '~': counts('~') });
  const there = unit.ops.length - counts('-');
  const noun = stage.level === 'kernels' ? 'kernel' : 'op';
  const toggle = (): void => {
    if (isAsked) setState({ part: '', op: '' });
    setToggled({ stage, isOpen: !isOpen });
  };
  return (
    <section class="part" aria-label={part.title} data-part={at}>
      <h3>
        <button type="button" class="toggle" aria-expanded={isOpen} onClick={toggle}>
          {part.title}
        </button>
        {part.count > 1 && <span class="times">×{part.count}</span>}
        <span class="soft">
          {there} {there === 1 ? noun : `${noun}s`}
          {changes === '' ? '' : `; ${changes}`}
          {part.count > 1 ? ' in each' : ''}
        </span>
      </h3>
      {isOpen && <OpenPart {...props} />}
    </section>
  );
}

function OpenPart({ document, stage, part, at, fn, titles, route, isFinal }: PartProps) {
  const unit = document.units[part.unit]!;
  const hasKernels = isFinal && titles.length > 0 && unit.ops.some(({ kernel }) => kernel !== undefined);
  const [wished, wish] = useState<Grouping | undefined>(undefined);
  const grouping = hasKernels ? (wished ?? 'kernel') : 'module';
  const groups = useMemo(
    () => groupsOf(unit, grouping, (kernel) => titles[kernel] ?? `kernel ${kernel}`),
    [unit, grouping, titles],
  );
  const chosen = route.state['part'] === String(at) ? unit.ops.findIndex(({ name }) => name === route.state['op']) : -1;
  const chosenGroup = chosen < 0 ? undefined : groups.find(({ ops }) => ops.includes(chosen));
  const first = useMemo(() => {
    const changed = groups.filter(isChanged);
    const ops = changed.reduce((sum, { ops: own }) => sum + own.length, 0);
    return new Set(ops <= MAX_OPEN ? changed.map(({ id }) => id) : []);
  }, [groups]);
  const [toggled, setToggled] = useState<{ readonly of: typeof first; readonly open: ReadonlySet<string> }>();
  const base = toggled?.of === first ? toggled.open : first;
  const open = useMemo(
    () => (chosenGroup === undefined || stage.level === 'kernels' ? base : new Set([...base, chosenGroup.id])),
    [base, chosenGroup?.id, stage.level],
  );
  const setOpen = (next: ReadonlySet<string>): void => setToggled({ of: first, open: next });
  const drawing = useMemo(() => drawingOf({ stage, part, unit, groups, open }), [stage, part, unit, groups, open]);
  const toggle = (id: string): void => {
    const next = new Set(open);
    if (!next.delete(id)) next.add(id);
    else if (chosenGroup?.id === id) setState({ part: '', op: '' });
    setOpen(next);
  };
  const section = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (chosen >= 0) section.current?.querySelector(`[data-box="o${chosen}"]`)?.scrollIntoView({ block: 'nearest' });
  }, [chosen]);
  const isKernels = stage.level === 'kernels';
  const all = isKernels ? unit.ops.map((_, i) => `k${i}`) : groups.map(({ id }) => id);
  return (
    <div ref={section}>
      <div class="tools">
        {hasKernels && (
          <label>
            Groups are{' '}
            <select
              value={grouping}
              onChange={({ currentTarget }) => wish(currentTarget.value === 'module' ? 'module' : 'kernel')}
            >
              <option value="kernel">kernels</option>
              <option value="module">modules</option>
            </select>
          </label>
        )}
        <button type="button" class="more" onClick={() => setOpen(new Set(all))}>
          Open all
        </button>
        <button type="button" class="more" onClick={() => setOpen(new Set())} disabled={open.size === 0}>
          Close all
        </button>
      </div>
      <StageGraph
        label={`Graph of ${part.title} after ${stage.name}`}
        drawing={drawing}
        chosen={chosen < 0 ? undefined : chosen}
        onOp={(op) => setState(op === chosen ? { part: '', op: '' } : { part: String(at), op: unit.ops[op]!.name })}
        onGroup={toggle}
      />
      {chosen >= 0 && (
        <OpPanel
          {...{ unit, stage, part, fn }}
          at={chosen}
          titles={titles}
          isOpen={open.has(`k${chosen}`)}
          onOpen={isKernels ? () => toggle(`k${chosen}`) : undefined}
          onOp={(op) => setState({ part: String(at), op: unit.ops[op]!.name })}
        />
      )}
      <Listing ops={unit.ops} isKernels={isKernels} />
    </div>
  );
}

/** The part as text, for those who read rather than look. */
function Listing({ ops, isKernels }: { readonly ops: readonly UnitOp[]; readonly isKernels: boolean }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>As text</summary>
      {isOpen && (
        <pre class="listing" tabIndex={0}>
          {ops.map(({ sign, text, before }, i) => (
            <span key={i} class={sign === '+' ? 'added' : sign === '-' ? 'gone' : sign === '~' ? 'other' : undefined}>
              {before !== undefined && <Lines sign="-" text={before} />}
              <Lines sign={sign === '~' ? '+' : sign} text={text} />
              {isKernels && '\n'}
            </span>
          ))}
        </pre>
      )}
    </details>
  );
}

const Lines = ({ sign, text }: { readonly sign: UnitOp['sign']; readonly text: string }) => (
  <>
    {text.split('\n').map((line, i) => (
      <span key={i}>
        {sign === '' ? ' ' : sign === '-' ? '−' : sign} <Shown text={line} />
        {'\n'}
      </span>
    ))}
  </>
);

/** What is known of an op of a graph, or of a kernel, beside the graph. */

export interface OpProps {
  readonly unit: Unit;
  readonly stage: Stage;
  readonly part: Part;
  readonly fn: string;
  readonly at: number;
  readonly titles: readonly string[];
  /** Of a kernel: whether its ops are shown in the graph, and how to change that. */
  readonly isOpen: boolean;
  readonly onOpen: (() => void) | undefined;
  readonly onOp: (op: number) => void;
}

export function OpPanel({ unit, stage, part, fn, at, titles, isOpen, onOpen, onOp }: OpProps) {
  const op = unit.ops[at]!;
  const readers = unit.ops.flatMap(({ reads }, i) => (reads.includes(at) ? [i] : []));
  const link = (to: number) => (
    <button key={to} type="button" class="more" onClick={() => onOp(to)}>
      <Shown text={unit.ops[to]!.name} />
    </button>
  );
  const title = op.kernel === undefined ? undefined : titles[op.kernel];
  return (
    <aside class="op" aria-label={`${op.op} ${op.name}`}>
      <button type="button" class="close" aria-label="Close" onClick={() => setState({ part: '', op: '' })}>
        ×
      </button>
      <h4>
        <code>{op.op}</code> <Shown text={op.name} />
        {op.sign !== '' && (
          <span class={`sign ${op.sign === '+' ? 'added' : op.sign === '-' ? 'gone' : 'other'}`}>
            {' '}
            {signText(op.sign)}
          </span>
        )}
      </h4>
      {part.count > 1 && <p class="soft">One of {part.count}: the others have other names.</p>}
      {op.before !== undefined && (
        <pre class="ir gone" tabIndex={0} aria-label="Before">
          − <Shown text={op.before} />
        </pre>
      )}
      <pre class="ir" tabIndex={0} aria-label={op.before === undefined ? 'Text' : 'After'}>
        {op.before === undefined ? '' : '+ '}
        <Shown text={op.text} />
      </pre>
      <dl class="facts small">
        {op.path !== '' && <Fact name="module">{op.path}</Fact>}
        {op.reads.length > 0 && (
          <Fact name="reads">
            {op.reads.map((read) =>
              read >= 0 ? (
                link(read)
              ) : (
                <span key={read} class="given" title={unit.inputs[-1 - read]!.type}>
                  <Shown text={unit.inputs[-1 - read]!.name} />
                </span>
              ),
            )}
          </Fact>
        )}
        {readers.length > 0 && <Fact name="read by">{readers.map(link)}</Fact>}
        {op.fused !== undefined && <Fact name="ops">{op.fused.join(' · ')}</Fact>}
        {title !== undefined && (
          <Fact name="kernel">
            <a href={hashOf({ section: 'kernels', state: { fn, kernel: title } })}>{title}</a>
          </Fact>
        )}
      </dl>
      {onOpen !== undefined && op.fused !== undefined && (
        <button type="button" onClick={onOpen} aria-expanded={isOpen}>
          {isOpen ? 'Hide its ops in the graph' : 'Show its ops in the graph'}
        </button>
      )}
      <span class="hidden" role="status">
        {`${stage.name}: ${op.op} ${op.name}`}
      </span>
    </aside>
  );
}

const Fact = ({ name, children }: { readonly name: string; readonly children: preact.ComponentChildren }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);
