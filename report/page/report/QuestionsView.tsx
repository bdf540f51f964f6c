/** The section of questions: a list that is filtered, searched and sorted, and the question that is looked at. */
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { QuestionsDocument, QuestionText } from '../../document/questions.js';
import { Choose, Shown } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { count, signed } from '../parts/numbers.js';
import { type Route, setState } from '../parts/route.js';
import { VirtualList } from '../parts/VirtualList.js';
import { QuestionView } from './QuestionView.js';
import { nameOf, ordersFor, rowOf, type Selection, selectionOf, selectRows, shownFor, taskOf } from './select.js';
import { Texts } from './texts.js';

const ROW_HEIGHT = 58;
/** Blocks that are read before anybody looks for them, so that the first search is quick. */
const EAGER = 60;

/** Rows that the search has found; undefined without a search. */
function useSearch(texts: Texts, query: string): { readonly found: Uint8Array | undefined; readonly isBusy: boolean } {
  const [state, setFound] = useState<{ readonly query: string; readonly found: Uint8Array | undefined }>({
    query: '',
    found: undefined,
  });
  useEffect(() => {
    let isCurrent = true;
    if (query === '') setFound({ query, found: undefined });
    else
      void texts
        .search(query, () => isCurrent)
        .then((found) => {
          if (found !== undefined && isCurrent) setFound({ query, found });
        });
    return () => {
      isCurrent = false;
    };
  }, [texts, query]);
  return { found: query === '' ? undefined : state.found, isBusy: state.query !== query };
}

/** Reads the blocks of the rows in view, and redraws when they are there. */
function useTexts(document: QuestionsDocument) {
  const texts = useMemo(() => new Texts(document), [document]);
  const [, redraw] = useState(0);
  const want = useCallback(
    (rows: readonly number[]) => {
      for (const block of new Set(rows.filter((row) => texts.peek(row) === undefined).map((row) => texts.blockOf(row))))
        void texts.read(block).then(() => redraw((times) => times + 1));
    },
    [texts],
  );
  useEffect(() => {
    let isCurrent = true;
    const readAll = async (): Promise<void> => {
      for (let block = 0; block < texts.blocks && isCurrent; block++) {
        await texts.read(block);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    if (texts.blocks <= EAGER) void readAll();
    return () => {
      isCurrent = false;
    };
  }, [texts]);
  return { texts, want };
}

interface FilterProps {
  readonly document: QuestionsDocument;
  readonly selection: Selection;
  readonly query: string;
  readonly search: { readonly current: HTMLInputElement | null };
}

function Filters({ document, selection, query, search }: FilterProps) {
  const { runs, tasks, metrics } = document;
  return (
    <div class="controls" role="search">
      <label class="choose wide">
        <span>Search</span>
        <input
          ref={search}
          type="search"
          placeholder="words in questions and choices"
          value={query}
          onInput={({ currentTarget }) => setState({ find: currentTarget.value })}
        />
      </label>
      <Choose
        label="Show"
        value={selection.show}
        options={shownFor(document)}
        onChange={(show) => setState({ show: show === 'all' ? '' : show })}
      />
      {selection.show === 'close' && (
        <label class="choose">
          <span>Closer than, nats</span>
          <input
            type="number"
            min="0"
            step="any"
            value={String(selection.close)}
            onInput={({ currentTarget }) => setState({ close: currentTarget.value })}
          />
        </label>
      )}
      <Choose
        label="Order"
        value={selection.order}
        options={ordersFor(document)}
        onChange={(order) => setState({ order: order === 'number' ? '' : order })}
      />
      <Choose
        label="Metric"
        value={metrics[selection.metric] ?? ''}
        options={metrics.map((each) => ({ value: each, title: each }))}
        onChange={(metric) => setState({ metric })}
      />
      <Choose
        label="Task"
        value={selection.task}
        options={
          tasks.length < 2
            ? []
            : [{ value: '', title: 'all tasks' }, ...tasks.map(({ task }) => ({ value: task, title: task }))]
        }
        onChange={(task) => setState({ task })}
      />
      <Choose
        label="Run"
        value={String(selection.run)}
        options={runs.map((title, run) => ({ value: String(run), title }))}
        onChange={(run) => setState({ run })}
      />
    </div>
  );
}

/**
 * Keys that work anywhere in the section: / searches, j and k go through the list. Effects run later than what is drawn
 * can be seen, so the listener stays and finds the newest `move` in a reference: a quick key goes on from there too.
 */
function useKeys(search: FilterProps['search'], move: (by: number) => void): void {
  const newest = useRef(move);
  newest.current = move;
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      const isTyping = event.target instanceof Element && event.target.closest('input, select, textarea') !== null;
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '/') search.current?.focus();
      else if (event.key === 'j') newest.current(1);
      else if (event.key === 'k') newest.current(-1);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  }, [search]);
}

