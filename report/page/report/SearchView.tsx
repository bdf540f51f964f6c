/** The section of searches: right answers by number of candidates, problems, and the tree of the one looked at. */
import * as Plot from '@observablehq/plot';
import { numberOf } from '../../document/questions.js';
import {
  type SearchCurve,
  type SearchDocument,
  type SearchedProblem,
  type SearchedTask,
  type ShownTree,
  treesBlock,
} from '../../document/search.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { readBlock, useLoaded } from '../parts/data.js';
import { Choose, Facts, LongText, Name, Shown, Table } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { count, counted, percent } from '../parts/numbers.js';
import { type Route, setState } from '../parts/route.js';
import { VirtualList } from '../parts/VirtualList.js';
import { scoreText, SearchTree } from './SearchTree.js';

const ROW_HEIGHT = 58;
const MAX_LISTED = 64;
const COLOURS = ['var(--one)', 'var(--two)', 'var(--three)', 'var(--four)', 'var(--soft)'];
/** Of a normal distribution, for 95 %. */
const Z = 1.96;

interface Point {
  readonly name: string;
  readonly n: number;
  readonly value: number;
  readonly error: number | null;
}

const pointsOf = (curves: readonly SearchCurve[]): Point[] =>
  curves.flatMap(({ name, points }) => points.map((point) => ({ name, ...point })));

const shareText = ({ value, error }: Point): string =>
  error === null ? percent(value) : `${percent(value)} ± ${percent(error)}`;

/** Naive, weighted, majority and pass over the first N candidates, with intervals of 95 %. */
function Curves({ curves }: { readonly curves: readonly SearchCurve[] }) {
  const points = pointsOf(curves);
  if (points.length === 0) return null;
  const most = Math.max(...points.map(({ n }) => n));
  const ends = points.filter(({ n }) => n === most).map((point) => `${point.name} ${percent(point.value)}`);
  const sizes = [...new Set(points.map(({ n }) => n))].sort((a, b) => a - b);
  const colour = ({ name }: Point): string => COLOURS[curves.findIndex((each) => each.name === name) % COLOURS.length]!;
  const ofN = (point: Point): readonly [number, number] => {
    const reach = Z * (point.error ?? 0);
    return [Math.max(0, point.value - reach), Math.min(1, point.value + reach)];
  };
  return (
    <>
      <ul class="colours" aria-hidden="true">
        {curves.map(({ name }, i) => (
          <li key={name}>
            <i style={{ background: COLOURS[i % COLOURS.length] }} />
            <Shown text={name} />
          </li>
        ))}
      </ul>
      <Chart
        title="Right answers by candidates"
        summary={`Of the first ${counted(most, 'candidate')}: ${ends.join(', ')}. Bars are intervals of 95 %.`}
        inputs={[curves]}
        options={() => ({
          height: 280,
          marginLeft: 46,
          x: { ...BELOW, type: 'point', domain: sizes, label: 'candidates' },
          y: { percent: true, grid: true, label: '% right', nice: true },
          marks: [
            Plot.line(points, { x: 'n', y: 'value', z: 'name', stroke: colour, strokeWidth: 1.5 }),
            Plot.ruleX(
              points.filter(({ error }) => error !== null),
              {
                x: 'n',
                y1: (point: Point) => ofN(point)[0],
                y2: (point: Point) => ofN(point)[1],
                stroke: colour,
                strokeWidth: 1.5,
              },
            ),
            Plot.dot(points, {
              ...{ x: 'n', y: 'value', r: 3.5, fill: colour },
              title: (point: Point) => `${point.name}@${point.n}\n${shareText(point)}`,
              tip: true,
            }),
          ],
        })}
      >
        <Table
          caption="Right answers, with standard errors"
          columns={[{ title: 'Candidates' }, ...curves.map(({ name }) => ({ title: name, isRight: true }))]}
          rows={sizes.map((n) => [
            count(n),
            ...curves.map(({ name }) => {
              const point = points.find((each) => each.n === n && each.name === name);
              return point === undefined ? '–' : shareText(point);
            }),
          ])}
        />
      </Chart>
    </>
  );
}

const signOf = (isRight: boolean | null): readonly [mark: string, words: string, style: string] =>
  isRight === null
    ? ['·', 'no verdict', 'sign']
    : isRight
      ? ['✓', 'right', 'sign is-right']
      : ['✗', 'wrong', 'sign is-wrong'];

function Verdict({ isRight }: { readonly isRight: boolean | null }) {
  const [mark, words, style] = signOf(isRight);
  return (
    <span class={style}>
      <span aria-hidden="true">{mark}</span>
      <span class="hidden">{words}</span>
    </span>
  );
}

function ProblemRow({ problem: { docId, text, isRight, steps } }: { readonly problem: SearchedProblem }) {
  return (
    <>
      <Verdict isRight={isRight} />
      <span class="what">
        <span class="line">
          <Shown text={text} />
        </span>
        <span class="about">{docId}</span>
      </span>
      <span class="margin">{counted(steps, 'step')}</span>
    </>
  );
}

