/** What is known of an op of a graph, or of a kernel, beside the graph. */
import type { Part, Stage, Unit } from '../../document/explore.js';
import { Shown } from '../parts/Text.js';
import { hashOf, setState } from '../shell/route.js';
import { signText } from './graphModel.js';

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
