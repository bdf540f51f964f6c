/** A list of which only the rows in view are drawn, with the keys of a list box. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from '@tanstack/virtual-core';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export interface VirtualListProps {
  readonly label: string;
  readonly count: number;
  /** Of a row, in pixels. */
  readonly rowHeight: number;
  /** The place that is chosen; -1: none. */
  readonly chosen: number;
  readonly onChoose: (place: number) => void;
  /** Of a row: its key among all rows, and what is in it. */
  readonly keyOf: (place: number) => number;
  readonly children: (place: number) => ComponentChildren;
  /** Called with the places in view. */
  readonly onView?: (from: number, to: number) => void;
}

const OVERSCAN = 6;

function useVirtualizer(count: number, rowHeight: number) {
  const holder = useRef<HTMLDivElement>(null);
  const [, redraw] = useState(0);
  const made = useRef<Virtualizer<HTMLDivElement, Element> | undefined>(undefined);
  const options = {
    count,
    overscan: OVERSCAN,
    getScrollElement: () => holder.current,
    estimateSize: () => rowHeight,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => redraw((times) => times + 1),
  };
  made.current ??= new Virtualizer(options);
  const virtualizer = made.current;
  virtualizer.setOptions(options);
  useEffect(() => virtualizer._didMount(), []);
  useEffect(() => virtualizer._willUpdate());
  return { holder, virtualizer };
}

export function VirtualList(props: VirtualListProps) {
  const { label, count, rowHeight, chosen, onChoose, keyOf, children, onView } = props;
  const { holder, virtualizer } = useVirtualizer(count, rowHeight);
  const items = virtualizer.getVirtualItems();
  const [from, to] = [items[0]?.index ?? 0, items.at(-1)?.index ?? -1];
  useEffect(() => onView?.(from, to), [from, to, onView]);
  useEffect(() => {
    if (chosen >= 0) virtualizer.scrollToIndex(chosen, { align: 'auto' });
  }, [chosen, count]);
  const go = (place: number): void => onChoose(Math.min(count - 1, Math.max(0, place)));
  const page = Math.max(1, Math.floor((holder.current?.clientHeight ?? rowHeight) / rowHeight) - 1);
  const keys: Readonly<Record<string, () => void>> = {
    ArrowDown: () => go(chosen + 1),
    ArrowUp: () => go(chosen - 1),
    PageDown: () => go(chosen + page),
    PageUp: () => go(chosen - page),
    Home: () => go(0),
    End: () => go(count - 1),
  };
  return (
    <div
      ref={holder}
      class="list"
      role="listbox"
      aria-label={label}
      tabIndex={0}
      {...(chosen >= from && chosen <= to ? { 'aria-activedescendant': `row-${chosen}` } : {})}
      onKeyDown={(event) => {
        const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
        if (act === undefined || count === 0) return;
        event.preventDefault();
        act();
      }}
    >
      <div style={{ height: `${virtualizer.getTotalSize()}px`, position: 'relative' }}>
        {items.map(({ index, start }) => (
          <div
            key={keyOf(index)}
            id={`row-${index}`}
            class="row"
            role="option"
            aria-selected={index === chosen}
            aria-setsize={count}
            aria-posinset={index + 1}
            style={{ height: `${rowHeight}px`, transform: `translateY(${start}px)` }}
            onClick={() => onChoose(index)}
          >
            {children(index)}
          </div>
        ))}
      </div>
    </div>
  );
}
