/** A source with its lines numbered, each beside the ops of the graph that it computes. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { KernelEntry, KernelOp, SourceSpan } from '../../document/explore.js';
import { type OfPeak, si } from '../parts/numbers.js';
import { setState } from '../parts/route.js';

export interface SourceProps {
  readonly text: string;
  readonly spans: readonly SourceSpan[];
  readonly ops: readonly KernelOp[];
  readonly chosen: number | undefined;
}

/** Lines without an op that are folded where there are more of them in a row; so many stay beside those with ops. */
const MAX_BARE = 30;
const CONTEXT = 8;

interface Region {
  readonly first: number;
  readonly last: number;
  readonly isFolded: boolean;
}

/** Lines in regions: long ones without an op are folded. */
function regionsOf(lines: number, marked: readonly boolean[]): readonly Region[] {
  const near = Array.from({ length: lines }, () => false);
  marked.forEach((isMarked, at) => {
    if (isMarked) near.fill(true, Math.max(0, at - CONTEXT), Math.min(lines, at + CONTEXT + 1));
  });
  const regions: Region[] = [];
  for (let first = 0; first < lines;) {
    let end = first;
    while (end < lines && near[end] === near[first]) end++;
    const isFolded = near[first] === false && end - first > MAX_BARE && near.includes(true);
    regions.push({ first, last: end - 1, isFolded });
    first = end;
  }
  return regions;
}

export function Source({ text, spans, ops, chosen }: SourceProps) {
  const lines = useMemo(() => text.split('\n'), [text]);
  const opsOf = useMemo(() => {
    const found = new Map<number, readonly number[]>();
    for (const [first, last, own] of spans) for (let line = first; line <= last; line++) found.set(line, own);
    return found;
  }, [spans]);
  const regions = useMemo(
    () =>
      regionsOf(
        lines.length,
        lines.map((_, i) => opsOf.has(i)),
      ),
    [lines, opsOf],
  );
  const [unfolded, setUnfolded] = useState<ReadonlySet<number>>(new Set());
  const box = useRef<HTMLDivElement>(null);
  const at = chosen === undefined ? undefined : spans.find(([, , own]) => own.includes(chosen))?.[0];
  useEffect(() => {
    if (at === undefined) return;
    box.current?.querySelector(`[data-line="${at}"]`)?.scrollIntoView({ block: 'center' });
  }, [at, chosen]);
  const said =
    chosen === undefined
      ? ''
      : at === undefined
        ? `${ops[chosen]!.op} has no lines of its own: it is part of the kernel's skeleton.`
        : `${ops[chosen]!.op} begins at line ${at + 1}.`;
  return (
    <>
      <p class="soft" role="status">
        {spans.length === 0
          ? 'No line belongs to one op alone: the anchor is all of it.'
          : said === ''
            ? 'Numbers beside lines are those of the ops that they compute. Lines without one belong to the anchor.'
            : said}
      </p>
      <div class="source" ref={box} tabIndex={0} role="region" aria-label="Source">
        <code>
          {regions.map(({ first, last, isFolded }) =>
            isFolded && !unfolded.has(first) ? (
              <button key={first} type="button" class="fold" onClick={() => setUnfolded(new Set([...unfolded, first]))}>
                Lines {first + 1}–{last + 1}
              </button>
            ) : (
              lines
                .slice(first, last + 1)
                .map((line, i) => (
                  <Line
                    key={first + i}
                    at={first + i}
                    line={line}
                    own={opsOf.get(first + i)}
                    ops={ops}
                    chosen={chosen}
                  />
                ))
            ),
          )}
        </code>
      </div>
    </>
  );
}

/** A text with its lines numbered. */
export function Lines({ text, label }: { readonly text: string; readonly label: string }) {
  return (
    <div class="source" tabIndex={0} role="region" aria-label={label}>
      <code>
        {text
          .trimEnd()
          .split('\n')
          .map((line, at) => (
            <Line key={at} at={at} line={line} own={undefined} ops={[]} chosen={undefined} />
          ))}
      </code>
    </div>
  );
}

function Line({
  at,
  line,
  own = [],
  ops,
  chosen,
}: {
  readonly at: number;
  readonly line: string;
  readonly own: readonly number[] | undefined;
  readonly ops: readonly KernelOp[];
  readonly chosen: number | undefined;
}) {
  const isChosen = chosen !== undefined && own.includes(chosen);
  const [first] = own;
  return (
    <span class={`line ${first === undefined ? '' : hueOf(first)} ${isChosen ? 'chosen' : ''}`} data-line={at}>
      <span class="at">{at + 1}</span>
      <span class="of">
        {own.map((op) => (
          <button
            key={op}
            type="button"
            class={`number ${hueOf(op)}`}
            tabIndex={-1}
            title={`${ops[op]!.op} ${ops[op]!.name}, ${ops[op]!.path}`}
            onClick={() => setState({ op: ops[op]!.name })}
          >
            {op + 1}
          </button>
        ))}
      </span>
      <span class="text">{line}</span>
      {'\n'}
    </span>
  );
}

/** Figures of kernels, and how they are written. */

/** `1.4 ms`, `52 µs`. */
export const shortTime = (seconds: number): string =>
  seconds >= 1 ? si(seconds, 's') : seconds >= 1e-3 ? si(seconds * 1e3, 'ms') : si(seconds * 1e6, 'µs');

/** Seconds of a launch: as measured, else as predicted. */
export const launchSeconds = ({ measuredSeconds, predictedSeconds }: KernelEntry): number =>
  measuredSeconds ?? predictedSeconds;

/** What a launch reaches of the roof: of arithmetic, or of memory where that is the limit. */
export const shareOf = (kernel: KernelEntry): OfPeak => ({
  share: kernel.seconds / launchSeconds(kernel),
  flops: kernel.flops,
});

/** Seconds of all launches of the kernel. */
export const secondsOf = (kernel: KernelEntry): number => launchSeconds(kernel) * kernel.count;

/** The colour of an op beside a source. There are six: each op has its number as well. */
export const hueOf = (op: number): string => `hue${op % 6}`;