function Questions({ document, route }: { readonly document: QuestionsDocument; readonly route: Route }) {
  const { state } = route;
  const query = (state['find'] ?? '').trim();
  const { texts, want } = useTexts(document);
  const { found, isBusy } = useSearch(texts, query);
  const { at, find: _, ...filters } = state;
  const inputs = JSON.stringify(filters);
  const selection = useMemo(() => selectionOf(state, document), [document, inputs]);
  const rows = useMemo(() => selectRows(document, selection, found), [document, selection, found]);
  const named = at === undefined ? undefined : rowOf(document, at);
  const chosen = named === undefined ? -1 : rows.indexOf(named);
  const row = named ?? rows[0];
  const choose = useCallback((place: number) => setState({ at: nameOf(document, rows[place]!) }), [document, rows]);
  const move = (by: number): void => {
    if (rows.length > 0) choose(Math.min(rows.length - 1, Math.max(0, chosen + by)));
  };
  const search = useRef<HTMLInputElement>(null);
  useKeys(search, move);
  useEffect(() => {
    if (row !== undefined) want([row]);
  }, [row, want]);
  const text = row === undefined ? undefined : texts.peek(row);
  const onView = useCallback((from: number, to: number) => want(rows.slice(from, to + 1)), [rows, want]);
  return (
    <section class="questions">
      <Filters document={document} selection={selection} query={state['find'] ?? ''} search={search} />
      <p class="count" role="status" aria-live="polite">
        {isBusy
          ? 'Searching…'
          : `${count(rows.length)} of ${count(document.docIds.length)} questions` +
            (document.left > 0 ? `; ${count(document.left)} more are in the files` : '')}
      </p>
      <div class="browse">
        <VirtualList
          label="Questions"
          count={rows.length}
          rowHeight={ROW_HEIGHT}
          chosen={chosen >= 0 ? chosen : row === rows[0] ? 0 : -1}
          onChoose={choose}
          keyOf={(place) => rows[place]!}
          onView={onView}
        >
          {(place) => <QuestionRow {...{ document, selection }} row={rows[place]!} text={texts.peek(rows[place]!)} />}
        </VirtualList>
        <div class="question">
          {row === undefined ? (
            <p class="none">No question is like this.</p>
          ) : text === undefined ? (
            <p aria-busy="true">Reading…</p>
          ) : (
            <QuestionView document={document} row={row} text={text} run={selection.run} />
          )}
        </div>
      </div>
      <p class="keys">
        Keys: <kbd>j</kbd> and <kbd>k</kbd> or arrows go through the list, <kbd>/</kbd> searches.
      </p>
    </section>
  );
}

export const QuestionsView = ({ route }: { readonly route: Route }) => (
  <Section name="questions">{(document) => <Questions document={document} route={route} />}</Section>
);

/** A question in the list: whether it is right, its beginning, its margin. */

const MOST = 160;

/** The beginning of the question, on one line. */
function snippet(text: QuestionText | undefined): string {
  if (text === undefined) return '…';
  const line = text.context
    .slice(text.shots, text.shots + MOST)
    .replace(/\s+/g, ' ')
    .trim();
  return line === '' ? (text.choices[0] ?? '').slice(0, MOST).trim() : line;
}

export interface QuestionRowProps {
  readonly document: QuestionsDocument;
  readonly row: number;
  readonly text: QuestionText | undefined;
  readonly selection: Selection;
}

export function QuestionRow({ document, row, text, selection: { run, base, metric } }: QuestionRowProps) {
  const { answers, docIds, tasks } = document;
  const value = answers[run]!.values[metric]?.[row];
  const before = answers[base]!.values[metric]?.[row];
  const margin = answers[run]!.margins[row];
  const isFlipped = run !== base && typeof value === 'number' && typeof before === 'number' && value !== before;
  return (
    <>
      <span class={value === 1 ? 'sign is-right' : value === 0 ? 'sign is-wrong' : 'sign'}>
        <span aria-hidden="true">{value === 1 ? '✓' : value === 0 ? '✗' : '·'}</span>
        <span class="hidden">{value === 1 ? 'right' : value === 0 ? 'wrong' : 'no verdict'}</span>
      </span>
      <span class="what">
        <span class="line">
          <Shown text={snippet(text)} />
        </span>
        <span class="about">
          {docIds[row]}
          {tasks.length > 1 && (
            <>
              {' · '}
              <Shown text={taskOf(document, row)} />
            </>
          )}
          {isFlipped && <span class="flip"> · {value === 1 ? 'was wrong' : 'was right'}</span>}
        </span>
      </span>
      <span class="margin">{typeof margin === 'number' ? signed(margin, 2) : ''}</span>
    </>
  );
}
