/**
 * Boxes that scroll say so. `data-more` of a box names the sides behind which there is more of it: style sheets fade
 * the box out there, and say in words that it scrolls sideways. Browsers of telephones show no scroll bars.
 */
import { useEffect } from 'preact/hooks';

/** Nearer to its end than this a box shows all of it: positions are fractions of pixels. */
const NEAR_PIXELS = 2;

/** The sides of a box behind which there is more. */
function moreOf(box: Element, style: CSSStyleDeclaration): string {
  const scrolls = (overflow: string): boolean => overflow === 'auto' || overflow === 'scroll';
  const sides: string[] = [];
  if (scrolls(style.overflowX)) {
    if (box.scrollLeft > NEAR_PIXELS) sides.push('left');
    if (box.scrollWidth - box.clientWidth - box.scrollLeft > NEAR_PIXELS) sides.push('right');
  }
  if (scrolls(style.overflowY)) {
    if (box.scrollTop > NEAR_PIXELS) sides.push('top');
    if (box.scrollHeight - box.clientHeight - box.scrollTop > NEAR_PIXELS) sides.push('bottom');
  }
  return sides.join(' ');
}

/** What may scroll: whatever else does is a mistake of a style sheet, which a test looks for. */
const BOXES = '.scroll, nav, pre, .graph, .source, .list, .hits, .timeline .plot';

function mark(box: HTMLElement): void {
  const more = moreOf(box, getComputedStyle(box));
  if (more === '') delete box.dataset['more'];
  else if (box.dataset['more'] !== more) box.dataset['more'] = more;
}

/** Marks all boxes of a page, and again whatever changes: their content, their size, where they are scrolled to. */
export function useScrollHints(): void {
  useEffect(() => {
    let frame: number | undefined;
    const markAll = (): void => {
      frame = undefined;
      for (const box of document.querySelectorAll<HTMLElement>(BOXES)) mark(box);
    };
    const later = (): void => {
      frame ??= requestAnimationFrame(markAll);
    };
    const scrolled = ({ target }: Event): void => {
      if (target instanceof HTMLElement && target.matches(BOXES)) mark(target);
    };
    const changes = new MutationObserver(later);
    changes.observe(document.body, { childList: true, subtree: true, characterData: true });
    const sizes = new ResizeObserver(later);
    sizes.observe(document.body);
    addEventListener('scroll', scrolled, { capture: true, passive: true });
    document.addEventListener('toggle', later, { capture: true });
    later();
    return () => {
      changes.disconnect();
      sizes.disconnect();
      removeEventListener('scroll', scrolled, { capture: true });
      document.removeEventListener('toggle', later, { capture: true });
      if (frame !== undefined) cancelAnimationFrame(frame);
    };
  }, []);
}