function Candidates({ tree, onChoose }: { readonly tree: ShownTree; readonly onChoose: (step: number) => void }) {
  const { candidates, picked } = tree;
  if (candidates.length === 0) return null;
  const hasAnswers = candidates.some(({ answer }) => answer !== undefined);
  return (
    <Table
      caption={
        candidates.length > MAX_LISTED
          ? `The first ${MAX_LISTED} of ${count(candidates.length)} candidates`
          : 'Candidates'
      }
      columns={[
        { title: 'Candidate' },
        ...(hasAnswers ? [{ title: 'Answer' }] : []),
        { title: 'Score', isRight: true },
        { title: 'Tokens', isRight: true },
        { title: 'Completed' },
      ]}
      rows={candidates.slice(0, MAX_LISTED).map(({ step, answer, isRight, aggregate, tokens, isCompleted }, i) => [
        <>
          <button type="button" class="more" onClick={() => onChoose(step)}>
            {i + 1}
          </button>
          {i === picked && <strong> picked</strong>}
        </>,
        ...(hasAnswers
          ? [
              <>
                <Shown text={answer ?? ''} /> {isRight !== undefined && <Verdict isRight={isRight} />}
              </>,
            ]
          : []),
        scoreText(numberOf(aggregate)),
        count(tokens),
        isCompleted ? 'yes' : 'no',
      ])}
    />
  );
}

function Problem({ problem, tree, step }: { problem: SearchedProblem; tree: ShownTree; step: string | undefined }) {
  const { steps, candidates, picked, target, notes, cut } = tree;
  const pick = picked === null ? undefined : candidates[picked];
  const asked = step !== undefined && /^\d{1,7}$/.test(step) ? Number(step) : NaN;
  const chosen = asked < steps.length ? asked : (pick?.step ?? 0);
  const choose = (at: number): void => setState({ step: String(at) });
  const facts: (readonly [string, string])[] = [
    ...(target === '' ? [] : [['Right answer', target] as const]),
    ...(pick?.answer === undefined ? [] : [['Picked answer', pick.answer] as const]),
    ['Verdict', signOf(problem.isRight)[1]],
    ...(pick === undefined ? [] : [['Score of the pick', scoreText(numberOf(pick.aggregate))] as const]),
  ];
  return (
    <article>
      <h2>Problem {problem.docId}</h2>
      <div class="context">
        <p>
          <LongText text={tree.problem} />
        </p>
      </div>
      <Facts facts={facts} isSmall />
      {notes.length > 0 && (
        <ul class="notes">
          {notes.map((note) => (
            <li key={note}>
              <Shown text={note} />
            </li>
          ))}
        </ul>
      )}
      {steps.length === 0 ? (
        <p class="none">Nothing was drawn.</p>
      ) : (
        <SearchTree tree={tree} chosen={chosen} onChoose={choose} />
      )}
      <Candidates tree={tree} onChoose={choose} />
      {cut > 0 && <p class="note">{counted(cut, 'character')} of these texts are in the file only.</p>}
    </article>
  );
}

function ReadProblem({ problem, step }: { readonly problem: SearchedProblem; readonly step: string | undefined }) {
  const loading = useLoaded(() => readBlock<readonly ShownTree[]>(treesBlock(problem.block)), [problem.block]);
  if (loading.state === 'loading') return <p aria-busy="true">Reading…</p>;
  const tree = loading.state === 'ready' ? loading.value[problem.place] : undefined;
  if (tree === undefined) return <p class="failed">The tree cannot be read.</p>;
  return <Problem key={`${problem.docId}`} {...{ problem, tree, step }} />;
}

function Task({ of, route }: { readonly of: SearchedTask; readonly route: Route }) {
  const { problems, curves, asked } = of;
  const named = problems.findIndex(({ docId }) => String(docId) === route.state['at']);
  const place = Math.max(0, named);
  const problem = problems[place];
  const right = problems.filter(({ isRight }) => isRight === true).length;
  const judged = problems.filter(({ isRight }) => isRight !== null).length;
  return (
    <>
      <Curves curves={curves} />
      <p class="count">
        {counted(problems.length, 'problem')}
        {judged > 0 && `; of ${count(right)} the picked answer is right`}
      </p>
      <div class="browse">
        <VirtualList
          label="Problems"
          count={problems.length}
          rowHeight={ROW_HEIGHT}
          chosen={place}
          onChoose={(at) => setState({ at: String(problems[at]!.docId), step: '' })}
          keyOf={(at) => at}
        >
          {(at) => <ProblemRow problem={problems[at]!} />}
        </VirtualList>
        <div class="question">
          {problem === undefined ? (
            <p class="none">There is no problem.</p>
          ) : problem.block < 0 ? (
            <p class="none">This page has no tree of problem {problem.docId}.</p>
          ) : (
            <ReadProblem problem={problem} step={route.state['step']} />
          )}
        </div>
      </div>
      {asked.length > 0 && (
        <details>
          <summary>What was asked</summary>
          <Table
            caption="What was asked"
            hidesCaption
            columns={[{ title: 'Name' }, { title: 'Value' }]}
            rows={asked.map(([name, value]) => [<Name text={name} />, <Shown text={value} />])}
          />
        </details>
      )}
    </>
  );
}

function Searches({ document, route }: { readonly document: SearchDocument; readonly route: Route }) {
  const { tasks } = document;
  const chosen = Math.max(
    0,
    tasks.findIndex((_, i) => String(i) === route.state['search']),
  );
  const of = tasks[chosen];
  if (of === undefined) return <p>There is nothing to show.</p>;
  return (
    <section class="searches">
      <div class="controls">
        <Choose
          label="Search"
          value={String(chosen)}
          options={tasks.map(({ run, task }, i) => ({ value: String(i), title: `${run}, ${task}` }))}
          onChange={(search) => setState({ search, at: '', step: '' })}
        />
      </div>
      <Task key={chosen} of={of} route={route} />
    </section>
  );
}

export const SearchView = ({ route }: { readonly route: Route }) => (
  <Section name="search">{(document) => <Searches document={document} route={route} />}</Section>
);
