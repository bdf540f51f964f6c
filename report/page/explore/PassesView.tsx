/** The program after every pass: a slider over passes, what each changed, and graphs of its parts. */
import { useEffect, useMemo } from 'preact/hooks';
import type { KernelsDocument, PassesDocument, Stage } from '../../document/explore.js';
import { readSection, useLoaded } from '../parts/data.js';
import { Section } from '../parts/Frame.js';
import { count } from '../parts/numbers.js';
import { hashOf, type Route, setState } from '../parts/route.js';
import { signShown } from './graphModel.js';
import { PartView } from './PartView.js';
import { Search } from './Search.js';

export function PassesView({ route }: { readonly route: Route }) {
  const kernels = useLoaded(() => readSection('kernels'), []);
  return (
    <Section name="passes">
      {(document) => (
        <Passes document={document} kernels={kernels.state === 'ready' ? kernels.value : undefined} route={route} />
      )}
    </Section>
  );
}

/** Signs and numbers of what a pass changed; nothing where it changed nothing. */
function Changes({ stage }: { readonly stage: Stage }) {
  const all = [
    { sign: '+', many: stage.added, name: 'added' },
    { sign: '-', many: stage.removed, name: 'gone' },
    { sign: '~', many: stage.rewritten, name: 'other' },
  ] as const;
  return (
    <span class="changes">
      {all.map(
        ({ sign, many, name }) =>
          many > 0 && (
            <span key={sign} class={`sign ${name}`}>
              {signShown(sign)}
              {count(many)}
            </span>
          ),
      )}
    </span>
  );
}

const nounOf = ({ level, ops }: Stage): string => {
  const noun = level === 'graph' ? 'op' : 'kernel';
  return `${count(ops)} ${noun}${ops === 1 ? '' : 's'}`;
};

/** What a pass changed, in words. */
function changesOf({ added, removed, rewritten, changed }: Stage, isFirst: boolean): string {
  if (isFirst) return '';
  const told = [
    ...(added > 0 ? [`${count(added)} added`] : []),
    ...(removed > 0 ? [`${count(removed)} removed`] : []),
    ...(rewritten > 0 ? [`${count(rewritten)} changed`] : []),
  ];
  if (told.length > 0) return told.join(', ');
  return changed ? 'only names changed' : 'no change';
}

interface PassesProps {
  readonly document: PassesDocument;
  readonly kernels: KernelsDocument | undefined;
  readonly route: Route;
}

