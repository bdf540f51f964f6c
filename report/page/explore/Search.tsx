/** Search over passes, the ops of the stage that is shown, and kernels. */
import { useId, useState } from 'preact/hooks';
import type { KernelsDocument, PassesDocument, Stage } from '../../document/explore.js';
import { Shown } from '../parts/Elements.js';
import { hashOf } from '../parts/route.js';

export interface SearchProps {
  readonly passes: PassesDocument | undefined;
  readonly kernels: KernelsDocument | undefined;
  readonly fn: string;
  /** The stage whose ops are searched. */
  readonly stage: Stage | undefined;
}

interface Hit {
  readonly kind: 'pass' | 'kernel' | 'op';
  readonly title: string;
  readonly detail: string;
  readonly href: string;
}

const MOST = 40;

/** What holds all words, in order of kernels, passes and ops. */
export function search({ passes, kernels, fn, stage }: SearchProps, query: string): readonly Hit[] {
  const words = query
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  if (words.length === 0) return [];
  const holds = (...texts: readonly string[]): boolean => {
    const all = texts.join(' ').toLowerCase();
    return words.every((word) => all.includes(word));
  };
  const hits: Hit[] = [];
  const own = kernels?.functions.find(({ name }) => name === fn);
  for (const { title, anchor, shape, path, ops, name } of own?.kernels ?? [])
    if (holds(title, anchor, path, name, ops.map((op) => op.op).join(' ')))
      hits.push({
        kind: 'kernel',
        title,
        detail: `${anchor} ${shape}`,
        href: hashOf({ section: 'kernels', state: { fn, kernel: title } }),
      });
  for (const each of passes?.functions.find(({ name }) => name === fn)?.stages ?? [])
    if (holds(each.name, each.does))
      hits.push({
        kind: 'pass',
        title: each.name,
        detail: each.does,
        href: hashOf({ section: 'passes', state: { fn, pass: each.name } }),
      });
  stage?.parts.forEach((part, at) => {
    for (const { op, name, path, type, text } of passes?.units[part.unit]?.ops ?? [])
      if (holds(op, name, path, text))
        hits.push({
          kind: 'op',
          title: `${op} ${name}`,
          detail: `${part.title}, ${path}: ${type}`,
          href: hashOf({ section: 'passes', state: { fn, pass: stage.name, part: String(at), op: name } }),
        });
  });
  return hits;
}

export function Search(props: SearchProps) {
  const [query, setQuery] = useState('');
  const id = useId();
  const hits = search(props, query);
  return (
    <div class="search">
      <label class="hidden" for={id}>
        Search ops, kernels and passes
      </label>
      <input
        id={id}
        type="search"
        placeholder="Search ops, kernels, passes"
        value={query}
        onInput={({ currentTarget }) => setQuery(currentTarget.value)}
        onKeyDown={({ key }) => key === 'Escape' && setQuery('')}
      />
      <span class="soft" role="status">
        {query.trim() === '' ? '' : hits.length === 1 ? '1 found' : `${hits.length} found`}
      </span>
      {hits.length > 0 && (
        <ul class="hits" aria-label="Found">
          {hits.slice(0, MOST).map(({ kind, title, detail, href }, i) => (
            <li key={i}>
              <a href={href} onClick={() => setQuery('')}>
                <span class="kind">{kind}</span> <Shown text={title} /> <span class="soft">{detail}</span>
              </a>
            </li>
          ))}
          {hits.length > MOST && <li class="soft">and {hits.length - MOST} more</li>}
        </ul>
      )}
    </div>
  );
}
