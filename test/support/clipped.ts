/** What a page hides: elements beside its edges, and boxes with more in them than they show and say. */
import type { Page } from 'playwright-core';

/**
 * Runs in the page. An element may be wider than the page inside of a box that scrolls; such a box must have
 * `data-more` and fade out. A line may end in dots where the whole is shown elsewhere.
 */
const LOOK = String.raw`(() => {
  const NEAR = 1.5;
  const wide = document.documentElement.clientWidth;
  const found = [];
  const said = (el) => [el.tagName.toLowerCase(), ...el.classList].join('.') + ' ' +
    JSON.stringify((el.textContent ?? '').trim().slice(0, 40));
  const scrolls = (overflow) => overflow === 'auto' || overflow === 'scroll';
  if (document.documentElement.scrollWidth > wide + NEAR)
    found.push('the page is ' + document.documentElement.scrollWidth + ' wide');
  for (const el of document.querySelectorAll('header *, main *, footer *')) {
    if (el.closest('.hidden, .skip, [hidden], select') !== null) continue;
    const box = el.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    const style = getComputedStyle(el);
    if (!(el instanceof SVGElement) && el.clientWidth > 0)
      for (const [overflow, over] of [
        [style.overflowX, el.scrollWidth - el.clientWidth],
        [style.overflowY, el.scrollHeight - el.clientHeight],
      ]) {
        if (over <= NEAR || overflow === 'visible') continue;
        if (scrolls(overflow)) {
          if (!el.dataset.more || style.maskImage === 'none') found.push(said(el) + ' scrolls and does not say so');
        } else if (style.textOverflow !== 'ellipsis') found.push(said(el) + ' hides ' + over + ' pixels');
      }
    let outer = el.parentElement;
    while (outer !== null && !scrolls(getComputedStyle(outer).overflowX) &&
      getComputedStyle(outer).textOverflow !== 'ellipsis') outer = outer.parentElement;
    if (outer === null && el.children.length === 0 && (box.right > wide + NEAR || box.left < -NEAR))
      found.push(said(el) + ' lies from ' + Math.round(box.left) + ' to ' + Math.round(box.right));
  }
  return found;
})()`;

/** A line for each; every part that can be opened is open. */
export async function clippedIn(page: Page): Promise<readonly string[]> {
  await page.evaluate('document.querySelectorAll("details").forEach((each) => { each.open = true; })');
  await page.evaluate('document.fonts.ready');
  // Boxes are marked with the frame after they have changed, and charts drawn with the one after that.
  const frames = 'new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))';
  for (let i = 0; i < 3; i++) await page.evaluate(frames);
  return page.evaluate<readonly string[]>(LOOK);
}

/** What is shown of points beside the edges of the page, as the pointer goes over all charts: a line for each. */
export async function tipsBeside(page: Page, steps: number): Promise<readonly string[]> {
  const found = new Set<string>();
  let seen = 0;
  for (const chart of await page.locator('.plot svg').all()) {
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    if (box === null) continue;
    for (let x = 0; x < steps; x++)
      for (const y of [0.15, 0.35, 0.55, 0.75]) {
        await page.mouse.move(box.x + ((x + 0.5) / steps) * box.width, box.y + y * box.height);
        const tips = await page.evaluate<readonly (readonly [number, number, string])[]>(
          `new Promise((done) => requestAnimationFrame(() => done(
            [...document.querySelectorAll('[aria-label=tip] > g')].map((tip) => {
              const { left, right } = tip.getBoundingClientRect();
              return [left, right, tip.textContent];
            }))))`,
        );
        seen += tips.length;
        const wide = page.viewportSize()!.width;
        for (const [left, right, text] of tips)
          if (left < -1 || right > wide + 1) found.add(`${text.slice(0, 60)}: ${left} to ${right}`);
      }
  }
  if (seen === 0) found.add('nothing was pointed at');
  return [...found];
}
