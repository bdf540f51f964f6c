/** Light or dark: the system's setting, until the user chooses. */
import { useEffect, useState } from 'preact/hooks';

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
