/** The frame of a page: its title, the sections that it has, and the one that is shown. */
import { Component, type ComponentChildren, type ComponentType } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { About, SectionName, Sections } from '../../document/sections.js';
import { hasBlock, readSection, useLoaded } from './data.js';
import { Shown } from './Elements.js';
import { hashOf, type Route, useRoute } from './route.js';
import { useScrollHints } from './scrollHints.js';

/** A section as a tab. It is shown where the page has its data, which it reads by itself. */
export interface SectionView {
  /** Also its name in addresses. */
  readonly name: SectionName;
  readonly title: string;
  readonly View: ComponentType<{ readonly route: Route }>;
}

/** Called with what failed, so that a page never stays blank. */
function Failed({ message }: { readonly message: string }) {
  return (
    <p class="failed" role="alert">
      This part cannot be shown: <Shown text={message} />
    </p>
  );
}

/** Shows a section's content once it is read. */
export function Section<K extends SectionName>({
  name,
  children,
}: {
  readonly name: K;
  readonly children: (content: Sections[K]) => ComponentChildren;
}) {
  const loading = useLoaded(() => readSection(name), [name]);
  if (loading.state === 'loading') return <p aria-busy="true">Reading…</p>;
  if (loading.state === 'failed') return <Failed message={loading.message} />;
  return <>{children(loading.value)}</>;
}

function Head({ about }: { readonly about: About }) {
  return (
    <div class="title">
      <h1>
        <Shown text={about.title} />
      </h1>
      <p>
        <Shown text={about.subtitle} />
      </p>
    </div>
  );
}

function Foot({ about }: { readonly about: About }) {
  return (
    <footer>
      {about.notes.length > 0 && (
        <details>
          <summary>{about.notes.length === 1 ? 'One note' : `${about.notes.length} notes`} on the files</summary>
          <ul>
            {about.notes.map((note) => (
              <li key={note}>
                <Shown text={note} />
              </li>
            ))}
          </ul>
        </details>
      )}
      <p>
        Written by <Shown text={about.writer} /> on <time dateTime={about.written}>{about.written.slice(0, 10)}</time>.
        Everything is in this file.
      </p>
    </footer>
  );
}

/** What goes wrong in a section is said in its place; the others stay. */
class Guard extends Component<{ readonly children: ComponentChildren }, { readonly message: string | undefined }> {
  override state = { message: undefined };

  static override getDerivedStateFromError(error: unknown): { readonly message: string } {
    return { message: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    const { message } = this.state;
    return message === undefined ? this.props.children : <Failed message={message} />;
  }
}

export function Frame({ sections }: { readonly sections: readonly SectionView[] }) {
  const route = useRoute();
  useScrollHints();
  const about = useLoaded(() => readSection('about'), []);
  const present = sections.filter(({ name }) => hasBlock(name));
  const shown = present.find(({ name }) => name === route.section) ?? present[0];
  const main = useRef<HTMLElement>(null);
  const tabs = useRef<HTMLElement>(null);
  const last = useRef(shown?.name);
  useEffect(() => {
    // Where there are more tabs than a narrow page shows.
    tabs.current?.querySelector('[aria-current=page]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [shown?.name]);
  useEffect(() => {
    if (last.current === shown?.name) return;
    last.current = shown?.name;
    main.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [shown?.name]);
  return (
    <>
      <a class="skip" href={hashOf(route)} onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        To the content
      </a>
      <header>
        {about.state === 'ready' && <Head about={about.value} />}
        <ThemeSwitch />
        <nav ref={tabs} aria-label="Sections">
          {present.map(({ name, title }) => (
            <a key={name} href={hashOf({ section: name, state: {} })} aria-current={name === shown?.name && 'page'}>
              {title}
            </a>
          ))}
        </nav>
      </header>
      <main ref={main} tabIndex={-1}>
        {about.state === 'failed' && <Failed message={about.message} />}
        {shown === undefined ? (
          <p>There is nothing to show.</p>
        ) : (
          <Guard key={shown.name}>
            <shown.View route={route} />
          </Guard>
        )}
      </main>
      {about.state === 'ready' && <Foot about={about.value} />}
    </>
  );
}

/** Light or dark: the system's setting, until the user chooses. */

const THEMES = ['auto', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];
const NAMES: Readonly<Record<Theme, string>> = { auto: 'Automatic', light: 'Light', dark: 'Dark' };
const KEY = 'tilewright-theme';

/** Files on a disk may have no storage. */
function stored(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? 'auto';
  } catch {
    return 'auto';
  }
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState<Theme>(stored);
  useEffect(() => {
    document.documentElement.dataset['theme'] = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // It holds until the page is closed.
    }
  }, [theme]);
  return (
    <label class="theme">
      <span class="hidden">Colours</span>
      <select
        value={theme}
        onChange={({ currentTarget }) => setTheme(THEMES.find((each) => each === currentTarget.value) ?? 'auto')}
      >
        {THEMES.map((each) => (
          <option key={each} value={each}>
            {NAMES[each]}
          </option>
        ))}
      </select>
    </label>
  );
}
