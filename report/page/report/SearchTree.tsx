/** The tree of a problem: a column for each iteration, steps by what became of them, and the path of a step. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { numberOf } from '../../document/questions.js';
import { FATES, pathTo, placeSteps, type ShownFate, type ShownStep, type ShownTree } from '../../document/search.js';
import { LongText, Shown, visible } from '../parts/Elements.js';
import { count, counted, fixed } from '../parts/numbers.js';

/** Pixels between columns and rows, and of a step, at the first zoom. */
const [COLUMN, ROW, RADIUS, MARGIN] = [36, 20, 6, 18];
const ZOOMS = [0.35, 0.5, 0.7, 1, 1.4, 2] as const;
const FIRST_ZOOM = 3;
const STEP_CUT = 500;

const MEANINGS: Readonly<Record<ShownFate, string>> = {
  survives: 'survives',
  completed: 'completed',
  pruned: 'pruned',
  duplicate: 'duplicate',
  unfinished: 'unfinished',
  failed: 'failed',
};

const scoreOf = ({ aggregate }: ShownStep): number => (aggregate === undefined ? NaN : numberOf(aggregate));
export const scoreText = (value: number): string => (Number.isNaN(value) ? '–' : fixed(value, 4));

/** From 0 to 1 for colours: probabilities as they are, other numbers by their range. */
function shades(steps: readonly ShownStep[]): readonly number[] {
  const finite = steps.map(scoreOf).filter(Number.isFinite);
  const [least, most] = [Math.min(0, ...finite), Math.max(1, ...finite)];
  return steps.map((step) => {
    const score = scoreOf(step);
    return Number.isFinite(score) ? (score - least) / (most - least) : 0;
  });
}

/** A mark for each fate, so that colours alone say nothing. */
function Mark({ fate, x, y, shade }: { fate: ShownFate; x: number; y: number; shade: number }) {
  const r = RADIUS;
  const fill = { 'fill-opacity': 0.15 + 0.85 * shade };
  switch (fate) {
    case 'completed':
      return <rect class={fate} x={x - r} y={y - r} width={2 * r} height={2 * r} rx={1.5} {...fill} />;
    case 'unfinished':
      return <path class={fate} d={`M${x - r} ${y - r}L${x + r} ${y}L${x - r} ${y + r}Z`} {...fill} />;
    case 'failed':
      return <path class={fate} d={`M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8`} />;
    case 'survives':
      return <circle class={fate} cx={x} cy={y} r={r} {...fill} />;
    case 'pruned':
    case 'duplicate':
      return <circle class={fate} cx={x} cy={y} r={r - 2} {...fill} />;
    default:
      return fate satisfies never;
  }
}