function Passes({ document, kernels, route }: PassesProps) {
  const { fn: wantedFn, pass: wantedPass } = route.state;
  const at = Math.max(
    0,
    document.functions.findIndex(({ name }) => name === wantedFn),
  );
  const { name: fn, stages } = document.functions[at]!;
  const found = stages.findIndex(({ name }) => name === wantedPass);
  // Without a wish: the first pass that changed something, where there is more to see than ops.
  const shown =
    found >= 0
      ? found
      : Math.max(
          0,
          stages.findIndex(({ added }) => added > 0),
        );
  const stage = stages[shown]!;
  const before = stages[shown - 1];
  const isFirst = before === undefined || before.level !== stage.level;
  const own = kernels?.functions.find(({ name }) => name === fn);
  const go = (to: number): void => {
    const next = stages[Math.min(Math.max(to, 0), stages.length - 1)]!;
    setState({ pass: next.name, fn: at === 0 ? '' : fn, op: '', part: '' });
  };
  useEffect(() => {
    // Beside the slider: the keys that editors use for changes.
    const press = ({ key, target, ctrlKey, metaKey, altKey }: KeyboardEvent): void => {
      const isTyping = target instanceof HTMLElement && ['INPUT', 'SELECT', 'TEXTAREA'].includes(target.tagName);
      if (isTyping || ctrlKey || metaKey || altKey) return;
      if (key === '[') go(shown - 1);
      if (key === ']') go(shown + 1);
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  });
  const words = `${stage.name}, ${nounOf(stage)}${isFirst ? '' : `, ${changesOf(stage, isFirst)}`}`;
  const shownParts = useMemo(() => partsToShow(document, stage), [document, stage]);
  const titles = useMemo(() => own?.kernels.map(({ title }) => title) ?? [], [own]);
  return (
    <>
      <div class="tools">
        {document.functions.length > 1 && (
          <label>
            Function{' '}
            <select
              value={fn}
              onChange={({ currentTarget }) => setState({ fn: currentTarget.value, pass: '', op: '' })}
            >
              {document.functions.map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <Search passes={document} kernels={kernels} fn={fn} stage={stage} />
      </div>
      <div class="slide">
        <button type="button" onClick={() => go(shown - 1)} disabled={shown === 0} aria-label="The pass before">
          ‹
        </button>
        <input
          type="range"
          min={0}
          max={stages.length - 1}
          value={shown}
          aria-label="Pass"
          aria-valuetext={`${shown + 1} of ${stages.length}: ${words}`}
          onInput={({ currentTarget }) => go(Number(currentTarget.value))}
        />
        <button
          type="button"
          onClick={() => go(shown + 1)}
          disabled={shown === stages.length - 1}
          aria-label="The pass after"
        >
          ›
        </button>
      </div>
      <div class="passes">
        <PassList stages={stages} shown={shown} fn={at === 0 ? '' : fn} />
        <article>
          <h2 class="pass">
            <span class="step">{shown}</span> {stage.name}
          </h2>
          <p class="does">{stage.does}</p>
          <p class="why">
            <span>Why here:</span> {stage.reason}.
          </p>
          <p class="left" role="status">
            {nounOf(stage)}
            {!isFirst && (
              <>
                ; {changesOf(stage, isFirst)} <Changes stage={stage} />
              </>
            )}
          </p>
          {stage.parts.map((part, i) => (
            <PartView
              key={`${fn} ${part.title}`}
              {...{ document, stage, part, fn, titles, route }}
              at={i}
              isShown={shownParts.has(i)}
              isFinal={stages.findLast(({ level }) => level === 'graph') === stage}
            />
          ))}
        </article>
      </div>
    </>
  );
}

/**
 * Of layers the kind that most are of, unless nothing changed there and it did in another; and what changed outside of
 * layers. Where nothing changed anywhere, all that lies outside too.
 */
function partsToShow({ units }: PassesDocument, { parts }: Stage): ReadonlySet<number> {
  const isLayer = parts.map(({ title }) => title.startsWith('layer'));
  const hasChanged = parts.map(({ unit }) => units[unit]!.ops.some(({ sign }) => sign !== ''));
  const isQuiet = !hasChanged.includes(true);
  const layers = parts.flatMap((_, i) => (isLayer[i] === true && (isQuiet || hasChanged[i] === true) ? [i] : []));
  const most = layers.reduce<number | undefined>(
    (best, i) => (best === undefined || parts[i]!.count > parts[best]!.count ? i : best),
    undefined,
  );
  const outside = parts.flatMap((_, i) => (isLayer[i] === false && (isQuiet || hasChanged[i] === true) ? [i] : []));
  return new Set([...(most === undefined ? [] : [most]), ...outside]);
}

/** A name of the program's own that may break before its words. */
const broken = (name: string) =>
  name.split(/(?=[A-Z])/).flatMap((word, i) => (i === 0 ? [word] : [<wbr key={i} />, word]));

function PassList({
  stages,
  shown,
  fn,
}: {
  readonly stages: readonly Stage[];
  readonly shown: number;
  readonly fn: string;
}) {
  return (
    <nav class="list" aria-label="Passes">
      <ol start={0}>
        {stages.map((stage, i) => {
          const isNew = i > 0 && stages[i - 1]!.level !== stage.level;
          return (
            <li key={stage.name} class={isNew ? 'level' : undefined}>
              <a
                href={hashOf({ section: 'passes', state: { fn, pass: stage.name } })}
                aria-current={i === shown ? 'step' : undefined}
                class={stage.changed ? undefined : 'same'}
              >
                <span>{broken(stage.name)}</span> {i > 0 && !isNew && <Changes stage={stage} />}
              </a>
            </li>
          );
        })}
      </ol>
    </nav>
  );
}