/** From a step to one behind it. */
const edge = (x1: number, y1: number, x2: number, y2: number): string =>
  `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;

const labelOf = (step: ShownStep, index: number): string => {
  const score = scoreOf(step);
  return (
    `step ${index + 1} of iteration ${step.iteration + 1}: ${MEANINGS[step.fate]}` +
    `${Number.isNaN(score) ? '' : `, score ${scoreText(score)}`}`
  );
};

interface TreeProps {
  readonly tree: ShownTree;
  /** Index of the step that is looked at. */
  readonly chosen: number;
  readonly onChoose: (step: number) => void;
}

/** The step that an arrow leads to: back, forth to the best child, up and down in the column. */
function neighbour(steps: readonly ShownStep[], rows: readonly number[], at: number, key: string): number {
  const { parent, iteration } = steps[at]!;
  if (key === 'ArrowLeft') return parent ?? at;
  const others = steps.map((_, i) => i);
  if (key === 'ArrowRight') {
    const children = others.filter((i) => steps[i]!.parent === at);
    const rank = (i: number): number => (steps[i]!.fate === 'pruned' ? 0 : 2) + (scoreOf(steps[i]!) || 0);
    return children.reduce((best, i) => (best === at || rank(i) > rank(best) ? i : best), at);
  }
  const by = key === 'ArrowUp' ? -1 : 1;
  return others.find((i) => steps[i]!.iteration === iteration && rows[i] === rows[at]! + by) ?? at;
}

const ARROWS: ReadonlySet<string> = new Set(['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown']);

function Drawing({ tree, chosen, onChoose, zoom }: TreeProps & { readonly zoom: number }) {
  const { steps, candidates, picked } = tree;
  const { columns, rows, width, height } = useMemo(() => placeSteps(steps), [steps]);
  const shade = useMemo(() => shades(steps), [steps]);
  const region = useRef<HTMLDivElement>(null);
  const x = (i: number): number => MARGIN + COLUMN * columns[i]!;
  const y = (i: number): number => MARGIN + ROW * rows[i]!;
  const pick = picked === null ? -1 : candidates[picked]!.step;
  const isPicked = useMemo(() => new Set(pathTo(steps, pick)), [steps, pick]);
  const isOnPath = useMemo(() => new Set(pathTo(steps, chosen)), [steps, chosen]);
  const [wide, high] = [2 * MARGIN + COLUMN * Math.max(0, width - 1), 2 * MARGIN + ROW * Math.max(0, height - 1)];
  useEffect(() => {
    // The step that is looked at is in view, also after another zoom.
    const box = region.current;
    if (box === null || steps[chosen] === undefined) return;
    const [left, top] = [x(chosen) * zoom, y(chosen) * zoom];
    if (left < box.scrollLeft || left > box.scrollLeft + box.clientWidth) box.scrollLeft = left - box.clientWidth / 2;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
  }, [chosen, zoom, steps]);
  const classOf = (i: number): string =>
    [isPicked.has(i) ? 'is-pick' : '', isOnPath.has(i) ? 'is-on-path' : ''].filter((each) => each !== '').join(' ');
  return (
    <div
      ref={region}
      class="graph tree"
      role="group"
      aria-label={`Tree of ${counted(steps.length, 'step')}; ${labelOf(steps[chosen]!, chosen)}`}
      tabIndex={0}
      onKeyDown={(event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !ARROWS.has(event.key)) return;
        event.preventDefault();
        onChoose(neighbour(steps, rows, chosen, event.key));
      }}
      onClick={({ target }) => {
        const step = target instanceof Element ? target.closest('[data-step]')?.getAttribute('data-step') : undefined;
        if (step !== undefined && step !== null) onChoose(Number(step));
      }}
    >
      <svg
        viewBox={`0 0 ${wide} ${high}`}
        style={{ width: `${Math.ceil(wide * zoom)}px`, maxWidth: 'none', margin: 0 }}
        aria-hidden="true"
      >
        {steps.map(({ parent, fate }, i) =>
          parent === null ? null : (
            <path key={i} class={`edge ${fate} ${classOf(i)}`} d={edge(x(parent), y(parent), x(i), y(i))} />
          ),
        )}
        {steps.map((step, i) => (
          <g key={i} class={`step ${classOf(i)} ${i === chosen ? 'is-chosen' : ''}`} data-step={i}>
            <title>{labelOf(step, i)}</title>
            <rect class="target" x={x(i) - COLUMN / 2} y={y(i) - ROW / 2} width={COLUMN} height={ROW} />
            {i === chosen && <circle class="ring" cx={x(i)} cy={y(i)} r={RADIUS + 3} />}
            <Mark fate={step.fate} x={x(i)} y={y(i)} shade={shade[i]!} />
          </g>
        ))}
      </svg>
    </div>
  );
}

/** Marks that the tree has, and how many of each. */
function Legend({ steps, hasPick }: { readonly steps: readonly ShownStep[]; readonly hasPick: boolean }) {
  const counts = FATES.map((fate) => ({ fate, steps: steps.filter((step) => step.fate === fate).length }));
  return (
    <ul class="marks">
      {counts.map(
        ({ fate, steps: of }) =>
          of > 0 && (
            <li key={fate}>
              <svg class="tree-mark" viewBox="0 0 16 16" aria-hidden="true">
                <Mark fate={fate} x={8} y={8} shade={0.8} />
              </svg>
              {count(of)} {MEANINGS[fate]}
            </li>
          ),
      )}
      {hasPick && (
        <li>
          <svg class="tree-mark" viewBox="0 0 16 16" aria-hidden="true">
            <path class="edge is-pick" d="M1 8H15" />
          </svg>
          path of the pick
        </li>
      )}
    </ul>
  );
}

/** Steps from the first to the chosen one. */
function PathOf({ steps, chosen, onChoose }: { readonly steps: readonly ShownStep[] } & Omit<TreeProps, 'tree'>) {
  return (
    <ol class="path">
      {pathTo(steps, chosen).map((i) => {
        const step = steps[i]!;
        const { tokens, end, ahead, error, last } = step;
        const said = [
          MEANINGS[step.fate],
          ...(last === undefined ? [] : [`score ${scoreText(numberOf(last))}`]),
          ...(step.aggregate === undefined || step.aggregate === last ? [] : [`aggregate ${scoreText(scoreOf(step))}`]),
          counted(tokens, 'token'),
          `ended by ${visible(end)}`,
        ];
        return (
          <li key={i} aria-current={i === chosen ? 'step' : undefined}>
            <button type="button" class="more" onClick={() => onChoose(i)} aria-label={labelOf(step, i)}>
              {step.iteration + 1}
            </button>{' '}
            <span class="soft">{said.join(' · ')}</span>
            <p>
              <LongText text={step.text} cut={STEP_CUT} />
            </p>
            {ahead !== undefined && ahead !== '' && (
              <p class="soft">
                Ahead: <LongText text={ahead} cut={STEP_CUT} />
              </p>
            )}
            {error !== undefined && (
              <p class="failed">
                <Shown text={error} />
              </p>
            )}
          </li>
        );
      })}
    </ol>
  );
}

export function SearchTree({ tree, chosen, onChoose }: TreeProps) {
  const [zoom, setZoom] = useState(FIRST_ZOOM);
  const { steps, left } = tree;
  const change = (by: number): void => setZoom((at) => Math.min(ZOOMS.length - 1, Math.max(0, at + by)));
  return (
    <section aria-label="Tree">
      <div class="controls">
        <Legend steps={steps} hasPick={tree.picked !== null} />
        <span class="zoom">
          <button type="button" aria-label="Smaller" disabled={zoom === 0} onClick={() => change(-1)}>
            −
          </button>{' '}
          <button type="button" aria-label="Larger" disabled={zoom === ZOOMS.length - 1} onClick={() => change(1)}>
            +
          </button>
        </span>
      </div>
      <Drawing {...{ tree, chosen, onChoose }} zoom={ZOOMS[zoom]!} />
      <p class="keys">
        A column is an iteration, and the fuller a mark the higher its score. Arrow keys go through the tree.
        {left > 0 && ` ${counted(left, 'step')} more are in the file.`}
      </p>
      <h3>Path of the step that is looked at</h3>
      <PathOf {...{ steps, chosen, onChoose }} />
    </section>
  );
}
